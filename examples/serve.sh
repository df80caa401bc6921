#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# serve.sh [JOULEMARK]: a small language model answers requests, first all at once, then one at a time with drawn tokens, then at random times
# and at given ones, and by two replicas; then one with given weights answers prompts of a text.
# prints: ^all at once: [0-9]+ requests$
# prints: ^first token \(TTFT\) +[0-9.]+ +[0-9.]+ +[0-9.]+$
# prints: ^one at a time: [0-9]+ requests$
# prints: ^at given times: [0-9]+ requests$
# prints: ^by two replicas: [0-9]+ requests$
# prints: ^\{"request":1,.*"prompt":"a cat","text":".+"\}$
# prints: energy: one meter, estimated
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-serve.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # leaves nothing behind

serve() {
	"$jm" run serve --model llama --layers 2 --hidden 64 --heads 4 --kv-heads 2 --context 128 --precision "${precision:-f32}" \
		--device ref --input-tokens 1:16 --output-tokens 1:8 --warmup 1 "$@"
}

serve --arrival all --requests 16 --steps 60 --requests-csv "$work/all.csv"
serve --arrival single --steps 60 --requests-csv "$work/single.csv" --temperature 0.8 --top-k 40 --top-p 0.95
precision=fp8 serve --arrival all --requests 16 --steps 30 # weights and rows of activations in 8 bits
serve --arrival all --requests 16 --steps 30 --kv f8e4m3 # keys and values in 8 bits
serve --arrival poisson --rate 50 --seconds 1 --ttft 500ms --tpot 30ms
printf 'input,output,arrival_s\n8,4,0\n16,2,0.1\n4,8,0.15\n' >"$work/lengths.csv"
serve --arrival file --lengths "$work/lengths.csv" --seconds 1 --requests-csv "$work/file.csv"
serve --arrival closed --ranks 2 --steps 60 --requests-csv "$work/ranks.csv" # two replicas, one queue
echo "all at once: $(($(wc -l <"$work/all.csv") - 1)) requests"
echo "one at a time: $(($(wc -l <"$work/single.csv") - 1)) requests"
echo "at given times: $(($(wc -l <"$work/file.csv") - 1)) requests"
echo "by two replicas: $(($(wc -l <"$work/ranks.csv") - 1)) requests"

# a folder as Hugging Face lays it out, with four letters, the blank and the end of a line as tokens
mkdir "$work/net"
cat >"$work/net/tokenizer.json" <<'JSON'
{"model": {"type": "BPE", "vocab": {"Ġ": 0, "a": 1, "b": 2, "c": 3, "t": 4, "Ċ": 5}, "merges": []},
 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
 "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}}
JSON
printf 'ab ab\na cat\n' >"$work/prompts"
for i in 1 2 3 4 5 6 7 8 9 10; do cat "$work/prompts" "$work/prompts"; done >"$work/text"
"$jm" data tokenize "$work/text" --tokenizer "$work/net/tokenizer.json" "$work/tokens"
"$jm" run llama --text "$work/tokens.bin" --layers 1 --hidden 32 --heads 4 --kv-heads 2 --ffn 64 --vocab 6 --context 64 --tied yes --device ref \
	--precision f32 --batch 2 --seq 16 --warmup 0 --steps 2 --save "$work/net"
"$jm" run serve --from "$work/net" --text "$work/prompts" --answers "$work/answers" --device ref --precision f32 \
	--output-tokens 8 --requests 2 --warmup 0 --steps 10
cat "$work/answers"
