#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# served-tokens.sh [JOULEMARK]: who runs a server of a language model asks for joules per token, without touching it: the
# server's own counter of tokens is read while the machine is measured. The server here is a small script; of vLLM it is
# --items-url http://HOST:8000/metrics --items-metric vllm:generation_tokens_total.
# prints: ^joulemark: process [0-9]+
# prints: ^  Cost     [0-9.e-]+ EUR, [0-9.]+ EUR per million tokens; 0.25 EUR/kWh
# prints: ^  Carbon   [0-9.e-]+ gCO2e, [0-9.]+ gCO2e per million tokens
# prints: ^  Items    [0-9,]+ tokens, [0-9.,]+ tokens/s, [0-9.]+ [mkµ]?J/token simulated
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-served-tokens.XXXXXX")
export JM_STATE="$work" # leaves nothing behind

cat >"$work/server.py" <<'PY'
import http.server, sys, time
class Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'tokens_total{model="a"} %d\n' % (1000 * time.monotonic()))
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Metrics)
with open(sys.argv[1], "w") as port:
    port.write(str(server.server_port))
server.serve_forever()
PY
python3 "$work/server.py" "$work/port" &
server=$!
trap 'kill $server; rm -rf "$work"' EXIT
until [ -s "$work/port" ]; do sleep 0.1; done

"$jm" measure --pid $server --for 2s --source sim:h100x1 --items-url "http://127.0.0.1:$(cat "$work/port")/metrics" \
	--items-metric tokens_total --unit token --price 0.25 --currency EUR --carbon 380 --pue 1.2 \
	--figures-from 'an example, of no year' --json="$work/served.json" 2>&1
