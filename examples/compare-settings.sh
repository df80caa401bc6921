#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compare-settings.sh [JOULEMARK]: does a cap of 500 W save energy on this node, and what does it cost in time? The node
# is simulated (docs/simulation.md): it takes seconds and needs no GPU. Exits with 1 where the cap costs more than 15 %
# of time or saves less than 2 % of energy: CI can
# check the energy of a program in this way, with the stores of two versions in place of two settings.
# prints: simulated.* 5 pairs
# prints: energy .?J/token .* lower
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-compare.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # the node's registers; leaves nothing behind

"$jm" run sim --device sim:h100x4 --response llama3-8b-train --set gpu.power=500W --repeat 5 --store "$work/sweep.db"
"$jm" compare "$work/sweep.db:reference=yes" "$work/sweep.db:gpu.power=500W" --fail-if 'time>+15%,energy>-2%'
