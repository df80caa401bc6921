#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench.sh BUILD [NAME...]: the speed figures, one after the other; each prints its own table. They need a
# machine without other load and some minutes in total.
set -u
build=$1
shift
here=$(dirname "$0")/..
status=0
ran=

bench() { # NAME COMMAND...
	name=$1
	shift
	case " $wanted " in "  " | *" $name "*) ;; *) return ;; esac
	ran=yes
	echo "== $name"
	"$@" || {
		echo "bench: $name ended with status $?" >&2
		status=1
	}
}

wanted=$*
bench energy_accuracy "$build/bench/energy_accuracy"
bench energy_nvml /usr/bin/python3 "$here/bench/energy_nvml.py" "$build/joulemark" \
	"$build/tests/peers/libnvidia-ml-fake.so"
bench leases /usr/bin/python3 "$here/bench/leases.py" "$build"
bench python_region /usr/bin/python3 "$here/bench/python_region.py" --build "$build"
bench ranks /usr/bin/python3 "$here/bench/ranks.py" --program "$build/joulemark"
bench sampler_cost "$build/bench/sampler_cost"
bench sim_day "$build/bench/sim_day"
bench submit /usr/bin/python3 "$here/bench/submit.py" --program "$build/joulemark"
bench tuning /usr/bin/python3 "$here/bench/tuning.py" --build "$build" --rounds 8
# both belong to the cpu backend
[ ! -x "$build/bench/image_layouts" ] || bench image_layouts "$build/bench/image_layouts"
bench step /usr/bin/python3 "$here/bench/step.py"
[ -n "$ran" ] || {
	echo "bench: there is no '$wanted'; there are energy_accuracy energy_nvml leases python_region ranks sampler_cost sim_day submit tuning image_layouts step" >&2
	exit 2
}
exit $status
