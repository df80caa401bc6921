#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# coming-from.sh [JOULEMARK]: the first commands for users of jpwr, perf stat, nvidia-smi, Zeus and CodeCarbon; the line with
# '---' names the tool whose command is replaced (docs/coming-from.md). Needs NVIDIA GPUs and the right to set their caps;
# the tests use fake ones.
# needs: gpus
# prints: --- jpwr
# prints: pynvml:1 +[0-9.]+
# prints: --- perf stat
# prints: one run +mean ± sd
# prints: --- nvidia-smi
# prints: HBM3 +300 W +300 W +200 W(.*\n)*gpu.power +GPU 0 NVIDIA H100 80GB HBM3 +700 W +700 W
# prints: --- Zeus
# prints: epoch +[0-9.]+ .* 20.000
# prints: unchanged|700 W \*
# prints: --- CodeCarbon
# prints: Energy +[0-9.]+ [mk]?J .*measured
# prints: gCO2e
set -eu
jm=${1:-joulemark}
train="python3 $(dirname "$0")/train.py --epochs 1"
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-coming-from.XXXXXX")
trap 'rm -rf "$work"' EXIT

echo "--- jpwr --methods pynvml --df-out out --df-filetype csv ./train"
"$jm" jpwr --methods pynvml --df-out "$work/out" --df-filetype csv $train
echo "--- perf stat -r 3 ./train"
"$jm" measure --source nvml --repeat 3 $train 2>&1
echo "--- nvidia-smi -pl 300; ./train; nvidia-smi -pl 700"
"$jm" set gpu.power=300W -- "$jm" get
"$jm" get
echo "--- Zeus: monitor.begin_window('epoch'), monitor.end_window('epoch')"
"$jm" measure --source nvml -- sh -c "'$jm' mark epoch; $train; '$jm' mark end --items 20000" 2>&1
echo "--- Zeus: GlobalPowerLimitOptimizer"
"$jm" run --source nvml --set gpu.power=400W --repeat 2 --quiet -- $train
echo "--- CodeCarbon: codecarbon monitor -- python train.py"
"$jm" measure --source nvml --json "$work/train.json" $train 2>&1
"$jm" report --carbon 380 --figures-from 'grid average, 2024' --columns joules_per_item,carbon_g_per_million "$work/train.json"
