#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# weights.sh [JOULEMARK]: a network is trained and saved, learns other classes with frozen layers, and goes on behind a kill;
# last, the mean of the parameters over the steps is saved.
# prints: trained +195
# prints: frozen +[0-9.]+ k$
# prints: note: The last layer is new: the weights have 5 classes, the network 3.
# prints: Continues behind step 20 of checkpoint
# prints: steady +[0-9.]+ +[0-9.]+ .* 40
# prints: The weights after step 10 are in .*/mean
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-weights.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # leaves nothing behind
network="resnet --layers 10 --hidden 8 --image 32"
top="--freeze conv1*,bn1*,layer*" # all but the last layer

set -f # patterns are for joulemark
"$jm" run $network --classes 5 --device cpu --batch 4 --warmup 0 --steps 10 --source estimate --save "$work/net.safetensors" 2>&1
"$jm" describe $network --classes 3 $top --device cpu
"$jm" run $network --classes 3 $top --device cpu --batch 4 --warmup 0 --steps 20 --source estimate \
	--from "$work/net.safetensors" --checkpoint "$work/checkpoint" --checkpoint-every 10 2>&1
"$jm" run $network --classes 3 $top --device cpu --batch 4 --warmup 0 --steps 10 --source estimate \
	--continue "$work/checkpoint" 2>&1
"$jm" run $network --classes 5 --device cpu --batch 4 --warmup 0 --steps 10 --source estimate --ema 0.9 --save "$work/mean.safetensors" 2>&1
