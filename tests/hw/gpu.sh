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

mkdir "$work/backends" && ln -s "$build/backends/cuda.so" "$work/backends/"
step selftest "$build/joulemark" selftest --device cuda:0
step backends env JM_BACKENDS="$work/backends" "$build/tests/test_backend"
step "losses f32" compare f32 1e-3
step "losses bf16" compare bf16 0.1
step "losses fp16" compare fp16 1e-2 f32
if command -v compute-sanitizer >/dev/null; then step memcheck sanitize; fi
if [ ${#failed[@]} -gt 0 ]; then
	printf 'failed: %s\n' "${failed[@]}"
	exit 1
fi
echo ok
