#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# All checks that need an NVIDIA GPU: tests/hw/gpu.sh BUILD [STEP...]. Every op against the reference, the backends'
# test in each type, losses of each model compared with the processor's, records of single products and of networks,
# compute-sanitizer over ops with own kernels and over two steps; and with PyTorch the errors against f64 beside its own, and
# how products of 8 bits are added. Without STEP all of them; a STEP is the beginning of a name ("losses", "fp8"). Each has
# its own limit. Ends with "ok", the time and the sum of the limits, or names the failed steps.
set -u
build=$(cd "${1:-build}" && pwd) || exit 2
shift
work=$(mktemp -d) || exit 2
# A signal ends the running step with all that it started, because timeout sends it on to its process group.
running=
end() { # STATUS
	trap '' INT TERM HUP
	[ -n "$running" ] && kill -TERM "$running" 2>/dev/null && wait "$running"
	exit "$1"
}
trap 'rm -rf "$work"' EXIT
trap 'end 130' INT
trap 'end 143' TERM
trap 'end 129' HUP
failed=()
limits=0
wanted=("$@")
top=$(cd "$(dirname "$0")/../.." && pwd)
text=$top/docs/engine.md
images=$work/images
# model, batch, sequence, data, dimensions
resnet18="resnet 8 1 images layers=18 hidden=16 image=64 classes=10"
resnet50="resnet 8 1 images layers=50 hidden=16 image=64 classes=10"
vit="vit 8 1 images layers=2 hidden=192 heads=3 ffn=768 image=64 patch=16 classes=10"
gpt="gpt 2 128 text layers=2 hidden=192 heads=3 ffn=768 vocab=257 context=128 positions=learned"
llama="llama 2 128 text layers=2 hidden=192 heads=6 kv-heads=2 ffn=512 vocab=257 context=128 theta=10000"
export build work text images top resnet18 resnet50 vit gpt llama

