/* SPDX-License-Identifier: Apache-2.0 */
/* Splits a text into words: each step splits what the one before gave, and the words of the last
 * one become tokens. */
#include "data/tokenizer/tokenizer_parts.h"

#include <string.h>

#include "data/tokenizer/utf8.h"

/* One text on its way. */
struct way {
	struct jm_tokenizer *t;
	struct jm_ids *ids;
	struct jm_err *err;
	bool first; /* no text was before it that it continues */
};

static int step(struct way *w, int number, const char *text, size_t n, bool begins);

static int no_memory(const struct way *w)
{
	return jm_err_set(
		w->err, JM_ENOMEM, "Out of memory for a text of tokenizer %s.", w->t->name);
}

/* ---- words ----------------------------------------------------------------------------------- */

static int encode_word(struct way *w, const char *word, size_t n)
{
	struct jm__word_cache *cache = &w->t->cache;
	size_t before = w->ids->n, n_ids;
	const int32_t *known;
	uint64_t hash;
	int32_t length = (int32_t)n;

	if (w->t->counts_words)
		return jm__ids_add(w->ids, &length, 1) ? 0 : no_memory(w);
	if (n > JM__WORD_MOST)
		return jm__bpe_encode(&w->t->bpe, word, n, w->ids) ? 0 : no_memory(w);
	hash = jm__word_hash(word, n);
	known = jm__word_cache_find(cache, word, n, hash, &n_ids);
	if (known)
		return jm__ids_add(w->ids, known, n_ids) ? 0 : no_memory(w);
	if (!jm__bpe_encode(&w->t->bpe, word, n, w->ids))
		return no_memory(w);
	jm__word_cache_add(cache, word, n, hash, w->ids->at + before, w->ids->n - before);
	return 0;
}

/* The end of the word that begins a text: where a mark of a space follows something else. */
static size_t end_at_mark(const char *text, size_t n)
{
	const char *at = text, *end = text + n;

	while (end - at >= 3 && !memcmp(at, JM__SPACE_MARK, 3))
		at += 3;
	while (at < end && (at = memchr(at, JM__SPACE_MARK[0], (size_t)(end - at)))) {
		if (end - at >= 3 && !memcmp(at, JM__SPACE_MARK, 3))
			return (size_t)(at - text);
		at++;
	}
	return n;
}

static int encode_words(struct way *w, const char *text, size_t n)
{
	int code = 0;

	if (!w->t->splits_at_marks)
		return encode_word(w, text, n);
	for (size_t at = 0, length; at < n && !code; at += length) {
		length = end_at_mark(text + at, n - at);
		code = encode_word(w, text + at, length);
	}
	return code;
}

/* ---- splitting ------------------------------------------------------------------------------- */

/* Parts of a text, of which neighbours are joined as the step demands. */
struct parts {
	struct way *way;
	const struct jm__split *split;
	int next; /* step */
	const char *text;
	bool begins;
	size_t start, end;	    /* of the part that waits */
	bool any, match, was_match; /* was_match: of the last part that was joined to it */
};

static int give_part(struct parts *p)
{
	bool wanted =
		p->any && p->end > p->start && !(p->split->behavior == JM__REMOVED && p->match);

	p->any = false;
	return wanted ? step(p->way, p->next, p->text + p->start, p->end - p->start,
				p->begins && !p->start)
		      : 0;
}

static bool joins(const struct parts *p, bool match)
{
	switch (p->split->behavior) {
	case JM__CONTIGUOUS:
		return match == p->was_match;
	case JM__WITH_PREVIOUS:
		return match && !p->was_match;
	case JM__WITH_NEXT:
		return !match && p->was_match;
	default:
		return false;
	}
}

static int add_part(struct parts *p, size_t start, size_t end, bool match)
{
	int code = 0;

	if (start == end)
		return 0;
	match = match != p->split->invert;
	if (p->any && joins(p, match)) {
		p->end = end;
	} else {
		code = give_part(p);
		p->start = start;
		p->end = end;
		p->match = match;
		p->any = true;
	}
	p->was_match = match;
	return code;
}

static int find_next(const struct jm__split *s, const char *text, size_t n, size_t at,
	size_t *start, size_t *end)
{
	const char *found;

	if (s->regex)
		return jm__regex_find(s->regex, text, n, at, start, end);
	found = s->find.n && at < n ? memmem(text + at, n - at, s->find.at, s->find.n) : NULL;
	if (!found)
		return 0;
	*start = (size_t)(found - text);
	*end = *start + s->find.n;
	return 1;
}

