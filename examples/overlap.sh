#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# overlap.sh [JOULEMARK]: what a matrix product and an all-gather cost each other (docs/gpu.md): seconds and watts of
# each alone and of both at once. Here two ranks share the processors; on two GPUs: --device cuda:0,cuda:1.
# prints: "kind": "allgather"
# prints: "slowdown": [0-9.]+
# prints: "overlapped_s": -?[0-9.e-]+
# prints: ^both +[0-9.,]+
# prints: "status": "ok"
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-overlap.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # leaves nothing behind

"$jm" run overlap --device cpu --ranks 2 --precision f32 --m 256 --n 256 --k 256 --products 4 --size 0.002 --turn 100ms \
	--warmup 0 --steps 2 --source estimate --json "$work/record.json"
grep -E '"(status|kind|slowdown|exposed_s|overlapped_s)":' "$work/record.json"