is_wanted() { # NAME
	local one
	[ ${#wanted[@]} -eq 0 ] && return 0
	for one in "${wanted[@]}"; do [[ $1 == "$one"* ]] && return 0; done
	return 1
}

step() { # NAME SECONDS COMMAND...
	local name=$1 limit=$2 begin=$SECONDS
	shift 2
	is_wanted "$name" || return
	limits=$((limits + limit))
	echo "== $name"
	timeout -k 5 "$limit" bash -c '"$@"' _ "$@" &
	running=$!
	wait "$running" || failed+=("$name")
	running=
	echo "== $name: $((SECONDS - begin)) s of $limit"
}

make_images() { # 20 batches of 8 images of 3 x 64 x 64 and their classes
	python3 - "$images" <<-'END'
		import array, random, sys
		chance = random.Random(7)
		with open(sys.argv[1], "wb") as f:
		    for _ in range(20):
		        classes = array.array("i", (chance.randrange(10) for _ in range(8)))
		        array.array("f", (chance.gauss(c / 10, 1) for c in classes for _ in range(3 * 64 * 64))).tofile(f)
		        classes.tofile(f)
	END
}

losses() { # MODEL DEVICE PRECISION [STEPS [TOOL...]]
	local device=$2 precision=$3 steps=${4:-20} words
	read -ra words <<<"${!1}"
	JM_BACKENDS=$build/backends "${@:5}" "$build/tests/engine/losses" "${words[0]}" "$device" "$precision" "$steps" \
		"${words[@]:1:2}" "${!words[3]}" "$work/w" 1 "${words[@]:4}"
}

# The first loss knows no training yet: what rounding begins grows in a resnet50 within a few steps to 0.3, in f32, too.
compare() { # MODEL PRECISION LARGEST DIFFERENCE [PRECISION OF THE PROCESSOR [STEPS]]
	local steps=${5:-20} cpu=$work/cpu.$1.${4:-$2}.${5:-20} first=0.1
	[ "$2" = f32 ] && first=1e-5
	[ -s "$images" ] || make_images
	{ [ -s "$cpu" ] || losses "$1" cpu "${4:-$2}" "$steps" >"$cpu"; } && losses "$1" cuda:0 "$2" "$steps" >"$work/cuda" &&
		paste "$cpu" "$work/cuda" | awk -v most="$3" -v first="$first" -v steps="$steps" '
			/nan|inf/ {print; wrong = 1}
			{d = $1 - $3; if (d < 0) d = -d; if (d > worst) {worst = d; at = NR}}
			NR == 1 {begin = d; if (d > first) wrong = 1}
			END {print "difference of the first loss:", begin ", at most", first "; largest:", worst + 0, "in step", at + 0 ", at most", most
				exit !(NR == steps && worst <= most && !wrong)}'
}

chunked() { # logits of 128 rows at a time
	JM_CUDA_LOGITS=40000 compare "$@"
}

sanitize() { # PRECISION
	losses gpt cuda:0 "$1" 2 compute-sanitizer --tool memcheck --error-exitcode 1 | tail -1
	return "${PIPESTATUS[0]}"
}

# Errors against f64 of joulemark and of PyTorch: losses of 20 steps, first gradients. As many tests at a time as xdist runs.
beside_pytorch() { # PYTEST'S ARGUMENTS...
	local parallel=()
	python3 -c 'import xdist' 2>/dev/null && parallel=(-n 8)
	JM_PARITY_DEVICE=cuda:0 JM_BUILD=$build JM_BIN=$build/joulemark JM_BACKENDS=$build/backends \
		python3 -m pytest -q -rA -p no:cacheprovider "${parallel[@]}" "$@" "$top"/tests/cli/test_parity*.py >"$work/out" 2>&1
	local status=$?
	grep -E '^[a-z].* ours |^E  |^(FAILED|ERROR|SKIPPED) | in [0-9.]+s' "$work/out" | cut -c 1-300 | sort
	return $status
}

# The shortest beginnings of names that together select each operation of the self-test once.
op_groups() {
	"$build/joulemark" selftest --device ref --json | python3 -c '
import json, re, sys
names = {re.split("[ ,]", row["op"])[0] for row in json.load(sys.stdin)}
print("\n".join(n for n in sorted(names) if not any(n != o and n.startswith(o) for o in names)))'
}

# A program that the tool did not see is an error, too: its last line would say that there are no errors. timeout makes a
# process group, which the signal that ends the step does not reach: it is sent on.
sanitize_group() { # TOOL SECONDS GROUP OPTION...
	local out=$work/$1.$3 begin=$SECONDS status pid
	timeout -k 5 "$2" compute-sanitizer --tool "$1" --error-exitcode 1 "${@:4}" \
		"$build/joulemark" selftest --device cuda:0 --op "$3" >"$out" 2>&1 &
	pid=$!
	trap 'kill -TERM "$pid"; wait "$pid"; exit 143' TERM
	wait "$pid"
	status=$?
	grep -q "terminated before first instrumented API call" "$out" && status=1
	printf '%-9s %-14s %3d s, status %d: %s\n' "$1" "$3" $((SECONDS - begin)) $status "$(tail -1 "$out")"
	[ $status = 0 ] || { grep -m 12 -E '^=========|WRONG' "$out"; return 1; }
}

# Eight groups at a time. The self-test has filled the plan cache before, so that few of the library's kernels run.
sanitize_ops() { # TOOL SECONDS OF A GROUP [OPTION...]
	op_groups | xargs -P 8 -I '{}' bash -c 'sanitize_group "$@"' _ "$1" "$2" '{}' "${@:3}"
}

# One record of a run on the GPU, and what must hold of it.
record() { # CONDITION RUN'S ARGUMENTS...
	local condition=$1
	shift
	"$build/joulemark" run "$@" --device "${devices:-cuda:0}" --source nvml --json "$work/record" >"$work/out" 2>&1 ||
		{ tail -5 "$work/out"; return 1; }
	python3 - "$condition" "$work/record" <<-'END'
		import json, sys
		record = json.load(open(sys.argv[2]))
		records = record if isinstance(record, list) else [record]
		for r in records:
		    phase = next(p for p in r["phases"] if p["name"] == "steady")
		    watts = r["total"]["joules_measured"] / (phase["end_s"] - phase["start_s"])
		    soft, aligned = r.get("soft") or {}, r.get("alignment")
		    print({"watts": round(watts, 1), "rate": r["throughput"], "soft": soft, "alignment": aligned, "selftest": r.get("selftest")})
		    if not eval(sys.argv[1]):
		        sys.exit("not so: " + sys.argv[1])
	END
}

# Two trainings in separate processes give the same bits.
repeats() { # PRECISION
	local how=(resnet50 --batch 64 --precision "$1" --warmup 0 --steps 12)
	record True "${how[@]}" && cp "$work/record" "$work/one" && record True "${how[@]}" &&
		python3 - "$work/one" "$work/record" <<-'END'
			import json, sys
			one, two = ([json.load(open(path))[k] for k in ("loss_first", "loss_last")] for path in sys.argv[1:])
			print("losses of two processes:", *one, *two)
			sys.exit(one != two)
		END
}

# Ranks on two GPUs: a record like the one above.
two() { # CONDITION RUN'S ARGUMENTS...
	local devices=cuda:0,cuda:1
	record "$@" --ranks 2
}

# The losses of two ranks are those of one with the same global batch.
two_losses() { # LARGEST RELATIVE DIFFERENCE
	local small=(gpt --layers 4 --hidden 256 --heads 4 --vocab 256 --context 128 --seq 128 --warmup 0 --steps 10 --lr 0.001)
	record 'r["verified"]' "${small[@]}" --batch 8 && cp "$work/record" "$work/one" &&
		two 'r["verified"] and r["communication"]["transport"] == "nccl"' "${small[@]}" --batch 4 &&
		python3 - "$1" "$work/one" "$work/record" <<-'END'
			import json, sys
			one, both = (json.load(open(path)) for path in sys.argv[2:])
			worst = max(abs(one[k] - both[k]) / one[k] for k in ("loss_first", "loss_last"))
			print("largest relative difference of a loss:", worst)
			sys.exit(not worst <= float(sys.argv[1]))
		END
}

# Copies between two GPUs: verified, and the energy of both counts once.
two_copies() { # WAY
	local devices=cuda:0,cuda:1
	record 'r["verified"] and r["devices"] == 2 and abs(sum(m["joules"] for m in r["meters"] if m["id"] in [
			"nvml:" + r["ran_on"]["uuid"], "nvml:" + r["peer"]["uuid"]]) / r["total"]["joules_measured"] - 1) < 1e-9' \
		copy --way "$1" --size 0.001,0.25 --seconds 1
}

