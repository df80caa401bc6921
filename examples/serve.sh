#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# serve.sh [JOULEMARK]: a small language model answers requests, first all at once, then one at a time.
# prints: ^all at once: [0-9]+ requests$
# prints: ^one at a time: [0-9]+ requests$
# prints: energy: one meter, estimated
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-serve.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # leaves nothing behind

serve() {
	"$jm" run serve --model llama --layers 2 --hidden 64 --heads 4 --kv-heads 2 --context 128 --precision f32 \
		--device ref --input-tokens 1:16 --output-tokens 1:8 --warmup 1 "$@"
}

serve --arrival all --requests 16 --steps 60 --requests-csv "$work/all.csv"
serve --arrival single --steps 60 --requests-csv "$work/single.csv"
echo "all at once: $(($(wc -l <"$work/all.csv") - 1)) requests"
echo "one at a time: $(($(wc -l <"$work/single.csv") - 1)) requests"
