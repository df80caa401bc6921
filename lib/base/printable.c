/* SPDX-License-Identifier: Apache-2.0 */
#include "base/printable.h"

#include <stdbool.h>
#include <stdio.h>

/* Bytes of the printable UTF-8 character at s; 0 when there is none. */
static size_t character(const unsigned char *s)
{
	size_t n = s[0] < 0x80 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;

	if (s[0] < 0x20 || s[0] == 0x7f || (s[0] >= 0x80 && s[0] < 0xc2) || s[0] > 0xf4)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	/* control characters of ISO 6429, which terminals obey as well (U+009B is CSI); longer than
	 * needed, surrogates, beyond the last code point */
	if ((s[0] == 0xc2 && s[1] < 0xa0) || (s[0] == 0xe0 && s[1] < 0xa0) ||
		(s[0] == 0xed && s[1] >= 0xa0) || (s[0] == 0xf0 && s[1] < 0x90) ||
		(s[0] == 0xf4 && s[1] >= 0x90))
		return 0;
	return n;
}

/* Names of files and what others wrote come with any bytes; terminals and JSON take only text. */
static void tame(char *text, bool lines)
{
	for (size_t n; *text; text += n) {
		n = lines && *text == '\n' ? 1 : character((const unsigned char *)text);
		if (!n) {
			*text = '?';
			n = 1;
		}
	}
}

void jm_text_tame(char *text)
{
	tame(text, false);
}

void jm_text_tame_lines(char *text)
{
	tame(text, true);
}

void jm_text_shorten(char *text, size_t size)
{
	size_t end = size > 4 ? size - 4 : 0;

	while (end && ((unsigned char)text[end] & 0xc0) == 0x80)
		end--;
	snprintf(text + end, size - end, "...");
}
