#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# operator.sh [JOULEMARK]: an operator of nodes with four GPUs asks which power cap costs at most 5 % of time, what it
# saves, and how many nodes a rack of 40 kW then feeds with a reserve of 27 %. The node is simulated (docs/simulation.md): it
# takes seconds and needs no GPU. On a real node: 'sudo joulemark run --set gpu.power=300:700+100W ... -- ./job'.
# prints: at most 5 % slower than the reference\n  600 W per GPU
# prints: Next: joulemark set --device sim:h100x4 gpu.power=600W
# prints: rack of 40,000 W with a reserve of 27 % at 600 W: by rated power\s+\(4,000 W\) 7 with
# prints: Nodes in 4 racks that share their power, each of 40,000 W
# prints: 29 \(28 if each
# prints: gpu.power of GPU 3 simulated H100 94 GB \(sim:h100x4/gpu3\): 700W -> 600W
# prints: sim:h100x4/gpu3: set by 'joulemark set'
# prints: GPU 3 simulated H100 94 GB +700 W +700 W
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-operator.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # the node's registers; leaves nothing behind

"$jm" run sim --device sim:h100x4 --response llama3-8b-train --set gpu.power=300:700+100W --repeat 3 \
	--store "$work/caps.db"
"$jm" report "$work/caps.db" --rack-power 40kW --rack-reserve 27% --rated-power 4kW --add-watts 800 --columns joules_per_item
"$jm" report "$work/caps.db" --rack-power 40kW --racks 4 --rack-reserve 27% --rated-power 4kW --add-watts 800
"$jm" report "$work/caps.db" --html "$work/caps.html" # to read and to pass on
"$jm" set --device sim:h100x4 --dry-run gpu.power=600W --width 200 # what would be written
"$jm" set --device sim:h100x4 --dry-run --json gpu.power=600W # the same for programs
"$jm" set --device sim:h100x4 gpu.power=600W          # until 'joulemark restore'
"$jm" status
"$jm" restore
"$jm" get --device sim:h100x4
