#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tokens.sh [JOULEMARK [TOKENIZER [TEXT]]]: from a text to a network that learns from its tokens. TOKENIZER is the
# tokenizer.json of a model (here a small one of the tests), TEXT any text in UTF-8 (here this project's page).
# prints: ^documents +1$
# prints: ^tokens/s +[0-9,]+$
# prints: ^type +u16$
# prints: ^as text +# joulemark
# prints: energy: one meter, estimated
# prints: steady +[0-9.]+ +[0-9.]+ .* 384
set -eu
here=$(dirname "$0")/..
jm=${1:-joulemark}
tokenizer=${2:-$here/tests/data/tokenizers/gpt2.json}
text=${3:-$here/README.md}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-tokens.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # leaves nothing behind

"$jm" data tokenize "$text" "$work/set" --tokenizer "$tokenizer" | tee "$work/counts"
"$jm" data "$work/set" --tokenizer "$tokenizer"
vocabulary=$(sed -n 's/^vocabulary *//p' "$work/counts" | tr -d ,)
"$jm" run gpt --layers 2 --hidden 64 --heads 4 --seq 64 --vocab "$vocabulary" --text "$work/set.bin" --device cpu \
	--batch 2 --warmup 1 --steps 3 --source estimate
