#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# overlap.sh [JOULEMARK]: what a matrix product and all-gathers of three sizes cost each other (docs/gpu.md), as a table:
# each alone, both at once. Here two ranks share the processors; on two GPUs: --device cuda:0,cuda:1.
# prints: ^GB,product_ms,collective_ms,both_ms,product_slowdown,collective_slowdown,both_W
# prints: ^0.0005(,[0-9.]+){6}
# prints: ^0.008(,[0-9.]+){6}
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-overlap.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # leaves nothing behind

"$jm" run overlap --device cpu --ranks 2 --precision f32 --m 256 --n 256 --k 256 --products 4 --size 0.0005,0.002,0.008 \
	--turn 100ms --warmup 0 --steps 2 --source estimate --store "$work/overlap.db"
"$jm" query --format csv "$work/overlap.db" "SELECT json_extract(record, '\$.overlap.bytes') / 1e9 AS GB,
	round(1e3 * overlap_product_s, 3) AS product_ms, round(1e3 * overlap_collective_s, 3) AS collective_ms,
	round(1e3 * overlap_both_s, 3) AS both_ms, round(overlap_product_slowdown, 2) AS product_slowdown,
	round(overlap_collective_slowdown, 2) AS collective_slowdown, round(overlap_both_W, 1) AS both_W
	FROM results JOIN records USING (case_id, repeat) ORDER BY GB"
