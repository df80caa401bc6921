#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compare-commands.sh [JOULEMARK]: which of two commands takes less time and energy, as one would ask `hyperfine` or
# `perf stat -r`. Energy is an estimate from processor time ('estimate'), so that this runs everywhere; where there are
# sensors, omit --source.
# prints: A: gzip -9 -k -f
# prints: time +.* m?s ± .* m?s
# prints: B / A +[0-9.]+
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-compare.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # leaves nothing behind
seq 2000000 >"$work/numbers"

"$jm" measure --source estimate --repeat 3 --warmup 1 --compare "gzip -1 -k -f $work/numbers" \
	-- gzip -9 -k -f "$work/numbers" 2>&1
