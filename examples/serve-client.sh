#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# serve-client.sh [JOULEMARK]: a server of a small language model, with two replicas, is started and asked over HTTP, as
# any server that speaks OpenAI's /v1/completions, for answers of two lengths; it stops when all is measured.
# prints: ^2:4 +first token \(TTFT\) +[0-9.]+ +[0-9.]+ +[0-9.]+$
# prints: ^6:8 +first token \(TTFT\) +[0-9.]+ +[0-9.]+ +[0-9.]+$
# prints: ^setting +requests +goodput/s
# prints: ^servers started: 1$
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-serve-client.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # leaves nothing behind

# a port that nothing listens on
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >"$work/server.sh" <<SH
echo >>"$work/starts"
exec "$jm" run serve --model llama --layers 2 --hidden 64 --heads 4 --kv-heads 2 --context 128 --precision f32 \\
	--device ref --ranks 2 --threads 1 --running 2 --source null --listen 127.0.0.1:$port --seconds 3600
SH
"$jm" run serve-client --url "http://127.0.0.1:$port" --start "sh $work/server.sh" --vocab 256 --input-tokens 1:16 \
	--output-tokens 2:4,6:8 --arrival closed --running 4 --ttft 500ms --warmup 0 --seconds 2 --requests-csv "$work/requests.csv"
head -3 "$work"/requests.*.csv
echo "servers started: $(wc -l <"$work/starts")"
