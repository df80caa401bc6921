#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Budgets and bans. Each rule prints "ok RULE" or "not ok RULE: where"; the status is 1 when one fails.
set -u
shopt -s lastpipe # a rule at the end of a pipe sets the status
cd "$(dirname "$0")/.." || exit 2

status=0
# no git here: a tarball, or a clone that belongs to somebody else, is checked as well
files() {
	local names=(-false) pattern
	for pattern in "${@:-*}"; do names+=(-o -name "$pattern"); done
	find . \( -name .git -o -name 'build*' -o -name node_modules -o -name __pycache__ \) -type d -prune \
		-o -type f \( "${names[@]}" \) ! -name "demo.*" ! -name .git -print | sed 's,^\./,,' | sort
}
ours() { files '*.c' '*.h' | grep -v '^tools/echarts/'; }

# rule NAME: reads offending lines on stdin
rule() {
	local found
	found=$(cat)
	if [ -z "$found" ]; then
		echo "ok $1"
	else
		echo "not ok $1: $(echo "$found" | wc -l)"
		echo "$found" | head -40 | sed 's/^/    /'
		status=1
	fi
}

# code without comments and strings, as FILE:LINE:text
code() {
	/usr/bin/python3 - "$@" <<'PY'
import re, sys
for name in sys.argv[1:]:
    text = open(name, encoding="utf-8").read()
    blank = lambda m: re.sub(r"[^\n]", " ", m.group()) if m.group().startswith("/") else '""'
    text = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            print(f"{name}:{number}:{line}")
PY
}
all=$(ours)
# shellcheck disable=SC2086
code $all >"${TMPDIR:-/tmp}/lint.$$"
trap 'rm -f "${TMPDIR:-/tmp}/lint.$$"' EXIT
lines() { grep -E "$@" "${TMPDIR:-/tmp}/lint.$$"; }

# --- bans: no bound, no error, or a shell in between
lines '\b(sprintf|vsprintf|strcpy|strcat|stpcpy|gets|atoi|atol|atoll|atof|system|popen|tmpnam|tempnam|mktemp|alloca|strtok|getwd|rand|srand|localtime|gmtime|ctime|asctime)\(' |
	grep -vE '^(tests|bench)/.*\b(rand|srand|system|popen|atoi|atof)\(' | rule "banned functions"
lines '^[^:]*:[0-9]+:.*//' | rule "comments are /* */"

# --- width: clang-format checks *.c and *.h, but breaks the look of kernels; comments are not counted, as there.
# hopper.cuh with its long inline assembly is left out.
# shellcheck disable=SC2046
code $(files '*.cu' '*.cuh' | grep -vE '/hopper\.cuh$') | sed -E 's/^([^:]*:[0-9]+):/\1\n/' |
	awk 'NR % 2 {at = $0; next} {sub(/ +$/, ""); n = 0
		for (i = 1; i <= length($0); i++) n += substr($0, i, 1) == "\t" ? 8 - n % 8 : 1
		if (n > 100) print at ": " n " columns"}' |
	grep -vF -f tools/lint.allow | rule "kernels within 100 columns"

# Comments on lines of their own; those behind code are left to clang-format.
wide() {
	/usr/bin/python3 - "$@" <<'PY'
import re, sys
for name in sys.argv[1:]:
    lines = open(name, encoding="utf-8").read().expandtabs(8).split("\n")
    found = [i for i, line in enumerate(lines, 1) if re.match(r" *(/\*| \*)", line) and len(line.rstrip()) > 100]
    if found:
        print(f"{name}: comments of more than 100 columns: lines {found}")
PY
}
# shellcheck disable=SC2046
wide $(files '*.c' '*.h' '*.cu' '*.cuh' | grep -v '^tools/echarts/') | rule "comments within 100 columns"

# --- layers
lines '^(lib|sources|controls|workloads|sim|engine|backends|models|vendor|report)/' |
	grep -E '\b(printf|puts|putchar|perror|exit|_exit|abort|assert)\(' |
	grep -vF -f tools/lint.allow | rule "only cli/ prints and exits"
lines '^lib/' | grep -iE 'nvml|nvidia|cuda|amd|rocm|dnnl|intel' |
	grep -vF -f tools/lint.allow | rule "no vendor in lib/"
/usr/bin/python3 tools/rooms.py --build "${JM_BUILD:-build}" | rule "rooms: arrows run one way, no loops, no room without a row"
/usr/bin/python3 tools/rooms.py --build "${JM_BUILD:-build}" --picture-is docs/rooms.svg | rule "docs/rooms.svg is what the code is"
lines '\b(getenv)\(' | grep -vE '^(tests|bench|examples)/' | grep -vF -f tools/lint.allow |
	rule "the environment is read with secure_getenv"
# a generated list of members, not constructors; no global state that changes
lines '__attribute__\(\(constructor' | grep -vE '^tests/' | rule "no constructors"

# --- budgets
# shellcheck disable=SC2086
wc -l $all | awk '$2 != "total" && $1 > 600 {print $2 ": " $1 " lines"}' |
	grep -vF -f tools/lint.allow | rule "files under 600 lines"
# shellcheck disable=SC2086
ctags -x --c-kinds=f --_xformat='%{input} %{line} %{end} %{name}' $all 2>/dev/null |
	awk '$3 - $2 >= ($1 ~ "^tests/" ? 48 : 60) {print $1 ":" $2 ": " $4 " has " $3 - $2 + 1 " lines"}' |
	grep -vF -f tools/lint.allow | rule "functions under 60 lines, in tests at most 48"

files 'test_*.c' 'test_*.py' | grep '^tests/' | xargs dirname | sort | uniq -c | awk '$1 > 25 {print $2 ": " $1 " tests"}' |
	rule "at most 25 tests in a folder"
files 'test_*.c' 'test_*.py' | grep '^tests/' | sed 's,.*/,,' | sort | uniq -d | rule "no two tests have the same file name"
files 'test_*.py' | xargs grep -nE '^ *(from|import) test_' | rule "tests import no other test"

# --- the repository as others see it
echo "$all" | xargs grep -L 'SPDX-License-Identifier: Apache-2.0' | grep -vE '/data/|\.in$' |
	grep -vF -f tools/lint.allow | rule "a licence line on top"
files | grep -vE '^tools/lint|\.(png|gz|db|bin)$|^tools/echarts/|^report/.*\.(min\.)?js' |
	xargs grep -nIE '/(root|home|work)/[a-z]' |
	grep -vF -f tools/lint.allow | rule "no paths of the machine it was written on"
files | grep -vE '\.(png|gz|db|bin|svg|json|csv|supp)$|^tools/echarts/|^report/.*js$|Makefile|LICENSE|^tests/' |
	xargs grep -nIE '[[:space:]]+$' | grep -vF -f tools/lint.allow | rule "no blanks at line ends"

exit $status
