#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# demo.sh JOULEMARK [DEVICE]: the main job in a few minutes. Trains a small GPT on English text on this
# machine, then sweeps the power cap of a node - a simulated one, or DEVICE - and writes demo.html.
set -eu
jm=$1
device=${2:-sim:h100x4}
root=$(dirname "$0")/..
out=${DEMO_OUT:-demo}
state=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-demo.XXXXXX")
trap 'rm -rf "$state"' EXIT
trap 'exit 130' INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

# The Jargon File, real English prose; containers often come without /usr/share/doc
text=$state/text
if ! gzip -dc /usr/share/doc/jargon-text/jargon.txt.gz >"$text" 2>/dev/null; then
	cat /usr/share/common-licenses/GPL-[123] >"$text"
fi

rm -f "$out.db" "$out.db-wal" "$out.db-shm" "$out.html"

say "1. What can be measured here"
"$jm" doctor || true

say "2. A small GPT learns English on this machine, measured with whatever the machine has"
"$jm" run gpt --layers 4 --heads 4 --hidden 128 --ffn 512 --context 128 --batch 8 --seq 128 --steps 60 \
	--device cpu --text "$text" --store "$out.db"

case $device in
sim:*)
	say "3. The power cap of a simulated node ($device), in simulated time"
	"$jm" run sim --device "$device" --response llama3-8b-train \
		--set gpu.power=200:700+100W --repeat 3 --store "$out.db"
	;;
*)
	say "3. The power cap of $device"
	"$jm" run gpt-117m --device "$device" --set gpu.power=200:700+100W --repeat 3 --store "$out.db"
	;;
esac

say "4. The report"
"$jm" report "$out.db"
"$jm" report "$out.db" --format html --output "$out.html"
echo "The page is $(cd "$(dirname "$out")" && pwd)/$(basename "$out").html"
