/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON of many objects alike, by their table of keys. Only what is kept is parsed, and a part whose
 * text equals that of the object before, at the same place, is the same value. What is not plain,
 * such as an escape in a name or a number of 20 digits, is left to the library's parser, which also
 * has the last word on bad text.
 */
#include "keys_read.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define DEEPEST	  64
#define SLOT_BITS 12
#define LONGEST	  (16 << 10) /* bytes of a text that is kept */
#define PATIENCE  4	     /* misses in a row, after which one in RETRY is kept */
#define RETRY	  64

/* The value that was read last at a place, and its text. */
struct slot {
	const struct jm_key *object, *element; /* tables that it was read by */
	char *text;
	size_t n, room;
	json_t *value; /* NULL = none */
	unsigned int misses;
};

struct jm_keys_reader {
	const struct jm_key *keys;
	bool brief;
	struct slot slots[1 << SLOT_BITS];
	/* The text that is read. It ends in NUL, where every step stops. */
	const char *at, *end;
	int depth;
	bool bad; /* left to the library's parser */
};

static void skip_blanks(struct jm_keys_reader *r)
{
	while (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r')
		r->at++;
}

/* Continues at the next of these characters, after blanks. */
static bool next_is(struct jm_keys_reader *r, char c)
{
	skip_blanks(r);
	if (r->bad || *r->at != c)
		return false;
	r->at++;
	return true;
}

static json_t *refuse(struct jm_keys_reader *r)
{
	r->bad = true;
	return NULL;
}

/* True for an ASCII character that needs no escape in a string. */
static bool is_plain(char c)
{
	return c >= ' ' && c < 0x7f && c != '"' && c != '\\';
}

/* Moves r->at after the string that begins there. */
static void skip_string(struct jm_keys_reader *r)
{
	const char *at = r->at + 1;

	while (*at && *at != '"')
		at += *at == '\\' && at[1] ? 2 : 1;
	r->bad = r->bad || !*at;
	r->at = at + !!*at;
}

/* Moves r->at after a value of any type: brackets outside of strings are counted. */
static void skip_value(struct jm_keys_reader *r)
{
	static const unsigned char stops[256] = {
		[0] = 1, ['"'] = 1, ['{'] = 1, ['}'] = 1, ['['] = 1, [']'] = 1};
	int open = 0;

	do {
		while (!stops[(unsigned char)*r->at] && (open || *r->at != ','))
			r->at++;
		if (*r->at == '"') {
			skip_string(r);
		} else if (*r->at == '{' || *r->at == '[') {
			open++;
			r->at++;
		} else if (open && *r->at) {
			open--;
			r->at++;
		} else {
			r->bad = r->bad || open;
			return;
		}
	} while (open && !r->bad);
}

static json_t *read_string(struct jm_keys_reader *r)
{
	const char *from = r->at + 1, *at = from;
	json_t *value;

	while (is_plain(*at))
		at++;
	if (*at == '"') {
		r->at = at + 1;
		return json_stringn_nocheck(from, (size_t)(at - from));
	}
	skip_string(r);
	value = r->bad ? NULL
		       : json_loadb(from - 1, (size_t)(r->at - from) + 1, JSON_DECODE_ANY, NULL);
	return value ? value : refuse(r);
}

static const char *skip_digits(const char *at)
{
	while (*at >= '0' && *at <= '9')
		at++;
	return at;
}

/* The position after the fraction and the exponent, if present; NULL = one has no digits. */
static const char *skip_fraction(const char *at)
{
	const char *from;

	if (*at == '.') {
		from = at + 1;
		at = skip_digits(from);
		if (at == from)
			return NULL;
	}
	if (*at == 'e' || *at == 'E') {
		from = at + 1 + (at[1] == '+' || at[1] == '-');
		at = skip_digits(from);
	} else {
		return at;
	}
	return at == from ? NULL : at;
}

static json_t *read_number(struct jm_keys_reader *r)
{
	const char *digits = r->at + (*r->at == '-'), *whole = skip_digits(digits);
	const char *behind = skip_fraction(whole), *from = r->at;
	double value;
	char *end;

	if (whole == digits || !behind || (*digits == '0' && whole - digits > 1) ||
		whole - digits > 18)
		return refuse(r);
	r->at = behind;
	if (behind == whole)
		return json_integer(strtoll(from, NULL, 10));
	value = strtod(from, &end);
	return end == behind && isfinite(value) ? json_real(value) : refuse(r);
}

static json_t *read_word(struct jm_keys_reader *r)
{
	static const struct {
		const char *text;
		size_t n;
		json_t *(*make)(void);
	} words[] = {{"null", 4, json_null}, {"true", 4, json_true}, {"false", 5, json_false}};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strncmp(r->at, words[i].text, words[i].n) != 0)
			continue;
		r->at += words[i].n;
		return words[i].make();
	}
	return refuse(r);
}

/* The next key in the order of the table is tried first, since writers keep to that order. */
static const struct jm_key *find(
	const struct jm_key *keys, const struct jm_key *guess, const char *name, size_t n)
{
	if (guess && guess->name && !strncmp(guess->name, name, n) && !guess->name[n])
		return guess;
	for (; keys && keys->name; keys++)
		if (!strncmp(keys->name, name, n) && !keys->name[n])
			return keys;
	return NULL;
}

/* A number for what is below a place. */
static uint64_t below(uint64_t place, uint64_t which)
{
	return (place ^ which) * 0x9E3779B97F4A7C15u;
}

