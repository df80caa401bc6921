/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer/decoder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/utf8.h"

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Ends the last piece where the bytes end. */
static bool end_piece(struct jm__pieces *p)
{
	if (p->n == p->room) {
		size_t room = p->room ? 2 * p->room : 64, *ends;

		ends = realloc(p->ends, room * sizeof(*ends));
		if (!ends)
			return false;
		p->ends = ends;
		p->room = room;
	}
	p->ends[p->n++] = p->bytes.n;
	return true;
}

bool jm__pieces_add(struct jm__pieces *p, const char *at, size_t n)
{
	return jm__bytes_add(&p->bytes, at, n) && end_piece(p);
}

void jm__pieces_done(struct jm__pieces *p)
{
	free(p->bytes.at);
	free(p->ends);
	*p = (struct jm__pieces){0};
}

static const char *piece(const struct jm__pieces *p, size_t i, size_t *ret_n)
{
	size_t start = i ? p->ends[i - 1] : 0;

	*ret_n = p->ends[i] - start;
	return p->bytes.at + start;
}

/* ---- steps that change each piece by itself -------------------------------------------------- */

static bool replace(const struct jm_bytes *find, const struct jm_bytes *with, const char *at,
	size_t n, struct jm_bytes *to)
{
	const char *found;

	while (find->n && (found = memmem(at, n, find->at, find->n))) {
		size_t before = (size_t)(found - at);

		if (!jm__bytes_add(to, at, before) || !jm__bytes_add(to, with->at, with->n))
			return false;
		at += before + find->n;
		n -= before + find->n;
	}
	return jm__bytes_add(to, at, n);
}

static bool strip(const struct jm__decode *s, const char *at, size_t n, struct jm_bytes *to)
{
	const char *c = s->find.at;
	size_t length = s->find.n;

	for (size_t i = 0; i < s->start && n >= length && !memcmp(at, c, length); i++) {
		at += length;
		n -= length;
	}
	for (size_t i = 0; i < s->stop && n >= length && !memcmp(at + n - length, c, length); i++)
		n -= length;
	return jm__bytes_add(to, at, n);
}

static bool metaspace(
	const struct jm__decode *s, const char *at, size_t n, bool first, struct jm_bytes *to)
{
	const struct jm_bytes space = {(char[]){' '}, 1, 0}, none = {(char[]){0}, 0, 0};

	return replace(&s->find, first && s->drops_first ? &none : &space, at, n, to);
}

/* A space where words end, but not behind the last one. */
static bool suffix(
	const struct jm__decode *s, const char *at, size_t n, bool last, struct jm_bytes *to)
{
	const struct jm_bytes space = {(char[]){' '}, 1, 0}, none = {(char[]){0}, 0, 0};

	return replace(&s->find, last ? &none : &space, at, n, to);
}

static bool each(const struct jm__decode *s, const struct jm__pieces *p, struct jm__pieces *to)
{
	bool ok = true;

	for (size_t i = 0, n; ok && i < p->n; i++) {
		const char *at = piece(p, i, &n);

		if (s->kind == JM__DECODE_REPLACE)
			ok = replace(&s->find, &s->with, at, n, &to->bytes);
		else if (s->kind == JM__DECODE_STRIP)
			ok = strip(s, at, n, &to->bytes);
		else if (s->kind == JM__DECODE_METASPACE)
			ok = metaspace(s, at, n, !i, &to->bytes);
		else
			ok = suffix(s, at, n, i + 1 == p->n, &to->bytes);
		ok = ok && end_piece(to);
	}
	return ok;
}

/* ---- steps over all pieces ------------------------------------------------------------------- */

/* The bytes that the characters of a token stand for; a token with another character stands for
 * itself. */
static bool add_bytes_of(const char *at, size_t n, struct jm_bytes *to)
{
	size_t before = to->n;

	for (size_t i = 0; i < n; i += jm__utf8_bytes((unsigned char)at[i])) {
		int byte = jm__byte_of_char(jm__utf8_get(at + i));
		char c = (char)byte;

		if (byte < 0) {
			to->n = before;
			return jm__bytes_add(to, at, n);
		}
		if (!jm__bytes_add(to, &c, 1))
			return false;
	}
	return true;
}

static bool byte_level(const struct jm__pieces *p, struct jm__pieces *to)
{
	struct jm_bytes raw = {0};
	bool ok = true;

	for (size_t i = 0, n; ok && i < p->n; i++) {
		const char *at = piece(p, i, &n);

		ok = add_bytes_of(at, n, &raw);
	}
	ok = ok && jm__utf8_repair(&to->bytes, raw.at, raw.n) && end_piece(to);
	free(raw.at);
	return ok;
}

/* The byte of "<0x0A>"; -1 = the token is another one. */
static int byte_of(const char *at, size_t n)
{
	static const char digits[] = "0123456789abcdef0123456789ABCDEF";
	const char *high, *low;

	if (n != 6 || memcmp(at, "<0x", 3) != 0 || at[5] != '>' || !at[3] || !at[4])
		return -1;
	high = strchr(digits, at[3]);
	low = strchr(digits, at[4]);
	return high && low ? (int)((high - digits) % 16 * 16 + (low - digits) % 16) : -1;
}

/* The bytes that were collected: a text, or as many replacements. */
static bool give_bytes(struct jm_bytes *raw, struct jm__pieces *to)
{
	bool ok = true, good = jm__utf8_valid(raw->at, raw->n) == raw->n;

	if (raw->n && good)
		ok = jm__pieces_add(to, raw->at, raw->n);
	for (size_t i = 0; ok && !good && i < raw->n; i++)
		ok = jm__pieces_add(to, JM__REPLACEMENT, 3);
	raw->n = 0;
	return ok;
}

static bool byte_fallback(const struct jm__pieces *p, struct jm__pieces *to)
{
	struct jm_bytes raw = {0};
	bool ok = true;

	for (size_t i = 0, n; ok && i < p->n; i++) {
		const char *at = piece(p, i, &n);
		int byte = byte_of(at, n);
		char c = (char)byte;

		if (byte >= 0)
			ok = jm__bytes_add(&raw, &c, 1);
		else
			ok = give_bytes(&raw, to) && jm__pieces_add(to, at, n);
	}
	ok = ok && give_bytes(&raw, to);
	free(raw.at);
	return ok;
}

static bool run_step(const struct jm__decode *s, const struct jm__pieces *p, struct jm__pieces *to)
{
	switch (s->kind) {
	case JM__DECODE_BYTE_LEVEL:
		return byte_level(p, to);
	case JM__DECODE_BYTE_FALLBACK:
		return byte_fallback(p, to);
	case JM__DECODE_FUSE:
		return jm__pieces_add(to, p->bytes.at, p->bytes.n);
	default:
		return each(s, p, to);
	}
}

bool jm__decoder_run(const struct jm__decoder *d, struct jm__pieces *p)
{
	for (int i = 0; i < d->n; i++) {
		struct jm__pieces to = {0};
		bool ok = jm__bytes_reserve(&p->bytes, 1) && jm__bytes_reserve(&to.bytes, 1) &&
			  run_step(&d->steps[i], p, &to);

		jm__pieces_done(p);
		*p = to;
		if (!ok)
			return false;
	}
	return true;
}

void jm__decoder_done(struct jm__decoder *d)
{
	for (int i = 0; i < d->n; i++) {
		free(d->steps[i].find.at);
		free(d->steps[i].with.at);
	}
}
