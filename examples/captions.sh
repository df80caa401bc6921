#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# captions.sh [JOULEMARK]: pictures with captions, in the two forms that are written most often, and what is missing in one.
# prints: fields +image, caption
# prints: pictures +3
# prints: caption +a grey square
# prints: captions +4
# prints: pictures without a caption: 1, the first one 2.jpg
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-captions.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # leaves nothing behind

for i in 0 1 2; do # a picture of 8 x 8 pixels
	{ printf 'P5 8 8 255\n'; printf 'ab%062d' "$i"; } | cjpeg -grayscale >"$work/$i.jpg"
	echo "a grey square, number $i" >"$work/$i.txt"
done
"$jm" data "$work"

# the form of Hugging Face's imagefolder; a picture may have several captions
cat >"$work/metadata.jsonl" <<'END'
{"file_name": "0.jpg", "text": "a grey square"}
{"file_name": "1.jpg", "text": ["another one", "a square of eight pixels"]}
{"file_name": "2.jpg", "text": "the last one"}
END
"$jm" data "$work"

sed -i '$d' "$work/metadata.jsonl"
"$jm" data "$work" 2>&1 || echo "exit status $?"
