#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# buyer.sh [JOULEMARK]: a buyer compares two machines by the same work: the same plan runs on both, each writes a store,
# and 'compare' gives ratios with their interval. Both nodes are simulated (docs/simulation.md).
# prints: sim:h200x4
# prints: simulated
# prints: time +
# prints: energy +
# prints: A sim:h100x4 +B sim:h200x4
# prints: cost EUR/1e6
# prints: Cost: purchase of A 190000 EUR
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-buyer.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # the nodes' registers; leaves nothing behind

cat >"$work/offer.yaml" <<-EOF
	title: The work that the machine is bought for
	work: sim
	response: [resnet50, llama3-8b-train]
	repeat: 3
EOF
for gpu in h100 h200; do # on each machine
	"$jm" run "$work/offer.yaml" --device "sim:${gpu}x4" --store "$work/$gpu.db" --quiet >/dev/null
done
"$jm" compare --systems --sort efficiency "$work/h100.db" "$work/h200.db"
"$jm" compare "$work/h100.db" "$work/h200.db" --purchase 190000,235000 --years 5 --price 0.25 --currency EUR \
	--figures-from 'invented for this example'
"$jm" merge --help >/dev/null
