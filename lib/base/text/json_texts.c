/* SPDX-License-Identifier: Apache-2.0 */
#include "json_texts.h"

#include <stdlib.h>
#include <string.h>

#include "joulemark.h"

#define PIECE ((size_t)1 << 20) /* bytes that are read at a time */

/* Reads more behind what is there, and moves what was not given to the start. false: the file has
 * ended. */
static bool fill(struct jm_json_texts *t)
{
	size_t got, need = t->n_read - t->from + PIECE + 1;
	char *grown = t->read;

	if (t->ended)
		return false;
	if (t->from)
		memmove(t->read, t->read + t->from, t->n_read - t->from);
	t->n_read -= t->from;
	t->from = 0;
	if (need > t->room) {
		grown = realloc(t->read, 2 * need);
		t->room = grown ? 2 * need : t->room;
	}
	t->read = grown ? grown : t->read;
	t->why = grown ? NULL : "memory ran out";
	got = grown ? fread(t->read + t->n_read, 1, PIECE, t->f) : 0;
	t->n_read += got;
	t->ended = got < PIECE;
	return got;
}

/* Is there a byte, i bytes behind the next one? */
static inline bool has(struct jm_json_texts *t, size_t i)
{
	return t->from + i < t->n_read || (fill(t) && t->from + i < t->n_read);
}

static inline char byte(const struct jm_json_texts *t, size_t i)
{
	return t->read[t->from + i];
}

/* i: a quotation mark. Returns the offset behind the string. */
static size_t string_end(struct jm_json_texts *t, size_t i)
{
	for (i++; has(t, i); i++) {
		if (byte(t, i) == '"')
			return i + 1;
		i += byte(t, i) == '\\';
	}
	return t->n_read - t->from;
}

enum { PLAIN, QUOTE, OPENS, CLOSES, ENDS };

/* The length of the value that begins at the next byte. */
static size_t value_end(struct jm_json_texts *t)
{
	static const unsigned char kinds[256] = {['"'] = QUOTE,
		['{'] = OPENS,
		['['] = OPENS,
		['}'] = CLOSES,
		[']'] = CLOSES,
		[','] = ENDS,
		[' '] = ENDS,
		['\n'] = ENDS,
		['\t'] = ENDS,
		['\r'] = ENDS};
	size_t i = 0;
	int open = 0;

	while (has(t, i)) {
		unsigned char kind = kinds[(unsigned char)byte(t, i)];

		if (kind >= CLOSES && !open)
			return i;
		i = kind == QUOTE ? string_end(t, i) : i + 1;
		open += (kind == OPENS) - (kind == CLOSES);
		if (!open && (kind == QUOTE || kind == CLOSES))
			return i;
	}
	return i;
}

/* Moves over n bytes and counts their lines. */
static void pass(struct jm_json_texts *t, size_t n)
{
	const char *at = t->read + t->from, *end = at + n;

	while ((at = memchr(at, '\n', (size_t)(end - at)))) {
		t->line++;
		at++;
	}
	t->from += n;
}

/* The next byte that is not blank; EOF = there is none. */
static int next_byte(struct jm_json_texts *t)
{
	while (has(t, 0) && byte(t, 0) && strchr(" \n\t\r", byte(t, 0)))
		pass(t, 1);
	return has(t, 0) ? (unsigned char)byte(t, 0) : EOF;
}

static int wrong(struct jm_json_texts *t, const char *why)
{
	if (t->why)
		return JM_ENOMEM;
	t->why = why;
	return JM_EFORMAT;
}

static int take(struct jm_json_texts *t)
{
	size_t n = value_end(t);

	if (!n || t->why)
		return wrong(t, "a value expected");
	t->place = t->place == JM_JSON_OUTSIDE ? JM_JSON_OUTSIDE : JM_JSON_BEHIND;
	t->any = true;
	t->behind = byte(t, n);
	t->read[t->from + n] = '\0';
	t->text = t->read + t->from;
	t->n = n;
	return 1;
}

/* Where no list is open. */
static int outside(struct jm_json_texts *t, int c)
{
	if (c == EOF && t->any && !t->why)
		return 0;
	if (c == '{')
		return take(t);
	if (c != '[')
		return wrong(t, "'[' or '{' expected");
	pass(t, 1);
	t->any = true;
	t->place = JM_JSON_FIRST;
	return 1;
}

void jm_json_texts_init(struct jm_json_texts *t, FILE *f)
{
	*t = (struct jm_json_texts){.f = f, .line = 1};
}

int jm_json_texts_next(struct jm_json_texts *t)
{
	int code = 1;

	if (t->text) {
		t->read[t->from + t->n] = t->behind;
		pass(t, t->n);
	}
	t->text = NULL;
	while (code > 0 && !t->text) {
		int c = next_byte(t);

		if (t->place == JM_JSON_OUTSIDE) {
			code = outside(t, c);
		} else if (c == ']' && t->place != JM_JSON_ELEMENT) {
			pass(t, 1);
			t->place = JM_JSON_OUTSIDE;
		} else if (t->place != JM_JSON_BEHIND) {
			code = take(t);
		} else if (c == ',') {
			pass(t, 1);
			t->place = JM_JSON_ELEMENT;
		} else {
			code = wrong(t, "',' or ']' expected");
		}
	}
	return code;
}

void jm_json_texts_done(struct jm_json_texts *t)
{
	free(t->read);
	*t = (struct jm_json_texts){.f = NULL};
}