/* Steps over the character after an empty match. */
static size_t behind(const char *text, size_t n, size_t start, size_t end)
{
	if (end > start || end == n)
		return end + (end == start);
	return end + jm__utf8_bytes((unsigned char)text[end]);
}

static int split(struct way *w, int number, const char *text, size_t n, bool begins)
{
	const struct jm__split *s = &w->t->pre_tokenizer.steps[number];
	struct parts p = {.way = w, .split = s, .next = number + 1, .text = text, .begins = begins};
	size_t done = 0, start, end;
	int got = 1, code = 0;

	for (size_t at = 0; at <= n && got > 0 && !code; at = behind(text, n, start, end)) {
		got = find_next(s, text, n, at, &start, &end);
		if (got <= 0)
			break;
		code = add_part(&p, done, start, false);
		if (!code)
			code = add_part(&p, start, end, true);
		done = end;
	}
	if (got < 0)
		return jm_err_set(w->err, JM_EFORMAT,
			"A pattern of tokenizer %s took too many steps in a text of %zu bytes; "
			"split the text into shorter ones.",
			w->t->name, n);
	if (!code)
		code = add_part(&p, done, n, false);
	return code ? code : give_part(&p);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* The text with a space before it. */
static int prefix(struct way *w, struct jm__split *s, const char **text, size_t *n)
{
	s->room.n = 0;
	if (!jm__bytes_add(&s->room, " ", 1) || !jm__bytes_add(&s->room, *text, *n))
		return no_memory(w);
	*text = s->room.at;
	*n = s->room.n;
	return 0;
}

static int byte_level(struct way *w, int number, const char *text, size_t n, bool begins)
{
	struct jm__split *s = &w->t->pre_tokenizer.steps[number];
	int code = 0;

	if (s->prefix_space && text[0] != ' ' && !(begins && !w->first))
		code = prefix(w, s, &text, &n);
	if (code)
		return code;
	return s->regex ? split(w, number, text, n, begins) : step(w, number + 1, text, n, begins);
}

static bool mark_spaces(struct jm__split *s, const char *text, size_t n)
{
	for (size_t at = 0, length; at < n; at += length + 1) {
		const char *space = memchr(text + at, ' ', n - at);

		length = space ? (size_t)(space - text) - at : n - at;
		if (!jm__bytes_add(&s->room, text + at, length) ||
			(space && !jm__bytes_add(&s->room, s->find.at, s->find.n)))
			return false;
	}
	return true;
}

static bool begins_with(const char *text, size_t n, const struct jm_bytes *what)
{
	return n >= what->n && !memcmp(text, what->at, what->n);
}

static int metaspace(struct way *w, int number, const char *text, size_t n, bool begins)
{
	struct jm__split *s = &w->t->pre_tokenizer.steps[number];
	bool wanted = w->first || !begins;

	wanted = wanted && (s->prepend == JM__ALWAYS || (s->prepend == JM__FIRST && begins));
	wanted = wanted && text[0] != ' ' && !begins_with(text, n, &s->find);
	s->room.n = 0;
	if ((wanted && !jm__bytes_add(&s->room, s->find.at, s->find.n)) || !mark_spaces(s, text, n))
		return no_memory(w);
	return s->splits ? split(w, number, s->room.at, s->room.n, begins)
			 : step(w, number + 1, s->room.at, s->room.n, begins);
}

/* begins: the part is the begin of the whole text */
static int step(struct way *w, int number, const char *text, size_t n, bool begins)
{
	if (!n)
		return 0;
	if (number == w->t->pre_tokenizer.n)
		return encode_words(w, text, n);
	switch (w->t->pre_tokenizer.steps[number].kind) {
	case JM__SPLIT:
		return split(w, number, text, n, begins);
	case JM__BYTE_LEVEL:
		return byte_level(w, number, text, n, begins);
	case JM__METASPACE:
		return metaspace(w, number, text, n, begins);
	}
	return JM_EBUG;
}

int jm__tokenizer_words(struct jm_tokenizer *t, const char *text, size_t n, bool first, bool begins,
	struct jm_ids *ids, struct jm_err *err)
{
	struct way w = {t, ids, err, first};

	return step(&w, 0, text, n, begins);
}
