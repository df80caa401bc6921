#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two GPUs of one host, joulemark and PyTorch's DistributedDataParallel in one call: bench/gpu/two.sh [NETWORK...], of
# gpt-117m resnet50. Each GPU alone (two programs at the same time), then both as two ranks, REPEAT times in turn; then
# PyTorch, whose programs compile at the same time and measure one after the other. JM_BIN names the program, SECONDS_EACH
# the length of a measurement, TRANSPORTS the values of --transport ("nccl host"), BUCKETS those of --bucket ("default
# 10000"), UPDATES those of --shard-update. Prints lines of JSON.
set -u
here=$(dirname "$0")
seconds=${SECONDS_EACH:-4} repeat=${REPEAT:-2}
networks=("$@")
[ $# -gt 0 ] || networks=(gpt-117m resnet50)
gates=$(mktemp -d) || exit 2
trap 'rm -rf "$gates"' EXIT
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}

own() { # LABEL, arguments of run
	local label=$1
	shift
	timeout -k 10 $((4 * seconds + 60)) "${JM_BIN:-build/joulemark}" run "$@" --source nvml --warmup 1s \
		--seconds "$seconds" --json - 2>/dev/null | python3 -c '
import json, sys
r = json.load(sys.stdin)
if r["status"] != "ok":
    sys.exit("joulemark: " + str(r["reason"]))
signals = {m["id"]: {s["quantity"]: s["mean"] for s in m["signals"]} for m in r["meters"]}
watts = {m["id"]: m["watts_mean"] for m in r["meters"]}
known = lambda x, factor, digits: None if x is None else round(x * factor, digits)
uuids = [x["uuid"] for x in r["gang"]["ranks"]] if "gang" in r else [r["ran_on"]["uuid"]]
print(json.dumps({"run": sys.argv[1], "items_s": r["throughput"], "steps": r["steps"],
    "mJ_per_item": 1e3 * r["total"]["joules_measured"] / r["items"], "communication": r.get("communication"),
    "watts": [round(watts["nvml:" + u], 1) for u in uuids],
    "memory_watts": [known(watts.get("nvml:" + u + "/memory"), 1, 1) for u in uuids],
    "MHz": [known(signals["nvml:" + u].get("clock"), 1e-6, 0) for u in uuids]}))' "$label"
}

declare -A work=(
	[gpt-117m]="gpt-117m --batch 32 --seq 1024 --precision bf16 --keep-all"
	[resnet50]="resnet50 --batch 256 --precision bf16")
declare -A torch=([gpt-117m]="gpt 32 1024" [resnet50]="resnet50 256 0")

beside() { # NETWORK
	local args
	read -ra args <<<"${work[$1]}"
	own "$1 alone" "${args[@]}" --device cuda:1 >"$gates/second" &
	own "$1 alone" "${args[@]}" --device cuda:0
	wait $!
	cat "$gates/second"
	for transport in ${TRANSPORTS:-auto}; do
		for bucket in ${BUCKETS:-default}; do
			[ "$bucket" = default ] && size=() || size=(--bucket "$bucket")
			for update in ${UPDATES:-auto}; do
				own "$1 two, transport $transport, bucket $bucket, shard-update $update" "${args[@]}" "${size[@]}" \
					--device cuda:0,cuda:1 --ranks 2 --transport "$transport" --shard-update "$update"
			done
		done
	done
}

ready() { # of all programs, both ranks
	[ "$(find "$gates" -name '*.ready.*' | wc -l)" -ge $((4 * ${#networks[@]})) ]
}

# Programs that compile at the same time disturb each other, programs that measure would, too.
ddp() {
	local name phase args pids=() begin=$SECONDS i=0
	for name in "${networks[@]}"; do
		read -ra args <<<"${torch[$name]}"
		for phase in alone together; do
			GATE=$gates timeout -k 5 "${TORCH_LIMIT:-240}" python3 "$here/ddp_torch.py" "${args[@]}" "$seconds" \
				$phase >"$gates/$name.$phase" 2>"$gates/$name.$phase.log" &
			pids+=($!)
		done
	done
	${MEANWHILE:-true} # of those who compile: what does not need the whole machine
	until ready || [ $((SECONDS - begin)) -gt "${TORCH_LIMIT:-240}" ]; do sleep 0.2; done
	echo "compiled in $((SECONDS - begin)) s"
	for name in "${networks[@]}"; do
		read -ra args <<<"${torch[$name]}"
		for phase in alone together; do
			touch "$gates/${args[0]}.$phase.go"
			wait "${pids[i++]}"
			tail -n 1 "$gates/$name.$phase" | grep . || tail -n 12 "$gates/$name.$phase.log"
		done
	done
}

nvidia-smi --query-gpu=name,uuid,driver_version,power.limit,temperature.gpu --format=csv,noheader
for name in "${networks[@]}"; do
	for ((k = 0; k < repeat; k++)); do beside "$name"; done
done
ddp
