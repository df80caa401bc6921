#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tune.sh [JOULEMARK]: the power cap with the least energy x time per token of a training, found while it runs and held until
# it ends. The node is simulated (docs/simulation.md), but in real time: it takes 25 s and needs no GPU. On a real machine:
# joulemark tune -- python train.py
# prints: Tuned +gpu\.power of 1 device for the least edp
# prints: held .*found
# prints: search +[0-9]+ visits
# prints: Budget +1600 W, equal
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-tune.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # the node's registers; leaves nothing behind

"$jm" tune --device sim:h100x1 --window 0.4s --within 12s -- \
	"$jm" run sim --device sim:h100x1 --response llama3-8b-train --real-time --seconds 20 --step-items 512 2>&1

# Four GPUs may use 1600 W together: what their limits add up to is never above that.
"$jm" tune --device sim:h100x4 --budget 1600W --share equal -- \
	"$jm" run sim --device sim:h100x4 --response llama3-8b-train --real-time --seconds 2 --step-items 512 2>&1
