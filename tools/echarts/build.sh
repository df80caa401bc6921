#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes report/page/echarts.min.js and report/page/echarts.LICENSE from the versions pinned in package.json and
# checked by package-lock.json. Needs npm and the network; only whoever changes the bundle runs this.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$here/../../report/page
cd "$here"

npm ci --no-audit --no-fund --loglevel=error
node_modules/.bin/esbuild entry.js --bundle --minify --format=iife --global-name=echarts \
	--target=es2018 --charset=ascii --legal-comments=none --outfile="$out/echarts.min.js"

part() { # FILE TITLE
	printf '%s\n\n' "==== $2"
	cat "$1"
	printf '\n'
}
{
	printf 'report/page/echarts.min.js is made by tools/echarts/build.sh from the following.\n\n'
	part node_modules/echarts/LICENSE "Apache ECharts: Apache License 2.0"
	part node_modules/echarts/NOTICE "Apache ECharts: NOTICE"
	part node_modules/echarts/licenses/LICENSE-d3 "d3, parts within ECharts: BSD 3-Clause"
	part node_modules/zrender/LICENSE "ZRender: BSD 3-Clause"
	part node_modules/tslib/LICENSE.txt "tslib: 0BSD"
} | tr -d '\r' >"$out/echarts.LICENSE"
wc -c "$out/echarts.min.js"
