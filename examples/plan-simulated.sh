#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plan-simulated.sh [JOULEMARK]: the plans that repeat Table 1 of the capping paper and Tables 3 and 4 of the power-aware
# benchmark, on simulated nodes, and the share of concurrency of the component paper. The nodes are made from published
# curves: this tests the path from a plan to the tables and is no evidence for anything. docs/plans.md gives the error at a cap that the node was not made from.
# prints: measurements in all
# prints: Best setting by one metric alone\n  highest throughput
# prints: 170 +EDP +17.32 +170
# prints: sim:h200x4
# prints: simulated \+ 100 W assumed
# prints: seq 4096, batch 1, hidden 4096 .* 30\.27
# prints: Best setting: .*\n +300 W \(.* less energy, .*p99 within
set -eu
jm=${1:-joulemark}
suites=$(dirname "$0")/../suites
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-plan.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # the nodes' registers; leaves nothing behind

# run_twice PLAN [OPTION...]: the same command again has nothing to do
run_twice() {
	plan=$1
	shift
	"$jm" plan "$suites/$plan-simulated.yaml"
	"$jm" run "$suites/$plan-simulated.yaml" "$@" --store "$work/$plan.db" --quiet >"$work/$plan.txt"
	"$jm" run "$suites/$plan-simulated.yaml" "$@" --store "$work/$plan.db" --quiet >"$work/again.txt"
	cmp "$work/$plan.txt" "$work/again.txt"
}

run_twice capping --repeat 3 --set gpu.power=160W,170W,200W,260W # a part of it
run_twice power-aware
echo "--- capping, Table 1: best cap by each metric on 1, 2, 4 and 8 GPUs, the others idle; below it that of the paper"
sed -n '/^Best setting/,$p' "$work/capping.txt"
"$jm" report --published --k 1.5,2 "$work/capping.db" | sed -n '/^Published/,$p'
echo "--- power-aware benchmark, Tables 3 and 4: throughput of the node by cap (simulated from these tables)"
"$jm" report "$work/power-aware.db" --format csv >"$work/power-aware.csv"
grep -c , "$work/power-aware.csv"
"$jm" report --add-watts 100 "$work/power-aware.db"
echo "--- component power, Figure 7: where the time of a step goes (assumed rates, modelled overlap)"
"$jm" run "$suites/concurrency-simulated.yaml" --quiet | sed -n '/^Where the time/,/^$/p;/concurrent %/,/^$/p'
echo "--- serving: the best cap within bounds of latency, at one of the rates of the plan (assumed rates and power)"
"$jm" run "$suites/serving-simulated.yaml" --rate 20 --seconds 10 --warmup 2s --repeat 3 --set gpu.power=200W,300W,500W --quiet | sed -n '/^Best setting: /,/^$/p'
