#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench.sh BUILD [NAME...]: runs the speed figures one after the other; each prints its own table.
set -u
build=$1
shift
status=0
for program in "$build"/bench/*; do
	[ -f "$program" ] && [ -x "$program" ] || continue
	name=$(basename "$program")
	case $name in *.so | *.p) continue ;; esac
	case " $* " in "  " | *" $name "*) ;; *) continue ;; esac
	echo "== $name"
	"$program" || {
		echo "$name ended with status $?" >&2
		status=1
	}
done
exit $status
