#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The papers' sizes on the GPUs of a node: tests/hw/nodes.sh [--dry-run] BUILD FOLDER [STEP...]
# Trainings on 1, 2, 4, ... GPUs beside each GPU alone, transfers beside NCCL by PyTorch, PyTorch's DistributedDataParallel,
# batches by devices with those that do not fit, a burn of all GPUs and the host, products beside all-gathers, a model that
# is divided over all GPUs (from four on), ranks that are killed and stopped.
# A STEP is the beginning of a name ("train-resnet50", "map"); without one all are made, in the order of their worth.
# A call ends within LIMIT seconds (480): a step begins only if it can end before, and those that are left are named. The
# same call again goes on: FOLDER has the stores, whose cases are not repeated, and the status of each step. A step that
# failed is made again only where its whole name is given. Statuses: 0 all steps held, 1 some failed, 3 some are left.
# PATIENCE=10 gives each step ten times as long, for a machine that does other work.
# The last lines are the table of all that FOLDER has, which tests/hw/nodes_table.py FOLDER prints as well.
# DEVICES="cuda:0 cuda:1" names the devices, SOURCE what measures, EACH the whole seconds of a measurement, PYTHON the one
# with PyTorch; SIZE=toy takes small networks, to try this script on any device. No setting of a GPU is changed.
set -u
dry=
[ "${1:-}" = --dry-run ] && dry=yes && shift
[ $# -ge 2 ] || { sed -n '3,15s/^# //p' "$0" >&2; exit 2; }
build=$(cd "$1" && pwd) && mkdir -p "$2" && folder=$(cd "$2" && pwd) || exit 2
shift 2
wanted=("$@")
top=$(cd "$(dirname "$0")/../.." && pwd)
limit=${LIMIT:-480} each=${EACH:-4} source=${SOURCE:-nvml} size=${SIZE:-papers} python=${PYTHON:-python3}
short=$((each > 1 ? 1 : each)) long=$((each > 1 ? each * 8 : each)) # seconds of a transfer or a batch, and of the burn
if [ -n "${DEVICES:-}" ]; then
	read -ra devices <<<"$DEVICES"
else
	mapfile -t devices < <(nvidia-smi --query-gpu=index --format=csv,noheader | sed 's/^/cuda:/')
fi
n=${#devices[@]}
[ "$n" -gt 0 ] || { echo "no GPU; DEVICES names other devices" >&2; exit 2; }
all=$(IFS=,; echo "${devices[*]}")
counts=()
for ((c = 1; c < n; c *= 2)); do counts+=("$c"); done
counts+=("$n")
export NCCL_NVLS_ENABLE=0 JM_PLANS=$folder/plans JM_STATE=$folder/state TORCHINDUCTOR_CACHE_DIR=$folder/torch
mkdir -p "$JM_PLANS" "$JM_STATE" "$folder/steps" "$folder/logs"
# A signal ends the running step with all that it started, because timeout sends it on to its process group.
end() { # STATUS
	trap '' INT TERM HUP
	[ -n "$running" ] && kill -TERM "$running" 2>/dev/null && wait
	exit "$1"
}
running=
trap 'end 130' INT
trap 'end 143' TERM
trap 'end 129' HUP

# network: words of run. The sizes of PAPERS are those of the papers, TOY's take a moment on a processor.
llama="--layers 16 --hidden 2048 --heads 32 --kv-heads 8 --ffn 8192 --vocab 128256 --context 2048 --theta 500000"
small="--layers 1 --hidden 32 --heads 2 --vocab 256 --context 16 --seq 16"
if [ "$size" = toy ]; then
	declare -A networks=([gpt-117m]="gpt $small --batch 2" [resnet50]="resnet18 --image 32 --classes 10 --batch 2")
	networks[llama3-8b]="gpt ${small/layers 1/layers 4} --batch 1" divided=(--accumulate 2)
	order=(gpt-117m resnet50) later=(llama3-8b)
	declare -A maps=([gpt-800m]="gpt $small --memory 0.01") batches=([gpt-800m]="1,4,4096")
	sizes=0.0001,0.001 warmup=0 peers=(allreduce)
	burn=(burn --side 64 --processors 1 --host-memory 0.001)
	beside=(overlap --m 64 --n 64 --k 64 --products 1 --turn 50ms)
else
	declare -A networks=(
		[gpt-117m]="gpt-117m --batch 32 --seq 1024 --precision bf16 --keep-all"
		[resnet50]="resnet50 --batch 256 --precision bf16"
		[gpt-800m]="gpt-800m --batch 8 --seq 2048 --precision bf16"
		[llama]="llama $llama --batch 8 --seq 2048 --precision bf16"
		[llama3-8b]="llama3-8b --batch 4 --seq 2048 --precision bf16-true"
		[vit-l16]="vit-l16 --batch 128 --precision bf16"
		[xception]="xception --batch 128 --precision bf16"
		[resnet152]="resnet152 --classes 10 --stem cifar --image 32 --batch 512 --precision bf16")
	divided=(--accumulate 8 --pp-chunks 2)
	order=(gpt-117m resnet50) later=(llama3-8b llama gpt-800m resnet152 vit-l16 xception)
	declare -A maps=([resnet50]="resnet50 --precision fp16" [gpt-800m]="gpt-800m --seq 2048 --precision fp16")
	declare -A batches=([resnet50]="16,64,256,1024,2048,4096" [gpt-800m]="1,4,16,64,256")
	sizes=0.001,0.008,0.064,0.512,2 warmup=1s peers=()
	burn=(burn --fill 0.85 --processors $(($(nproc) / 2))
		--host-memory "$(awk '/MemAvailable/ {gb = $2 / 1e6 / 2; print gb < 64 ? gb : 64}' /proc/meminfo)")
	beside=(overlap --m 8192 --n 8192 --k 10240 --products 10 --turn 1s --precision bf16)
fi

is_wanted() { # NAME
	local one
	[ ${#wanted[@]} -eq 0 ] && return 0
	for one in "${wanted[@]}"; do [[ $1 == "$one"* ]] && return 0; done
	return 1
}

is_named() { # NAME
	local one
	for one in "${wanted[@]}"; do [ "$1" = "$one" ] && return 0; done
	return 1
}

left=() failed=()
step() { # NAME SECONDS COMMAND...
	local name=$1 most=$(($2 * ${PATIENCE:-1})) begin=$SECONDS status file=$folder/steps/$1
	is_wanted "$name" || return
	if [ "$dry" ]; then
		echo "== $name: at most $most s"
		"${@:3}"
		return
	fi
	grep -qs '^ok' "$file" && return
	if [ -e "$file" ] && ! is_named "$name"; then
		failed+=("$name")
		return
	fi
	if [ $((SECONDS + most)) -gt "$limit" ]; then
		left+=("$name")
		return
	fi
	name=$name timeout -k 10 "$most" bash -c '"$@"' _ "${@:3}" >"$folder/logs/$name" 2>&1 &
	running=$!
	wait "$running"
	status=$?
	running=
	if [ $status = 0 ]; then
		echo "ok, $((SECONDS - begin)) s" >"$file"
	else
		echo "failed with status $status after $((SECONDS - begin)) s" >"$file"
		failed+=("$name")
		tail -n 5 "$folder/logs/$name"
	fi
	echo "== $name: $(cat "$file")"
}

# Runs the command, or prints it.
call() {
	[ -z "$dry" ] || { echo "   $*"; return; }
	"$@"
}

measure() { # STORE RUN'S ARGUMENTS...
	call "$build/joulemark" run "${@:2}" --source "$source" --warmup "$warmup" --seconds "$each" \
		--store "$folder/$1.db" --retry
}

# All devices at the same time, each by a program of its own with a store of its own.
each_alone() { # STORE RUN'S ARGUMENTS...
	local k=0 device pids=() pid status=0
	for device in ${all//,/ }; do
		measure "$1.$k" "${@:2}" --device "$device" &
		pids+=($!)
		[ -z "$dry" ] || { wait; pids=(); }
		k=$((k + 1))
	done
	for pid in "${pids[@]}"; do wait "$pid" || status=1; done
	return $status
}

# A batch that does not fit is a result.
map() { # RUN'S ARGUMENTS...
	local status
	measure map "$@"
	status=$?
	[ $status = 0 ] || [ $status = 1 ]
}

# Its last line is one of JSON for the table.
keep() { # COMMAND...
	if [ "$dry" ]; then call "$@"; else "$@" >"$folder/$name.json"; fi
}

export GPUS
ddp() { # GPUS NETWORK BATCH SEQUENCE
	GPUS=$1 keep "$python" "$top/bench/gpu/ddp_torch.py" "${@:2}" "$each"
}

for function in $(compgen -A function); do export -f "${function?}"; done
export build folder top dry each source all n warmup python

torch_step() { # like step
	if [ "$dry" ] || "$python" -c 'import torch' 2>/dev/null; then
		step "$@"
	elif is_wanted "$1"; then
		echo "== $1: skipped, because $python has no torch; PYTHON names another"
	fi
}

train() { # SECONDS NETWORK...
	local most=$1 network words c
	for network in "${@:2}"; do
		read -ra words <<<"${networks[$network]}"
		for c in "${counts[@]}"; do
			step "train-$network-$c" "$most" measure train "${words[@]}" --device "$all" --ranks "$c"
			[ "$c" = 1 ] && step "train-$network-alone" "$most" each_alone alone "${words[@]}"
		done
	done
}

transfers() { # WORKLOAD...
	local kind
	for kind in "$@"; do
		each=$short step "transfers-$kind" 100 measure transfers "$kind" --device "$all" --ranks "$n" --size "$sizes"
	done
}

harm() { # RANKS
	local words how
	read -ra words <<<"${networks[gpt-117m]}"
	for how in killed stopped; do
		step "$how-$1" 100 keep "$top/tests/hw/harm_rank.py" $how "$build" "$1" "${words[@]}" --device "$all" \
			--source "$source" --warmup 0 --seconds 5min
	done
}

train 90 "${order[@]}"
if [ "$n" -gt 1 ]; then
	transfers allreduce allgather alltoall
	torch_step nccl 100 keep "$python" "$top/bench/gpu/nccl_torch.py" "$n" "$sizes" "$short" "${peers[@]}"
	harm "$n"
fi
[ "$n" -gt 1 ] && burn+=(--ranks "$n")
each=$long step burn $((90 + long)) measure burn "${burn[@]}" --device "$all"
if [ "$size" != toy ]; then
	torch_step "ddp-gpt-117m-$n" 300 ddp "$n" gpt 32 1024
	torch_step "ddp-resnet50-$n" 300 ddp "$n" resnet50 256 0
fi
train 150 "${later[@]}"
if [ "$n" -ge 4 ]; then
	read -ra words <<<"${networks[llama3-8b]}"
	step "divided-$n" 150 measure divided "${words[@]}" --device "$all" --ranks "$n" --tp 2 --pp $((n / 2)) "${divided[@]}"
fi
for network in "${!maps[@]}"; do
	read -ra words <<<"${maps[$network]}"
	for c in "${counts[@]}"; do
		each=$short step "map-$network-$c" 240 map "${words[@]}" --batch "${batches[$network]}" --device "$all" --ranks "$c"
	done
done
if [ "$n" -gt 1 ]; then
	each=$((3 * each)) step overlap 240 measure overlap "${beside[@]}" --size "$sizes" --device "$all" --ranks "$n"
	transfers reducescatter broadcast p2p
	for c in "${counts[@]:1}"; do [ "$c" = "$n" ] || harm "$c"; done
fi

[ -z "$dry" ] || exit 0
python3 "$top/tests/hw/nodes_table.py" "$folder"
[ ${#left[@]} = 0 ] || echo "left for the next call: ${left[*]}"
[ ${#failed[@]} = 0 ] || echo "failed: ${failed[*]}"
[ ${#failed[@]} = 0 ] || exit 1
[ ${#left[@]} = 0 ] || exit 3
