/* SPDX-License-Identifier: Apache-2.0 */
/* The steps that change a text before it is split. */
#include "data/tokenizer/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/unicode.h"
#include "data/tokenizer/nfc.h"
#include "data/tokenizer/utf8.h"

/* ---- replacing ------------------------------------------------------------------------------- */

/* The next match; its length is not 0. */
static int next_match(const struct jm__normal *s, const char *text, size_t n, size_t at,
	size_t *start, size_t *end)
{
	const char *found;
	int got;

	if (s->regex) {
		while ((got = jm__regex_find(s->regex, text, n, at, start, end)) > 0 &&
			*start == *end) {
			if (*end == n)
				return 0;
			at = *end + jm__utf8_bytes((unsigned char)text[*end]);
		}
		return got;
	}
	found = at < n ? memmem(text + at, n - at, s->find.at, s->find.n) : NULL;
	if (!found)
		return 0;
	*start = (size_t)(found - text);
	*end = *start + s->find.n;
	return 1;
}

static int replace(const struct jm__normal *s, const char *text, size_t n, struct jm_bytes *to)
{
	size_t at = 0, start, end;
	int got;

	while ((got = next_match(s, text, n, at, &start, &end)) > 0) {
		if (!jm__bytes_add(to, text + at, start - at) ||
			!jm__bytes_add(to, s->with.at, s->with.n))
			return JM_ENOMEM;
		at = end;
	}
	if (got < 0)
		return JM_EFORMAT;
	return jm__bytes_add(to, text + at, n - at) ? 0 : JM_ENOMEM;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int prepend(
	const struct jm__normal *s, const char *text, size_t n, bool first, struct jm_bytes *to)
{
	bool ok = !n || !first || jm__bytes_add(to, s->with.at, s->with.n);

	return ok && jm__bytes_add(to, text, n) ? 0 : JM_ENOMEM;
}

static int strip(const struct jm__normal *s, const char *text, size_t n, struct jm_bytes *to)
{
	size_t begin = s->left ? jm__spaces_at_start(text, n) : 0;
	size_t end = s->right ? jm__spaces_at_end(text + begin, n - begin) : 0;

	return jm__bytes_add(to, text + begin, n - begin - end) ? 0 : JM_ENOMEM;
}

static int run_step(
	const struct jm__normal *s, const char *text, size_t n, bool first, struct jm_bytes *to)
{
	to->n = 0;
	switch (s->kind) {
	case JM__PREPEND:
		return prepend(s, text, n, first, to);
	case JM__REPLACE:
		return replace(s, text, n, to);
	case JM__LOWERCASE:
		return jm__lower(text, n, to) ? 0 : JM_ENOMEM;
	case JM__NFC:
		return jm__nfc(text, n, to) ? 0 : JM_ENOMEM;
	case JM__STRIP_TEXT:
		return strip(s, text, n, to);
	}
	return JM_EBUG;
}

int jm__normalize(struct jm__normalizer *z, const char *text, size_t n, bool first,
	const char **ret, size_t *ret_n)
{
	for (int i = 0; i < z->n; i++) {
		struct jm_bytes *to = &z->room[i & 1];
		int code = jm__bytes_reserve(to, 1) ? run_step(&z->steps[i], text, n, first, to)
						    : JM_ENOMEM;

		if (code)
			return code;
		text = to->at;
		n = to->n;
	}
	*ret = text;
	*ret_n = n;
	return 0;
}

void jm__normalizer_done(struct jm__normalizer *z)
{
	for (int i = 0; i < z->n; i++) {
		jm__regex_free(z->steps[i].regex);
		free(z->steps[i].find.at);
		free(z->steps[i].with.at);
	}
	free(z->room[0].at);
	free(z->room[1].at);
}
