#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# burn.sh [JOULEMARK]: a load that draws about as much power as a node can: products without pause on all devices at once, each checked, beside
# threads that load processors and memory of the host (docs/kernels.md). Here two ranks share the processors; on four GPUs:
# --device cuda:0,cuda:1,cuda:2,cuda:3 --ranks 4 --fill 0.85, for ten minutes.
# prints: ^40,1,"64 x 64 x 64, 1 set of operands, 4 products per step on each of 2 ranks, each checked;
# prints: 2 threads of the host multiply and walk through its memory
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-burn.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # leaves nothing behind

"$jm" run burn --device ref --ranks 2 --side 64 --products 4 --warmup 0 --steps 5 --processors 2 --host-memory 0.01 \
	--source estimate --store "$work/burn.db"
"$jm" query --format csv "$work/burn.db" "SELECT json_extract(record, '\$.items') AS products,
	json_extract(record, '\$.verified') AS verified, json_extract(record, '\$.detail') AS detail FROM records"
