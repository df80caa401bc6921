#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# student.sh [JOULEMARK]: a student with a laptop, without a GPU and without privileges, asks what can be measured here,
# what a network costs before it is trained, what its training costs, how reliable the figures are, and what a residual stream
# in 16 bits changes. Energy is an estimate from processor time, and every figure says so; with a sensor that may be read
# ('doctor' says how), omit --source.
# prints: yes estimate: CPU
# prints: parameters +[0-9.]+ k
# prints: model FLOPs
# prints: energy: one meter, estimated
# prints: steady +[0-9.]+ +[0-9.]+ .* 384
# prints: grade none
# prints: No energy was measured
# prints: residual=f32
# prints: residual=bf16
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-student.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # leaves nothing behind
network="gpt --layers 2 --hidden 64 --heads 4 --seq 64 --vocab 512"

"$jm" doctor 2>/dev/null
"$jm" describe $network --batch 2
"$jm" run $network --device cpu --batch 2 --warmup 1 --steps 3 --source estimate --json "$work/gpt.json" --quiet
"$jm" check "$work/gpt.json" || echo "check: status $?, because nothing was measured"
"$jm" run $network --device cpu --precision bf16 --residual f32,bf16 --batch 2 --warmup 1 --steps 3 --source estimate