# The losses of a sharded update are those of an update of all parameters on each rank.
two_sharded() { # LARGEST RELATIVE DIFFERENCE
	local how work_of=(gpt --layers 4 --hidden 256 --heads 4 --vocab 256 --context 128 --seq 128 --batch 4 --warmup 0
		--steps 10 --lr 0.001 --clip 0)
	for how in off on; do
		two "r['communication']['shard_update'] == ('$how' == 'on')" "${work_of[@]}" --shard-update $how &&
			cp "$work/record" "$work/shard.$how" || return 1
	done
	python3 - "$1" "$work/shard.off" "$work/shard.on" <<-'END'
		import json, sys
		off, on = ([r["loss_first"], r["loss_last"]] for r in map(json.load, map(open, sys.argv[2:])))
		worst = max(abs(a - b) / a for a, b in zip(off, on))
		print("largest relative difference of a loss:", worst)
		sys.exit(not worst <= float(sys.argv[1]))
	END
}

# True once the run with this state measures steps; false if it ended before.
measures_steps() { # PID STATE
	local k
	for ((k = 0; k < 250; k++)); do
		JM_STATE=$2 "$build/joulemark" status --json | grep -q '"phase": "steady"' && return 0
		kill -0 "$1" 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}

# A rank that is killed during a step ends the other one.
two_killed() {
	local pid victim begin state=$work/killed
	JM_STATE=$state "$build/joulemark" run gpt-117m --batch 8 --precision bf16 --seconds 60 --ranks 2 \
		--device cuda:0,cuda:1 --source nvml >"$work/out" 2>&1 &
	pid=$!
	measures_steps $pid "$state" || { kill $pid; tail -5 "$work/out"; return 1; }
	read -r _ victim <"/proc/$pid/task/$pid/children"
	begin=$SECONDS
	kill -KILL "$victim"
	wait $pid
	echo "status $?, after $((SECONDS - begin)) s: $(grep -m 1 "Rank 1" "$work/out")"
	[ $((SECONDS - begin)) -le 10 ] && grep -q "Rank 1 of 2 .* was killed by signal 9" "$work/out"
}

through_shim() { # RUN'S ARGUMENTS...
	JM_NVML_LIB=$build/tests/fake/libnvidia-ml-shim.so JM_NVML_SHIM_FILE=$work/limits record \
		'all(s["requested"] == s["enforced"] for s in r["settings"])' "$@" --set gpu.power@0=500W
}

# The gradient of attention by own kernels, also where the self-test found cuDNN faster, with its plan cache.
own_attention() {
	mkdir "$work/own"
	sed -E 's#(attention/[^ ]*/ways) cudnn#\1 own#' \
		"${JM_PLANS:-${XDG_CACHE_HOME:-$HOME/.cache}/joulemark}/cuda.plans" >"$work/own/cuda.plans"
	JM_PLANS=$work/own "$build/joulemark" selftest --device cuda:0 --op attention-wide
}

# The mangled names of the kernels of backends/cuda. racecheck and synccheck report kernels of cuDNN and end with an internal
# error in those of cuBLASLt.
own_kernels=(--kernel-name 'regex=^_ZL?[0-9]+[a-z0-9_]*(_kernel|_finish|_sums)')
tools=$(cd "$(dirname "$0")" && pwd)
export -f own_attention make_images losses compare chunked beside_pytorch sanitize sanitize_group sanitize_ops op_groups record repeats through_shim
export -f two two_losses two_sharded two_copies two_killed measures_steps
large=(gemm --m 8192 --n 8192 --k 8192)
product=("${large[@]}" --precision bf16 --seconds 3)
small=(--layers 4 --hidden 2048 --heads 32 --kv-heads 8 --ffn 8192 --vocab 32000 --context 2048 --theta 500000)
mkdir "$work/backends" && ln -s "$build/backends/cuda.so" "$work/backends/"
step selftest 90 "$build/joulemark" selftest --device cuda:0
step "selftest of own attention" 60 own_attention
for type in f32 bf16 f16; do
	step "backends $type" 100 env JM_BACKENDS="$work/backends" JM_TEST_TYPES="$type" "$build/tests/test_backend"
