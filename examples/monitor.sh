#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# monitor.sh [JOULEMARK]: what a user of nvidia-smi, nvtop or Grafana reads while work runs. 'joulemark top' shows the same
# on the whole terminal; Prometheus scrapes what 'export' answers, and Grafana shows it (examples/grafana-dashboard.json).
# Here the node is simulated.
# prints: time +sum W +sum J +GPU 0 W +GPU 0 MHz +GPU 1 W
# prints: [0-9:]{8} +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9]+ +[0-9.]+
# prints: watts of the node: [0-9]+
# prints: joulemark_power_watts.*label="GPU 1 simulated H100 94 GB".*origin="simulated".* [0-9.]+
# prints: joulemark_energy_joules_total.*label="GPU 0 simulated H100 94 GB".* [0-9.]+
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-monitor.XXXXXX")
export JM_STATE="$work" # leaves nothing behind
exporter=
trap 'test -z "$exporter" || kill "$exporter"; rm -rf "$work"' EXIT

"$jm" watch --device sim:h100x2 --with clock --for 2s             # nvidia-smi dmon
"$jm" watch --device sim:h100x2 --json --for 1s >"$work/watts.json" # nvidia-smi --query-gpu=power.draw --format=csv -l 1
python3 - "$work/watts.json" <<'END'
import json, sys
line = open(sys.argv[1]).readline()
print("watts of the node: %.0f" % json.loads(line)["total"]["watts_simulated"])
END

"$jm" export --device sim:h100x2 --port 0 >"$work/address" & # it prints its address when it is ready
exporter=$!
python3 - "$work/address" <<'END'
import sys, time, urllib.request
end = time.monotonic() + 60
text = ""
while "joulemark_energy_joules_total{" not in text and time.monotonic() < end:
    time.sleep(0.1)
    address = open(sys.argv[1]).read().strip()
    text = urllib.request.urlopen(address).read().decode() if address.endswith("/metrics") else ""
print("\n".join(line for line in text.splitlines() if line.startswith("joulemark_")))
END
