/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 as the Unicode Standard defines it: shortest forms only, no surrogates, up to U+10FFFF. */
#ifndef JM_UTF8_H
#define JM_UTF8_H

#include "data/tokenizer/bytes.h"

#define JM__REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* The number of bytes at the begin that are UTF-8. */
size_t jm__utf8_valid(const char *text, size_t n);
/* Appends the text with U+FFFD for each mistake. */
bool jm__utf8_repair(struct jm_bytes *ret, const char *text, size_t n);

/* Of valid UTF-8: bytes of a character by its first byte, and its code point. */
static inline size_t jm__utf8_bytes(unsigned char first)
{
	return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}
uint32_t jm__utf8_get(const char *text);
/* Writes 1 to 4 bytes and returns how many. */
size_t jm__utf8_put(char *at, uint32_t code);

#endif
