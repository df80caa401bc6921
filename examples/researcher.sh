#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# researcher.sh [JOULEMARK]: a researcher with 'python train.py' asks what it costs in total and
# for each point, and which learning rate is cheaper, without a change of train.py. Energy is an estimate from processor time
# ('estimate'), so that this runs everywhere; where there are sensors, omit --source.
# prints: epoch 3: loss 0\.0
# prints: energy.*estimated
# prints: J/point
# prints: rate +point/s
# prints: 0\.05
set -eu
jm=${1:-joulemark}
here=$(dirname "$0")
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-researcher.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # leaves nothing behind

"$jm" measure --source estimate --items-regex '([0-9]+) points' --items-kind amount --unit point python3 "$here/train.py" --epochs 3 2>&1

cat >"$work/rates.yaml" <<-EOF
	command: python3 $(realpath "$here")/train.py --rate {rate}
	variables: {rate: [0.05, 0.1]}
	items-regex: '([0-9]+) points'
	unit: point
	source: estimate
	repeat: 2
EOF
"$jm" run "$work/rates.yaml" --store "$work/rates.db"
