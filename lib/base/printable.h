/* SPDX-License-Identifier: Apache-2.0 */
/* Text that people and JSON can read. */
#ifndef JM_PRINTABLE_H
#define JM_PRINTABLE_H

#include <stddef.h>

/* Makes printable UTF-8 of any bytes, in place: '?' for what is none. */
void jm_text_tame(char *text);
/* The same, but for the ends of lines, which stay. */
void jm_text_tame_lines(char *text);
/* Text that filled these bytes and had more: ends it with "..." between two characters. */
void jm_text_shorten(char *text, size_t size);

#endif
