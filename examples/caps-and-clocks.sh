#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# caps-and-clocks.sh [JOULEMARK]: is a power cap or a lower clock better for a matrix product, a stream through the memory and an
# all-gather? The GPU is simulated (docs/simulation.md), in simulated time: it takes seconds. On a real one:
# joulemark run WORK --set gpu.power=... and, with --found gpu.clock=probe, --set gpu.clock=...
# prints: all-gather +350 W +unchanged
# prints: all-gather +unchanged +1700 MHz
# prints: response all-gather: gpu\.power unchanged, gpu\.clock 1700 MHz
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-clocks.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # the node's registers; leaves nothing behind

"$jm" run "$(dirname "$0")/../suites/caps-and-clocks-simulated.yaml" --store "$work/clocks.db"
