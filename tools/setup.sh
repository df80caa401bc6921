#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs missing packages with apt: setup.sh build | demo | check
set -eu

# a C compiler, the build, and the libraries joulemark links
build="gcc libc6-dev make meson ninja-build pkgconf python3-minimal
	libjansson-dev libpcre2-dev libsqlite3-dev libxxhash-dev libdnnl-dev libmodbus-dev libsnmp-dev
	libcurl4-openssl-dev libjpeg-dev libpng-dev zlib1g-dev libhdf5-dev libmicrohttpd-dev libyaml-dev libncurses-dev
	libhwloc-dev"
# the text that the demo's network learns
demo="fortunes-min"
# a cache, so that CUDA kernels are compiled once for all builds; the second compiler, its sanitizers and linters; test
# libraries; the independent implementation that the engine is compared with
check="ccache clang clang-format clang-tidy lld libclang-rt-14-dev libomp-14-dev universal-ctags
	snmpd openssl libcmocka-dev python3-pytest python3-pip python3-jsonschema python3-yaml python3-numpy python3-torch python3-torchvision
	libjpeg-turbo-progs dataset-fashion-mnist python3-pil libopenblas0-pthread python3-pandas python3-tables prometheus groff-base dpkg-dev
	openmpi-bin libopenmpi-dev iproute2 slurm-wlm munge jube"
# opens the report's page, in a third of the processor time that the package chromium takes; Ubuntu has neither as
# a package, and there those tests are skipped
if grep -qx 'ID=debian' /etc/os-release 2>/dev/null; then
	check="$check chromium-headless-shell"
fi

case ${1:-} in
build) want=$build ;;
demo) want="$build $demo" ;;
check) want="$build $demo $check" ;;
*)
	echo "usage: tools/setup.sh build|demo|check" >&2
	exit 2
	;;
esac

if ! command -v dpkg-query >/dev/null; then
	echo "setup: this is no Debian or Ubuntu, so nothing is installed; what is needed here is called there:" >&2
	echo "setup: $(echo $want)" >&2
	exit 0
fi

missing=
for package in $want; do
	dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
		missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
	as_root=
elif command -v sudo >/dev/null; then
	as_root=sudo
else
	echo "setup: these packages are missing and neither root nor sudo is at hand; have somebody run" >&2
	echo "setup:   apt-get install --no-install-recommends$missing" >&2
	exit 1
fi
echo "setup: installing$missing" >&2
# without a network the packages may still lie here
$as_root apt-get -q update >&2 || echo "setup: the lists of packages could not be renewed" >&2
$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends $missing >&2
