#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plan-simulated.sh [JOULEMARK]: the plans that repeat Table 1 of the capping paper and Tables 3 and 4 of the power-aware
# benchmark, on simulated nodes. The nodes are made from published curves: this tests the path from a plan to the tables
# and is no evidence for anything. docs/plans.md gives the error at a cap that the node was not made from.
# prints: measurements in all
# prints: Best setting by one metric alone\n  highest throughput
# prints: sim:h200x4
# prints: simulated \+ 100 W assumed
set -eu
jm=${1:-joulemark}
suites=$(dirname "$0")/../suites
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-plan.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # the nodes' registers; leaves nothing behind

for plan in capping power-aware; do
	"$jm" plan "$suites/$plan-simulated.yaml"
	"$jm" run "$suites/$plan-simulated.yaml" --store "$work/$plan.db" --quiet >"$work/$plan.txt"
	# the same command again has nothing to do
	"$jm" run "$suites/$plan-simulated.yaml" --store "$work/$plan.db" --quiet >"$work/again.txt"
	cmp "$work/$plan.txt" "$work/again.txt"
done
echo "--- capping, Table 1: best cap by each metric (simulated H100, not the paper's GPU)"
sed -n '/^Best setting/,$p' "$work/capping.txt"
echo "--- power-aware benchmark, Tables 3 and 4: throughput of the node by cap (simulated from these tables)"
"$jm" report "$work/power-aware.db" --format csv >"$work/power-aware.csv"
grep -c , "$work/power-aware.csv"
"$jm" report --add-watts 100 "$work/power-aware.db"
