#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# joulemark and PyTorch train the same ResNet on the same card, one after the other, joulemark before and
# after, and at last with JM_CUDA_FAST: bench/gpu/resnet.sh [MODEL [BATCH [PRECISION]]]. JM_BIN names the program,
# JM_BACKENDS its plug-ins, SECONDS_EACH the length of a run, KEEP an option that selects which results are kept for
# gradients (--keep-all).
set -eu
model=${1:-resnet50} batch=${2:-256} precision=${3:-bf16}
here=$(dirname "$0")
seconds=${SECONDS_EACH:-10}
read -ra kept <<<"${KEEP:-}"

own() {
	"${JM_BIN:-build/joulemark}" run "$model" --device cuda:0 --batch "$batch" --precision "$precision" "${kept[@]}" \
		--warmup 10 --seconds "$seconds" --json - 2>/dev/null | python3 -c '
import json, sys
r = json.load(sys.stdin)
if r["status"] != "ok":
    sys.exit("joulemark: " + str(r["reason"]))
joules = r["total"]["joules_measured"]
seconds = r["items"] / r["throughput"]
print(json.dumps({"image_per_s": r["throughput"], "watts": joules and joules / seconds,
    "image_per_J": joules and r["items"] / joules, "bytes": r["plan"]["peak_bytes"], "loss_last": r["loss_last"], "detail": r["detail"]}))'
}

nvidia-smi --query-gpu=name,driver_version,power.limit,temperature.gpu --format=csv,noheader
echo "joulemark $(own)"
echo "peer      $(python3 "$here/resnet_torch.py" --model "$model" --batch "$batch" --precision "$precision" \
	--seconds "$seconds")"
echo "joulemark $(own)"
echo "fast      $(JM_CUDA_FAST=1 own)"