done
while read -r model f32 short; do
	step "losses $model f32" 40 compare "$model" f32 "$f32"
	step "losses $model tf32" 40 compare "$model" tf32 "$short" f32
	step "losses $model bf16" 40 compare "$model" bf16 "$short"
	step "losses $model fp16" 40 compare "$model" fp16 "$short" f32
done <<END
	resnet18 0.05 0.2
	resnet50 1 1
	vit 1e-4 0.1
	gpt 1e-3 0.1
	llama 1e-3 0.1
END
step "losses in chunks" 40 chunked gpt bf16 0.1
step "losses without masters" 40 compare gpt bf16-true 0.1
if python3 -c 'import pytest, torch, torchvision' 2>/dev/null; then step "errors beside PyTorch" 300 beside_pytorch; fi
# The gradient of gpt has a spike after 12 steps in every precision, whose size depends on rounding (docs/engine.md, fp8).
step "fp8 losses of gpt" 40 compare gpt fp8 0.1 fp8 10
step "fp8 losses of llama" 40 compare llama fp8 0.1
step "fp8 losses without masters" 40 compare llama fp8-true 0.1
if python3 -c 'import torch' 2>/dev/null; then step "fp8 sums" 30 python3 "$tools/f8_sums.py"; fi
step "fp8 product" 30 record 'r["verified"]' "${large[@]}" --precision fp8 --seconds 3
for precision in bf16 fp8; do
	step "fp8 llama beside $precision" 60 record 'r["loss_last"] < r["loss_first"] - 0.5' train --model llama \
		"${small[@]}" --batch 8 --seq 2048 --precision "$precision" --warmup 2s --seconds 4
done
step "selftest of the fast mode" 60 env JM_CUDA_FAST=1 "$build/joulemark" selftest --device cuda:0 --op conv
for precision in bf16 fp16; do step "repeats $precision" 40 repeats "$precision"; done
step share 30 record '0 < soft["units"] < soft["units_of"] and r["verified"]' "${product[@]}" --sm-share 50
step hold 30 record 'abs(watts - 400) < 20 and soft["busy_share"] < 1' "${large[@]}" --precision bf16 --hold-power 400W --seconds 6
step clock 30 record 'aligned["error_ns"] < 20e3 and aligned["anchors"] == 3' "${product[@]}"
step shim 30 through_shim "${product[@]}"
both='r["verified"] and r["devices"] == 2 and r["transfer"]["transport"] == "nccl"'
once='abs(sum(m["joules"] for m in r["meters"] if m["id"] in ["nvml:" + x["uuid"] for x in r["gang"]["ranks"]])
	/ r["total"]["joules_measured"] - 1) < 1e-9'
if [ "$(nvidia-smi --list-gpus | wc -l)" -ge 2 ]; then
	step "two losses" 30 two_losses 1e-5
	step "two, sharded update" 40 two_sharded 1e-6
	step "two allreduce" 40 two "$both and r['transfer']['bus_bytes_per_s'] > 0" allreduce --size 0.008,0.512 --seconds 1
	step "two allgather" 30 two "$both" allgather --size 0.512 --seconds 1
	step "two training" 40 two "$once and r['communication']['exposed_s_per_step'] > 0" gpt-117m --batch 16 \
		--precision bf16 --warmup 1s --seconds 3
	step "two, one killed" 40 two_killed
	for way in to-peer both-peers; do
		step "two, copy $way" 40 two_copies "$way"
	done
elif is_wanted two; then
	echo "== two ...: skipped, because this machine has one GPU"
fi
if command -v compute-sanitizer >/dev/null; then
	step "memcheck ops" 200 sanitize_ops memcheck 60
	step "racecheck ops" 200 sanitize_ops racecheck 60 "${own_kernels[@]}"
	step "synccheck ops" 200 sanitize_ops synccheck 60 "${own_kernels[@]}"
	step "memcheck bf16" 60 sanitize bf16
	step "fp8 memcheck" 60 sanitize fp8
fi
if [ ${#failed[@]} -gt 0 ]; then
	printf 'failed: %s\n' "${failed[@]}"
	exit 1
fi
echo "ok after $SECONDS s of at most $limits"
