#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# epochs.sh [JOULEMARK]: a training that prints its epochs is measured epoch by epoch, without a change of its program. It
# prints each epoch when it is over; a program that prints 'Epoch 1/3' when it begins needs no --phase-at.
# prints: ^  phase +s +([mk]?J|energy) +mean W +images +m?J/image
# prints: ^  Epoch 1 +[0-9.]+ .* 512 +[0-9]
# prints: ^  Epoch 3 +[0-9.]+ .* 512 +[0-9]
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-epochs.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # leaves nothing behind

cat >"$work/train.sh" <<'SH'
for epoch in 1 2 3; do
	sleep 0.5
	echo "Epoch $epoch: loss 0.$((9 - epoch)), 512 images"
done
SH
"$jm" measure --source sim:h100x1 --phase-regex 'Epoch (\d+)' --phase-at end --items-regex '(\d+) images' --items-kind amount \
	--unit image -- sh "$work/train.sh" 2>&1
