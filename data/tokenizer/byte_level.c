/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer/byte_level.h"

#include <stdbool.h>

/* Latin-1: no controls, no spaces, no soft hyphen. */
static bool is_printable(uint32_t byte)
{
	return (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte <= 0xff && byte != 0xad);
}

uint32_t jm__byte_char(unsigned char byte)
{
	uint32_t code = 0x100;

	if (is_printable(byte))
		return byte;
	for (uint32_t b = 0; b < byte; b++)
		code += !is_printable(b);
	return code;
}

int jm__byte_of_char(uint32_t code)
{
	uint32_t left = code - 0x100;

	if (code < 0x100)
		return is_printable(code) ? (int)code : -1;
	for (uint32_t b = 0; b < 0x100; b++)
		if (!is_printable(b) && left-- == 0)
			return (int)b;
	return -1;
}
