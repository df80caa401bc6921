/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens that are looked for in the text itself, such as <|endoftext|>. */
#include "data/tokenizer/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/unicode.h"

bool jm__added_append(struct jm__added_tokens *a, const struct jm__added *one)
{
	if (a->n == a->room) {
		size_t room = a->room ? 2 * a->room : 16;
		struct jm__added *at = realloc(a->at, room * sizeof(*at));

		if (!at)
			return false;
		a->at = at;
		a->room = room;
	}
	a->at[a->n++] = *one;
	return true;
}

/* Longest first; of equal length in the order of their bytes. */
static int by_length(const void *x, const void *y)
{
	const struct jm__added *a = x, *b = y;

	if (a->match.n != b->match.n)
		return a->match.n < b->match.n ? 1 : -1;
	return a->match.n ? memcmp(a->match.at, b->match.at, a->match.n) : 0;
}

void jm__added_prepare(struct jm__added_tokens *a)
{
	if (a->n)
		qsort(a->at, a->n, sizeof(*a->at), by_length);
	for (size_t i = 0; i < a->n; i++) {
		const struct jm__added *one = &a->at[i];

		if (!one->match.n)
			continue;
		a->any[one->normalized] = true;
		a->begins[one->normalized][(unsigned char)one->match.at[0]] = true;
	}
}

/* The longest token that begins there. */
static const struct jm__added *match_at(
	const struct jm__added_tokens *a, bool normalized, const char *text, size_t n)
{
	for (size_t i = 0; i < a->n; i++) {
		const struct jm__added *one = &a->at[i];

		if (one->normalized == normalized && one->match.n && one->match.n <= n &&
			!memcmp(one->match.at, text, one->match.n))
			return one;
	}
	return NULL;
}

static bool stands_alone(const char *text, size_t n, size_t start, size_t end)
{
	return !jm__ends_with_word(text, start) && !jm__starts_with_word(text + end, n - end);
}

const struct jm__added *jm__added_find(const struct jm__added_tokens *a, bool normalized,
	const char *text, size_t n, size_t taken, size_t *ret_start, size_t *ret_end)
{
	const struct jm__added *one;

	for (size_t at = taken; a->any[normalized] && at < n; at++) {
		size_t end;

		if (!a->begins[normalized][(unsigned char)text[at]])
			continue;
		one = match_at(a, normalized, text + at, n - at);
		if (!one)
			continue;
		end = at + one->match.n;
		if (one->single_word && !stands_alone(text, n, at, end)) {
			at = end - 1;
			continue;
		}
		*ret_start = at - (one->lstrip ? jm__spaces_at_end(text + taken, at - taken) : 0);
		*ret_end = end + (one->rstrip ? jm__spaces_at_start(text + end, n - end) : 0);
		return one;
	}
	return NULL;
}

void jm__added_done(struct jm__added_tokens *a)
{
	for (size_t i = 0; i < a->n; i++) {
		free(a->at[i].text.at);
		free(a->at[i].match.at);
	}
	free(a->at);
	jm__vocabulary_done(&a->names);
}
