#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pipeline-parallel.sh [JOULEMARK]: one llama on one rank, in two stages on two ranks, in two stages of two parts
# each, and in stages of three blocks and of one: the same losses, what a rank keeps in memory, what all send to other stages in a step, and the share of it in which
# a stage has to wait (docs/training.md). On GPUs: --device cuda:0,cuda:1.
# prints: ^stages,parts,last,loss,kept_MB,sent_MB,bubble
# prints: ^,,,[0-9.]+,[0-9.]+,,$
# prints: ^2,1,,[0-9.]+,[0-9.]+,0.3,0.2$
# prints: ^2,1,1,[0-9.]+,[0-9.]+,0.3,0.2$
# prints: ^2,2,,[0-9.]+,[0-9.]+,0.8,0.111$
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-pipeline-parallel.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # leaves nothing behind

run() { # ranks...
	"$jm" run llama --layers 4 --hidden 128 --heads 4 --context 32 --batch 2 --accumulate 4 "$@" --device cpu --warmup 0 \
		--steps 4 --source null --selftest 0 --store "$work/pp.db"
}
run
run --ranks 2 --pp 2
run --ranks 2 --pp 2 --pp-chunks 2
run --ranks 2 --pp 2 --pp-last 1
"$jm" query --format csv "$work/pp.db" "SELECT json_extract(record, '\$.communication.pp') AS stages,
	json_extract(record, '\$.communication.pp_chunks') AS parts,
	json_extract(record, '\$.options.pp-last') AS last, round(r.loss_last, 4) AS loss,
	round(json_extract(record, '\$.plan.persistent_bytes') / 1e6, 2) AS kept_MB,
	round(json_extract(record, '\$.communication.pp_bytes_per_step') / 1e6, 1) AS sent_MB,
	round(json_extract(record, '\$.communication.bubble'), 3) AS bubble
	FROM results r JOIN records USING (case_id, repeat) ORDER BY 1, 2, 3"
