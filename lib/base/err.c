/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: a code and one sentence in the caller's place. */
#include "meter/meter.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Bytes of the printable UTF-8 character at s; 0 when there is none. */
static size_t character(const unsigned char *s)
{
	size_t n = s[0] < 0x80 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;

	if (s[0] < 0x20 || s[0] == 0x7f || (s[0] >= 0x80 && s[0] < 0xc2) || s[0] > 0xf4)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	/* longer than needed, surrogates, beyond the last code point */
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
		(s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90))
		return 0;
	return n;
}

/* Names of files and what others wrote come with any bytes; terminals and JSON take only text. */
void jm_text_tame(char *text)
{
	for (size_t n; *text; text += n) {
		n = character((const unsigned char *)text);
		if (!n) {
			*text = '?';
			n = 1;
		}
	}
}

void jm_text_shorten(char *text, size_t size)
{
	size_t end = size > 4 ? size - 4 : 0;

	while (end && ((unsigned char)text[end] & 0xc0) == 0x80)
		end--;
	snprintf(text + end, size - end, "...");
}

#undef jm_err_set
int jm_err_set(struct jm_err *err, int code, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (!err || err->code)
		return code;
	err->code = code;
	va_start(ap, fmt);
	n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	if (n >= (int)sizeof(err->text))
		jm_text_shorten(err->text, sizeof(err->text));
	jm_text_tame(err->text);
	return code;
}

const char *jm_err_name(int code)
{
	switch (code) {
	case JM_OK:
		return "no error";
#define X(name, text)                                                                              \
	case JM_E##name:                                                                           \
		return text;
		JM_ERRORS(X)
#undef X
	default:
		return "unknown error";
	}
}
