#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# joulemark and PyTorch multiply matrices of random normal values in bf16 on the same card, twice each in turn:
# bench/gpu/gemm.sh [N]. JM_BIN names the program, JM_BACKENDS its plug-ins, SECONDS_EACH the length of a run.
set -eu
n=${1:-8192}
here=$(dirname "$0")
seconds=${SECONDS_EACH:-3}

own() {
	timeout -k 10 $((seconds + 60)) "${JM_BIN:-build/joulemark}" run gemm --device cuda:0 --m "$n" --n "$n" --k "$n" \
		--precision bf16 --warmup 1s --seconds "$seconds" --json - 2>/dev/null | python3 -c '
import json, sys
r = json.load(sys.stdin)
if r["status"] != "ok":
    sys.exit("joulemark: " + str(r["reason"]))
joules = r["total"]["joules_measured"]
print(json.dumps({"tflops": r["throughput"] * r["flops_model_per_item"] / 1e12,
    "watts": joules and joules * r["throughput"] / r["items"], "detail": r["detail"]}))'
}

nvidia-smi --query-gpu=name,uuid,driver_version,power.limit,temperature.gpu --format=csv,noheader
for _ in 1 2; do
	echo "joulemark $(own)"
	echo "PyTorch   $(timeout -k 10 $((3 * seconds + 120)) python3 "$here/gemm_torch.py" "$n" "$seconds")"
done
