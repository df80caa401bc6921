/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of characters, from the tables that unicode_tables.py makes. All texts are valid
 * UTF-8. */
#ifndef JM_UNICODE_H
#define JM_UNICODE_H

#include "data/tokenizer/bytes.h"

/* White_Space: bytes of it at either end of a text. */
size_t jm__spaces_at_start(const char *text, size_t n);
size_t jm__spaces_at_end(const char *text, size_t n);
/* Is the first or last character a letter, a mark, a digit or a connector? An empty text has
 * none. */
bool jm__starts_with_word(const char *text, size_t n);
bool jm__ends_with_word(const char *text, size_t n);
/* Append the text in lower case, each character by itself, or in normal form C (canonical
 * composition). */
bool jm__lower(const char *text, size_t n, struct jm_bytes *ret);

/* Made by unicode_tables.py; sorted by the first member. */
struct jm__lower_row {
	uint32_t code, lower, second; /* second: 0 = the lower case is one character */
};
struct jm__decomposed_row {
	uint32_t code;
	uint16_t at, n; /* in jm__decomposed: to the end, in canonical order */
};
struct jm__class_row {
	uint32_t code, class; /* combining class, not 0 */
};
struct jm__composed_row {
	uint32_t first, second, code;
};
struct jm__range_row {
	uint32_t from, to;
};
extern const struct jm__lower_row jm__lower_rows[];
extern const struct jm__decomposed_row jm__decomposed_rows[];
extern const uint32_t jm__decomposed[];
extern const struct jm__class_row jm__class_rows[];
extern const struct jm__composed_row jm__composed_rows[];
extern const struct jm__range_row jm__word_rows[];
extern const size_t jm__n_lower, jm__n_decomposed, jm__n_class, jm__n_composed, jm__n_word;

#endif
