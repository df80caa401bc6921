/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer/utf8.h"

#include <string.h>

/* The limits of the second byte keep out long forms, surrogates and what is beyond U+10FFFF. */
static bool second_fits(unsigned char first, unsigned char second)
{
	unsigned char least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
	unsigned char most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;

	return second >= least && second <= most;
}

/* Bytes of the character that begins there, 1 to 4; 0 = none does, and *ret_bad bytes (1 to 3) are
 * one mistake. */
static size_t length_of(const char *text, size_t n, size_t *ret_bad)
{
	const unsigned char *at = (const unsigned char *)text;
	size_t length = jm__utf8_bytes(at[0]), i = 1;

	*ret_bad = 1;
	if (length == 1)
		return 1;
	if (at[0] < 0xc2 || at[0] > 0xf4)
		return 0;
	if (i < n && second_fits(at[0], at[1]))
		for (i = 2; i < length && i < n && (at[i] & 0xc0) == 0x80;)
			i++;
	*ret_bad = i;
	return i == length ? length : 0;
}

size_t jm__utf8_valid(const char *text, size_t n)
{
	size_t at = 0, length, bad;
	uint64_t eight;

	while (at < n) {
		for (; n - at >= 8; at += 8) {
			memcpy(&eight, text + at, 8);
			if (eight & UINT64_C(0x8080808080808080))
				break;
		}
		if (at == n)
			break;
		length = length_of(text + at, n - at, &bad);
		if (!length)
			return at;
		at += length;
	}
	return n;
}

bool jm__utf8_repair(struct jm_bytes *ret, const char *text, size_t n)
{
	size_t at = 0, bad;

	while (at < n) {
		size_t good = jm__utf8_valid(text + at, n - at);

		if (!jm__bytes_add(ret, text + at, good))
			return false;
		at += good;
		if (at == n)
			break;
		length_of(text + at, n - at, &bad);
		if (!jm__bytes_add(ret, JM__REPLACEMENT, 3))
			return false;
		at += bad;
	}
	return true;
}

uint32_t jm__utf8_get(const char *text)
{
	const unsigned char *at = (const unsigned char *)text;
	size_t n = jm__utf8_bytes(at[0]);
	uint32_t code = n == 1 ? at[0] : at[0] & (0x7fU >> n);

	for (size_t i = 1; i < n; i++)
		code = code << 6 | (at[i] & 0x3f);
	return code;
}

size_t jm__utf8_put(char *at, uint32_t code)
{
	size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	static const unsigned char mark[] = {0, 0, 0xc0, 0xe0, 0xf0};

	for (size_t i = n - 1; i > 0; i--, code >>= 6)
		at[i] = (char)(0x80 | (code & 0x3f));
	at[0] = (char)(mark[n] | code);
	return n;
}
