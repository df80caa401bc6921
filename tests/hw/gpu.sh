#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What needs an NVIDIA GPU, in one call: tests/hw/gpu.sh BUILD. Every op against the reference, the backends'
# test, losses beside the processor's, compute-sanitizer over two steps. Ends with "ok" or names what failed.
set -u
build=$(cd "${1:-build}" && pwd) || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
failed=()
text=$(dirname "$0")/../../docs/engine.md
shape="layers=2 hidden=192 heads=3 ffn=768 vocab=257 context=128 positions=learned"

step() { # NAME COMMAND...
	local name=$1
	shift
	echo "== $name"
	"$@" || failed+=("$name")
}

losses() { # DEVICE PRECISION
	# shellcheck disable=SC2086
	JM_BACKENDS=$build/backends "$build/tests/engine/losses" gpt "$1" "$2" 10 2 128 "$text" "$work/w" 1 $shape
}

compare() { # PRECISION LARGEST DIFFERENCE [PRECISION OF THE PROCESSOR]
	losses cpu "${3:-$1}" >"$work/cpu" && losses cuda:0 "$1" >"$work/cuda" &&
		paste "$work/cpu" "$work/cuda" | awk -v most="$2" '
			{d = $1 - $3; if (d < 0) d = -d; if (!(d <= worst)) worst = d}
			END {print "largest difference of a loss:", worst; exit !(NR == 10 && worst <= most)}'
}

sanitize() {
	# shellcheck disable=SC2086
	JM_BACKENDS=$build/backends compute-sanitizer --tool memcheck --error-exitcode 1 \
		"$build/tests/engine/losses" gpt cuda:0 bf16 2 2 64 "$text" "$work/w" 1 $shape | tail -1
	return "${PIPESTATUS[0]}"
}

# One record of a run on the GPU, and what must hold of it.
record() { # CONDITION RUN'S ARGUMENTS...
	local condition=$1
	shift
	"$build/joulemark" run "$@" --device cuda:0 --source nvml --json "$work/record" >"$work/out" 2>&1 ||
		{ tail -5 "$work/out"; return 1; }
	python3 - "$condition" "$work/record" <<-'END'
		import json, sys
		record = json.load(open(sys.argv[2]))
		records = record if isinstance(record, list) else [record]
		for r in records:
		    phase = next(p for p in r["phases"] if p["name"] == "steady")
		    watts = r["total"]["joules_measured"] / (phase["end_s"] - phase["start_s"])
		    soft, aligned = r.get("soft") or {}, r["alignment"]
		    print({"watts": round(watts, 1), "rate": r["throughput"], "soft": soft, "alignment": aligned, "selftest": r.get("selftest")})
		    if not eval(sys.argv[1]):
		        sys.exit("not so: " + sys.argv[1])
	END
}

through_shim() {
	JM_NVML_LIB=$build/tests/fake/libnvidia-ml-shim.so JM_NVML_SHIM_FILE=$work/limits record \
		'all(s["requested"] == s["enforced"] for s in r["settings"])' "${product[@]}" --set gpu.power@0=500W
}

product=(gemm --m 8192 --n 8192 --k 8192 --precision bf16 --seconds 3)
mkdir "$work/backends" && ln -s "$build/backends/cuda.so" "$work/backends/"
step selftest "$build/joulemark" selftest --device cuda:0
step backends env JM_BACKENDS="$work/backends" "$build/tests/test_backend"
step "losses f32" compare f32 1e-3
step "losses bf16" compare bf16 0.1
step "losses fp16" compare fp16 1e-2 f32
step share record '0 < soft["units"] < soft["units_of"] and r["verified"]' "${product[@]}" --sm-share 50
step hold record 'abs(watts - 400) < 20 and soft["busy_share"] < 1' "${product[@]}" --hold-power 400W --seconds 6
step clock record 'aligned["error_ns"] < 20e3 and aligned["anchors"] == 3' "${product[@]}"
step shim through_shim
if command -v compute-sanitizer >/dev/null; then step memcheck sanitize; fi
if [ ${#failed[@]} -gt 0 ]; then
	printf 'failed: %s\n' "${failed[@]}"
	exit 1
fi
echo ok
