# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of data/tokenizer/unicode.h from Python's copy of the Unicode Character Database.

unicode_tables.py FILE
"""
import sys
import unicodedata

CODES = [c for c in range(0x110000) if not 0xd800 <= c < 0xe000]
HANGUL = range(0xac00, 0xd7a4)  # computed, see data/tokenizer/nfc.c
# Marks of Unicode 10 to 14 and the one composite: normal form C of the library `tokenizers` is that of Unicode 9, where they do
# not move and do not compose. First and last of each range.
LATER = [int(x, 16) for x in """7fd 7fd 898 89f 8ca 8d3 9fe 9fe c3c c3c d3b d3c eba eba 1715 1715 1abf 1ace 1df6 1dfa a82c a82c
10d24 10d27 10eab 10eac 10f46 10f50 10f82 10f85 11070 11070 1133b 1133b 1145e 1145e 11839 1183a 11938 11938 1193d 1193e 11943 11943
119e0 119e0 11a34 11a34 11a47 11a47 11a99 11a99 11d42 11d42 11d44 11d45 11d97 11d97 16ff0 16ff1 1e130 1e136 1e2ae 1e2ae
1e2ec 1e2ef""".split()]
KNOWN = set(CODES).difference(*(range(first, last + 1) for first, last in zip(LATER[::2], LATER[1::2])))


def lower():
    for c in CODES:
        text = chr(c).lower()
        if text != chr(c):
            assert len(text) <= 2
            yield c, ord(text[0]), ord(text[1]) if len(text) > 1 else 0


def decomposed():
    for c in sorted(KNOWN):
        text = unicodedata.normalize("NFD", chr(c))
        if text != chr(c) and c not in HANGUL:
            yield c, [ord(x) for x in text]


def composed():
    """Pairs that normal form C composes: what decomposes to two and comes back."""
    for c in sorted(KNOWN):
        mapping = unicodedata.decomposition(chr(c)).split()
        if len(mapping) == 2 and not mapping[0].startswith("<") and unicodedata.normalize("NFC", chr(c)) == chr(c):
            yield int(mapping[0], 16), int(mapping[1], 16), c


def is_word(c):
    """\\w of Unicode's regular expressions (UTS 18), near enough: letters, marks, digits, connectors, joiners."""
    kind = unicodedata.category(chr(c))
    return kind[0] in "LM" or kind in ("Nd", "Nl", "Pc") or c in (0x200c, 0x200d) or 0x24b6 <= c <= 0x24e9


def ranges(test):
    start = None
    for c in range(0x110001):
        good = c < 0x110000 and test(c)
        if good and start is None:
            start = c
        if not good and start is not None:
            yield start, c - 1
            start = None


def table(out, kind, name, rows):
    rows = list(rows)
    print(f"const struct jm__{kind}_row jm__{name}_rows[] = {{", file=out)
    for row in rows:
        print("\t{" + ", ".join(f"{x:#x}" for x in row) + "},", file=out)
    print(f"}};\nconst size_t jm__n_{name} = {len(rows)};\n", file=out)


def main():
    with open(sys.argv[1], "w", encoding="ascii") as out:
        print(f'/* Made by unicode_tables.py from Unicode {unicodedata.unidata_version}. */\n#include "data/tokenizer/unicode.h"\n', file=out)
        table(out, "lower", "lower", lower())
        rows, codes = [], []
        for c, to in decomposed():
            rows.append((c, len(codes), len(to)))
            codes += to
        table(out, "decomposed", "decomposed", rows)
        print("const uint32_t jm__decomposed[] = {", ", ".join(f"{c:#x}" for c in codes), "};\n", file=out)
        table(out, "class", "class", ((c, unicodedata.combining(chr(c))) for c in sorted(KNOWN) if unicodedata.combining(chr(c))))
        table(out, "composed", "composed", sorted(composed()))
        table(out, "range", "word", ranges(is_word))


if __name__ == "__main__":
    main()
