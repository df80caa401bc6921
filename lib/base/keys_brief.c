/* SPDX-License-Identifier: Apache-2.0 */
/* JSON text without its details, before it is parsed: parsing takes a hundred times as long as this. */
#include "base/keys.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define DEEPEST 64

/* at: what is read next; out: what is kept is copied there. The text ends in NUL, where every step stops. */
struct brief {
	const char *at;
	char *out;
	int depth;
	bool bad;
};

static void skip_blanks(struct brief *b)
{
	while (*b->at == ' ' || *b->at == '\n' || *b->at == '\t' || *b->at == '\r')
		b->at++;
}

/* Behind the string that begins here. */
static const char *string_end(struct brief *b)
{
	const char *at = b->at + 1;

	while ((at = at + strcspn(at, "\"\\")), *at == '\\')
		at += at[1] ? 2 : 1;
	if (*at)
		return at + 1;
	b->bad = true;
	return at;
}

/* Behind a value of any kind: brackets outside of strings are counted. */
static void skip_value(struct brief *b)
{
	int open = 0;

	do {
		b->at += strcspn(b->at, open ? "\"{}[]" : "\"{}[],");
		if (*b->at == '"') {
			b->at = string_end(b);
		} else if (*b->at == '{' || *b->at == '[') {
			open++;
			b->at++;
		} else if (open && *b->at) {
			open--;
			b->at++;
		} else {
			b->bad = b->bad || open;
			return;
		}
	} while (open && !b->bad);
}

static void keep(struct brief *b, const char *from)
{
	size_t n = (size_t)(b->at - from);

	memcpy(b->out, from, n);
	b->out += n;
}

static const struct jm_key *find(const struct jm_key *keys, const char *name, size_t n)
{
	for (; keys && keys->name; keys++)
		if (!strncmp(keys->name, name, n) && !keys->name[n])
			return keys;
	return NULL;
}

static void put_object(struct brief *b, const struct jm_key *keys);

/* Elements that are objects of that table. */
static void put_list(struct brief *b, const struct jm_key *keys)
{
	do {
		const char *from;

		*b->out++ = *b->at++; /* the bracket, or a comma */
		skip_blanks(b);
		from = b->at;
		if (*from == '{') {
			put_object(b, keys);
		} else if (*from != ']') {
			skip_value(b);
			keep(b, from);
		}
		skip_blanks(b);
	} while (*b->at == ',' && !b->bad);
	b->bad = b->bad || *b->at != ']';
	if (!b->bad)
		*b->out++ = *b->at++;
}

static void put_value(struct brief *b, const struct jm_key *key)
{
	const char *from = b->at;

	if (key && key->keys && key->type == JM_KEY_OBJECT && *from == '{') {
		put_object(b, key->keys);
	} else if (key && key->keys && key->type == JM_KEY_LIST && *from == '[') {
		put_list(b, key->keys);
	} else {
		skip_value(b);
		keep(b, from);
	}
}

/* One member: "name": value. *any: one was kept before. */
static void put_member(struct brief *b, const struct jm_key *keys, bool *any)
{
	const char *from = b->at, *name = from + 1;
	const struct jm_key *key;

	if (*from != '"') {
		b->bad = true;
		return;
	}
	b->at = string_end(b);
	key = b->bad ? NULL : find(keys, name, (size_t)(b->at - name) - 1);
	skip_blanks(b);
	b->bad = b->bad || *b->at != ':';
	if (b->bad)
		return;
	b->at++;
	skip_blanks(b);
	if (key && key->flags & JM_KEY_DETAIL) {
		skip_value(b);
		return;
	}
	if (*any)
		*b->out++ = ',';
	*any = true;
	keep(b, from);
	put_value(b, key);
}

static void put_object(struct brief *b, const struct jm_key *keys)
{
	bool any = false, more;

	b->bad = b->bad || ++b->depth > DEEPEST;
	if (b->bad)
		return;
	*b->out++ = *b->at++;
	skip_blanks(b);
	for (more = *b->at != '}'; more && !b->bad;) {
		put_member(b, keys, &any);
		skip_blanks(b);
		more = *b->at == ',';
		b->at += more;
		skip_blanks(b);
	}
	b->bad = b->bad || *b->at != '}';
	if (!b->bad)
		*b->out++ = *b->at++;
	b->depth--;
}

static bool make_room(struct jm_keys_room *room, size_t n)
{
	char *grown = n > room->size ? realloc(room->bytes, 2 * n) : room->bytes;

	if (!grown)
		return false;
	room->size = n > room->size ? 2 * n : room->size;
	room->bytes = grown;
	return true;
}

const char *jm_keys_brief(
	const struct jm_key *keys, const char *text, size_t n, struct jm_keys_room *room)
{
	struct brief b = {.at = text};

	if (!make_room(room, n + 1))
		return NULL;
	b.out = room->bytes;
	skip_blanks(&b);
	if (*b.at == '{')
		put_object(&b, keys);
	else
		b.bad = true;
	if (b.bad || b.at != text + n) /* the parser says what is wrong */
		return text;
	*b.out = '\0';
	return room->bytes;
}
