#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# joulemark and PyTorch train the same transformers on the same card, in turn:
# bench/gpu/transformers.sh [NETWORK...], of gpt-117m gpt-800m llama vit-l16 llama3-8b (bf16-true, batch 1, on both
# sides: 80 GB) llama3-8b-max (the largest batch of each; for PyTorch TORCH_BATCH, 2); and gpt-800m-fp8 llama-fp8
# llama3-8b-fp8, joulemark alone: products in 8 bits beside those in 16. JM_BIN names the program,
# SECONDS_EACH the length of a run, KEEP an option that selects which results are kept for gradients (--keep-all).
# For each network: joulemark, joulemark with JM_CUDA_FAST, PyTorch.
set -eu
here=$(dirname "$0")
seconds=${SECONDS_EACH:-6}

own() { # whatever happens, it ends
	timeout -k 10 $((4 * seconds + 120)) "${JM_BIN:-build/joulemark}" run train --device cuda:0 --warmup 3s --seconds "$seconds" --json - "$@" 2>/dev/null | python3 -c '
import json, sys
r = json.load(sys.stdin)
if r["status"] != "ok":
    sys.exit("joulemark: " + str(r["reason"]))
joules = r["total"]["joules_measured"]
print(json.dumps({"items_s": r["throughput"], "items_per_joule": joules and r["items"] / joules,
    "bytes": r["plan"]["peak_bytes"], "steps": r["steps"], "loss": r["loss_last"]}))'
}

read -ra kept <<<"--precision bf16 ${KEEP:-}"
true_8b=(layers=32 hidden=4096 heads=32 kv-heads=8 ffn=14336 vocab=128256 context=2048 theta=500000 true=1)

compare() { # NAME, options of joulemark, "--", arguments of train_torch.py
	local name=$1 options=()
	shift
	while [ "$1" != -- ]; do options+=("$1"); shift; done
	shift
	echo "$name joulemark $(own "${options[@]}")"
	echo "$name fast      $(JM_CUDA_FAST=1 own "${options[@]}")"
	echo "$name PyTorch   $(python3 "$here/train_torch.py" "$@" 2>/dev/null | tail -1)"
}

beside() { # NAME, options of joulemark without the precision: bf16, fp8, or both without masters
	local name=$1 masters=$2 precision
	shift 2
	for precision in bf16 fp8; do
		echo "$name $precision$masters $(own --precision "$precision$masters" "$@")"
	done
}

nvidia-smi --query-gpu=name,uuid,driver_version,power.limit,temperature.gpu --format=csv,noheader
for network in "${@:-gpt-117m gpt-800m llama vit-l16}"; do
	for name in $network; do
		case $name in
		gpt-117m)
			compare gpt-117m "${kept[@]}" --model gpt-117m --batch 32 --seq 1024 -- gpt 32 1024 "$seconds" attention=cudnn ;;
		gpt-800m)
			compare gpt-800m "${kept[@]}" --model gpt-800m --batch 8 --seq 2048 -- gpt 8 2048 "$seconds" attention=cudnn \
				layers=16 hidden=2048 heads=8 ffn=8192 vocab=50304 context=2048 rotary=1 ;;
		llama)
			compare llama "${kept[@]}" --model llama --layers 16 --hidden 2048 --heads 32 --kv-heads 8 --ffn 8192 \
				--vocab 128256 --context 2048 --theta 500000 --batch 8 --seq 2048 -- llama 8 2048 "$seconds" \
				attention=cudnn layers=16 hidden=2048 heads=32 kv-heads=8 ffn=8192 vocab=128256 context=2048 \
				theta=500000 ;;
		vit-l16)
			compare vit-l16 "${kept[@]}" --model vit-l16 --batch 128 -- vit-l16 128 0 "$seconds" attention=flash ;;
		gpt-800m-fp8)
			beside gpt-800m "" --keep-all --model gpt-800m --batch 8 --seq 2048 ;;
		llama-fp8)
			beside llama "" --keep-all --model llama --layers 16 --hidden 2048 --heads 32 --kv-heads 8 --ffn 8192 \
				--vocab 128256 --context 2048 --theta 500000 --batch 8 --seq 2048 ;;
		llama3-8b-fp8)
			beside llama3-8b -true --model llama3-8b --batch max --seq 2048 ;;
		llama3-8b)
			compare llama3-8b --precision bf16-true --model llama3-8b --batch 1 --seq 2048 -- llama 1 2048 \
				"$seconds" attention=cudnn "${true_8b[@]}" ;;
		llama3-8b-max)
			compare llama3-8b-max --precision bf16-true --model llama3-8b --batch max --seq 2048 -- \
				llama "${TORCH_BATCH:-2}" 2048 "$seconds" attention=cudnn "${true_8b[@]}" ;;
		*)
			echo "transformers.sh: there is no network '$name' here." >&2
			exit 2 ;;
		esac
	done
done
