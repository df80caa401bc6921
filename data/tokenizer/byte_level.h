/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The printable character that stands for each byte in byte-level vocabularies: a printable byte of
 * Latin-1 for itself, the others from U+0100 on, in their order.
 */
#ifndef JM_BYTE_LEVEL_H
#define JM_BYTE_LEVEL_H

#include <stddef.h>
#include <stdint.h>

/* The character of a byte, U+0021 to U+0143. */
uint32_t jm__byte_char(unsigned char byte);
/* The byte of a character; -1 = it stands for none. */
int jm__byte_of_char(uint32_t code);

#endif
