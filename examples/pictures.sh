#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pictures.sh [JOULEMARK]: from a folder of pictures (Debian's dataset-fashion-mnist) to the joules of each epoch.
# prints: pictures +10,000
# prints: classes +10
# prints: After step 20: held-out loss [0-9.]+, [0-9]+ of 10000 right
# prints: epoch 2 +[0-9.]+ +[0-9.]+
# prints: ^0\.[0-9]+
# prints: A top1 of 0.2 was reached after
set -eu
jm=${1:-joulemark}
pictures=${PICTURES:-/usr/share/datasets/fashion-mnist}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-pictures.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # leaves nothing behind
network="resnet --layers 10 --hidden 8 --image 32 --batch 64 --device cpu"

"$jm" data --held-out "$pictures"
# epochs of 10 steps; without --epoch-steps they have all pictures. The training may end once 20 % of the answers are right
"$jm" run $network --data "$pictures" --eval-data "$pictures" --epochs 2 --epoch-steps 10 --lr 0.01 --source estimate \
	--eval-every 20 --until top1=0.2 --store "$work/pictures.db" --save "$work/net.safetensors" 2>&1
"$jm" report "$work/pictures.db"
"$jm" query --format csv "$work/pictures.db" "SELECT json_extract(record, '$.evaluations[#-1].accuracy') AS top1 FROM records"
