#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# demo.sh JOULEMARK [DEVICE]: the main uses in three minutes. Trains a small GPT on English text on this
# machine, then sweeps the power cap of a simulated node (DEVICE, such as sim:h200x4), and writes demo.html.
# DEVICE=nvml sweeps the real GPUs: LOAD is the command that loads them, CAPS the caps to try.
set -eu
jm=$1
device=${2:-sim:h100x4}
out=${DEMO_OUT:-demo}
text=/usr/share/games/fortunes/literature

case $device in
sim:*) "$jm" get --control "$device" >/dev/null || exit 2 ;;
nvml*)
	if [ -z "${LOAD:-}" ]; then
		echo "demo: say what loads the GPUs: make demo DEVICE=nvml LOAD='python3 train.py' CAPS=300W,400W" >&2
		exit 2
	fi
	;;
*)
	echo "demo: DEVICE is sim:h100x4, sim:h200x4, sim:mi300xx4 or nvml, not '$device'" >&2
	exit 2
	;;
esac

if [ -t 1 ]; then
	say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
else
	say() { printf '\n%s\n' "$*"; }
fi

[ -r "$text" ] || text=/usr/share/common-licenses/GPL-3
rm -f "$out.db" "$out.db-wal" "$out.db-shm" "$out.html"

say "1. What can be measured here"
"$jm" doctor || true

say "2. A small GPT learns English on this machine, measured with whatever the machine has"
"$jm" run train --model gpt --layers 4 --hidden 128 --heads 4 --ffn 512 --vocab 256 --context 128 \
	--positions learned --batch 8 --text "$text" --device cpu --seconds "${DEMO_SECONDS:-30}" --store "$out.db"

case $device in
sim:*)
	say "3. The power cap of a simulated node ($device), in simulated time"
	"$jm" run sim --device "$device" --response llama3-8b-train \
		--set gpu.power=200:700+100W --repeat 3 --store "$out.db"
	;;
*)
	say "3. The power cap of the GPUs here while they run: $LOAD"
	"$jm" run --set "gpu.power=${CAPS:-300W,400W,500W}" --repeat 3 --store "$out.db" -- sh -c "$LOAD"
	;;
esac

say "4. The report"
"$jm" report "$out.db" --format html --output "$out.html"
