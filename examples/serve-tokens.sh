#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Joules per token of a serving loop, in three lines: those with `joulemark mark`. Here on a simulated GPU; for a real one,
# omit --source. Its output ends with the table of phases: J/item of "serve" is the energy per token.
# prints: Items +245 tokens
# prints: serve +[0-9.]+ .* 245 +
set -eu

if [ "${1:-}" != loop ]; then
	exec joulemark measure --source "${SOURCE:-sim:h100x1}" --unit token --json "${JSON:-/dev/null}" -- sh "$0" loop
fi

serve() { # stands for the server; prints how many tokens it generated
	sleep 0.05
	echo $((20 + $1 % 10))
}

joulemark mark serve
for request in 0 1 2 3 4 5 6 7 8 9; do
	joulemark mark serve --items "$(serve "$request")"
done
joulemark mark idle
