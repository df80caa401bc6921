#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tensor-parallel.sh [JOULEMARK]: one llama on one rank, shared by two ranks, and two models of two ranks each: the same
# losses, and what a rank keeps in memory and sums in a step (docs/training.md). On GPUs: --device cuda:0,cuda:1.
# prints: ^ranks,tp,loss,kept_MB,summed_MB
# prints: ^1,,[0-9.]+,[0-9.]+,$
# prints: ^2,2,[0-9.]+,[0-9.]+,1$
# prints: ^4,2,[0-9.]+,[0-9.]+,0.5$
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-tensor-parallel.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # leaves nothing behind

run() { # BATCH of a model, ranks...
	batch=$1
	shift
	"$jm" run llama --layers 4 --hidden 128 --heads 4 --context 32 --batch "$batch" "$@" --device cpu --warmup 0 --steps 4 \
		--source null --selftest 0 --store "$work/tp.db"
}
run 4
run 4 --ranks 2 --tp 2
run 2 --ranks 4 --tp 2
"$jm" query --format csv "$work/tp.db" "SELECT coalesce(json_extract(record, '\$.options.ranks'), 1) AS ranks,
	json_extract(record, '\$.communication.tp') AS tp, round(r.loss_last, 4) AS loss,
	round(json_extract(record, '\$.plan.persistent_bytes') / 1e6, 2) AS kept_MB,
	round(json_extract(record, '\$.communication.tp_bytes_per_step') / 1e6, 1) AS summed_MB
	FROM results r JOIN records USING (case_id, repeat) ORDER BY 1"
