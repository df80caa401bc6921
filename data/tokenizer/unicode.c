/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer/unicode.h"

#include "data/tokenizer/utf8.h"

static bool is_space(uint32_t c)
{
	return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
	       (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
	       c == 0x205f || c == 0x3000;
}

/* Where the last character of a text begins. */
static size_t last_at(const char *text, size_t n)
{
	size_t at = n - 1;

	while (at && ((unsigned char)text[at] & 0xc0) == 0x80)
		at--;
	return at;
}

size_t jm__spaces_at_start(const char *text, size_t n)
{
	size_t at = 0;

	while (at < n && is_space(jm__utf8_get(text + at)))
		at += jm__utf8_bytes((unsigned char)text[at]);
	return at;
}

size_t jm__spaces_at_end(const char *text, size_t n)
{
	size_t end = n;

	while (end && is_space(jm__utf8_get(text + last_at(text, end))))
		end = last_at(text, end);
	return n - end;
}

static bool is_word(uint32_t c)
{
	size_t low = 0, high = jm__n_word;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (jm__word_rows[middle].to < c)
			low = middle + 1;
		else
			high = middle;
	}
	return low < jm__n_word && jm__word_rows[low].from <= c;
}

bool jm__starts_with_word(const char *text, size_t n)
{
	return n && is_word(jm__utf8_get(text));
}

bool jm__ends_with_word(const char *text, size_t n)
{
	return n && is_word(jm__utf8_get(text + last_at(text, n)));
}

static const struct jm__lower_row *lower_of(uint32_t c)
{
	size_t low = 0, high = jm__n_lower;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (jm__lower_rows[middle].code < c)
			low = middle + 1;
		else
			high = middle;
	}
	return low < jm__n_lower && jm__lower_rows[low].code == c ? &jm__lower_rows[low] : NULL;
}

static size_t put_lower(char *to, uint32_t c)
{
	const struct jm__lower_row *row = c < 0x80 ? NULL : lower_of(c);
	size_t n;

	if (c >= 'A' && c <= 'Z')
		c += 'a' - 'A';
	n = jm__utf8_put(to, row ? row->lower : c);
	return row && row->second ? n + jm__utf8_put(to + n, row->second) : n;
}

/* ASCII in lower case; returns how many bytes there were. */
static size_t lower_ascii(const char *text, size_t n, char *to)
{
	size_t i;

	for (i = 0; i < n && !((unsigned char)text[i] & 0x80); i++)
		to[i] = (char)(text[i] + (text[i] >= 'A' && text[i] <= 'Z' ? 'a' - 'A' : 0));
	return i;
}

bool jm__lower(const char *text, size_t n, struct jm_bytes *ret)
{
	/* a character of 2 bytes becomes 3 at most */
	if (!jm__bytes_reserve(ret, 2 * n + 8))
		return false;
	for (size_t at = 0; at < n;) {
		size_t ascii = lower_ascii(text + at, n - at, ret->at + ret->n);

		ret->n += ascii;
		at += ascii;
		if (at == n)
			break;
		ret->n += put_lower(ret->at + ret->n, jm__utf8_get(text + at));
		at += jm__utf8_bytes((unsigned char)text[at]);
	}
	return true;
}
