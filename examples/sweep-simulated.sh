#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sweep-simulated.sh [JOULEMARK]: which power cap is best for each of these three nodes? All of them are simulated
# (docs/simulation.md), in simulated time: it takes seconds and needs no GPU.
# prints: simulated mi300x(.*\n)*Best setting by one metric alone
# prints: violated: the device took
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-sweep.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # the nodes' registers; leaves nothing behind

for gpu in h100 h200 mi300x; do
	echo "--- four simulated $gpu, LLaMA 3 8B inference"
	"$jm" run sim --device "sim:${gpu}x4" --response llama3-8b-infer \
		--set gpu.power=200:700+100W --repeat 3 --store "$work/$gpu.db"
done
