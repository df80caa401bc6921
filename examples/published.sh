#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# published.sh [JOULEMARK]: training of ResNet-50 on this processor; below it, in a separate table, the figures that papers
# report for accelerators; then the ratios of both. vit-l16 and llama3-8b (--seq 512) work in the same way if there is
# enough memory.
# prints: resnet50 on cpu
# prints: arXiv
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-published.XXXXXX")
trap 'rm -rf "$work"' EXIT

"$jm" run resnet50 --device cpu --batch 2 --warmup 1 --steps 2 --store "$work/resnet50.db"
"$jm" report --published "$work/resnet50.db"
"$jm" compare --published "$work/resnet50.db"
