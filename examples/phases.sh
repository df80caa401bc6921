#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# phases.sh [JOULEMARK]: a power cap for each class of the phases of a command (a product, a stream through the memory, an
# all-gather), found while it runs, and then compared with one cap and one clock for all in one plan. The GPU is simulated
# (docs/simulation.md), but in real time: it takes 20 s. On a real machine: joulemark tune --per-phase --policy plan.yaml -- CMD
# prints: Policy +gpu\.power of 1 device by phases for the least energy
# prints: phases +product \(compute\)
# prints: changes +[0-9]+ in all
# prints: product/gpu\.power@sim:h100x1/gpu0=
# prints: gpu\.clock@sim:h100x1/gpu0=1700MHz
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-phases.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # the node's registers; leaves nothing behind

cat >"$work/mix.sh" <<MIX
while :; do
	for phase in product stream all-gather; do
		"$jm" mark \$phase
		case \$phase in product) n=60 ;; stream) n=300 ;; *) n=30 ;; esac
		env -u JM_PROGRESS "$jm" run sim --device sim:h100x1 --response \$phase --real-time --warmup 0 \\
			--seconds 0.01 --source null --step-items \$n >"$work/log" 2>&1
		"$jm" mark \$phase --items 1
	done
	cycles=\$((\${cycles:-0} + 1))
	[ \$cycles -lt \${1:-1} ] || break
done
MIX
"$jm" tune --device sim:h100x1 --per-phase --knob gpu.power@0 --objective energy --policy "$work/policy.yaml" -- sh "$work/mix.sh" 22 2>&1
sed 's/"22"/"4"/' "$work/policy.yaml" >"$work/plan.yaml"
# one clock for all phases, beside the setting found, one cap and a cap for each
cat >>"$work/plan.yaml" <<PLAN
  - name: one-clock
    command: ["sh", "$work/mix.sh", "4"]
    set: {gpu.clock@0: 1700MHz}
PLAN
"$jm" run "$work/plan.yaml" --store "$work/policy.db" 2>&1