static uint64_t hash(const char *name, size_t n)
{
	uint64_t h = 0xCBF29CE484222325u;

	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)name[i]) * 0x100000001B3u;
	return h;
}

static json_t *read_value(struct jm_keys_reader *r, const struct jm_key *object,
	const struct jm_key *element, uint64_t place);

static json_t *read_member(
	struct jm_keys_reader *r, const struct jm_key *key, uint64_t which, uint64_t place)
{
	const struct jm_key *inner = key ? key->keys : NULL;

	if (key && r->brief && key->flags & JM_KEY_DETAIL) {
		skip_value(r);
		return NULL;
	}
	return read_value(r, key && key->type == JM_KEY_OBJECT ? inner : NULL,
		key && key->type == JM_KEY_LIST ? inner : NULL, below(place, which));
}

/* One "name": value. *guess: the key that may come next. */
static void add_member(struct jm_keys_reader *r, json_t *object, const struct jm_key *keys,
	const struct jm_key **guess, uint64_t place)
{
	const char *name = r->at;
	const struct jm_key *key;
	json_t *value;
	size_t n;

	while (is_plain(*r->at))
		r->at++;
	n = (size_t)(r->at - name);
	if (!next_is(r, '"') || !next_is(r, ':')) {
		r->bad = true;
		return;
	}
	skip_blanks(r);
	key = find(keys, *guess, name, n);
	*guess = key ? key + 1 : *guess;
	value = read_member(r, key, key ? (uint64_t)(key - keys) : hash(name, n), place);
	if (value && json_object_setn_new_nocheck(object, name, n, value))
		r->bad = true;
}

static json_t *read_object(struct jm_keys_reader *r, const struct jm_key *keys, uint64_t place)
{
	const struct jm_key *guess = keys;
	json_t *object = json_object();

	r->at++;
	if (next_is(r, '}'))
		return object;
	do {
		if (!object || !next_is(r, '"'))
			r->bad = true;
		else
			add_member(r, object, keys, &guess, place);
	} while (next_is(r, ','));
	if (next_is(r, '}'))
		return object;
	json_decref(object);
	return refuse(r);
}

static json_t *read_list(struct jm_keys_reader *r, const struct jm_key *element, uint64_t place)
{
	json_t *list = json_array();

	r->at++;
	if (next_is(r, ']'))
		return list;
	do {
		skip_blanks(r);
		if (json_array_append_new(list,
			    read_value(r, element, NULL, below(place, json_array_size(list) + 1))))
			r->bad = true;
	} while (next_is(r, ','));
	if (next_is(r, ']'))
		return list;
	json_decref(list);
	return refuse(r);
}

/* Keeps what was read, unless it is another one in each object. */
static void keep(struct slot *s, const char *text, size_t n, json_t *value)
{
	char *grown;

	json_decref(s->value);
	s->value = NULL;
	if (n > LONGEST || (++s->misses > PATIENCE && s->misses % RETRY))
		return;
	grown = n > s->room ? realloc(s->text, n) : s->text;
	if (!grown)
		return;
	s->room = n > s->room ? n : s->room;
	s->text = memcpy(grown, text, n);
	s->n = n;
	s->value = json_incref(value);
}

static json_t *read_nested(struct jm_keys_reader *r, const struct jm_key *object,
	const struct jm_key *element, uint64_t place)
{
	json_t *value;

	if (*r->at == '"')
		return read_string(r);
	if (++r->depth > DEEPEST)
		return refuse(r);
	value = *r->at == '{' ? read_object(r, object, place) : read_list(r, element, place);
	r->depth--;
	return value;
}

/* object, element: tables of its keys, if it is an object, or of its elements, if it is a list. */
static json_t *read_value(struct jm_keys_reader *r, const struct jm_key *object,
	const struct jm_key *element, uint64_t place)
{
	struct slot *s = &r->slots[place >> (64 - SLOT_BITS)];
	const char *from = r->at;
	json_t *value;

	if (*from == '-' || (*from >= '0' && *from <= '9'))
		return read_number(r);
	if (*from != '"' && *from != '{' && *from != '[')
		return read_word(r);
	if (s->value && s->object == object && s->element == element &&
		s->n <= (size_t)(r->end - from) && !memcmp(s->text, from, s->n)) {
		s->misses = 0;
		r->at += s->n;
		return json_incref(s->value);
	}
	value = read_nested(r, object, element, place);
	if (value) {
		s->object = object;
		s->element = element;
		keep(s, from, (size_t)(r->at - from), value);
	}
	return value;
}

struct jm_keys_reader *jm_keys_reader_new(const struct jm_key *keys, bool brief)
{
	struct jm_keys_reader *r = calloc(1, sizeof(*r));

	if (r) {
		r->keys = keys;
		r->brief = brief;
	}
	return r;
}

void jm_keys_reader_free(struct jm_keys_reader *r)
{
	for (size_t i = 0; r && i < 1 << SLOT_BITS; i++) {
		json_decref(r->slots[i].value);
		free(r->slots[i].text);
	}
	free(r);
}

json_t *jm_keys_read(struct jm_keys_reader *r, const char *text, size_t n)
{
	json_t *object = NULL;

	r->at = text;
	r->end = text + n;
	r->depth = 0;
	r->bad = false;
	skip_blanks(r);
	if (*r->at == '{')
		object = read_object(r, r->keys, 1);
	skip_blanks(r);
	if (object && !r->bad && r->at == r->end)
		return object;
	json_decref(object);
	object = json_loadb(text, n, 0, NULL);
	if (object && r->brief)
		jm_keys_drop_details(r->keys, object);
	return object;
}
