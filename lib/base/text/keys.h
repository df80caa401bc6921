/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of the keys that a JSON object has, one table per kind of object, nested as the objects
 * are. What is read back from a file or a store is checked against its table before any of it is
 * used.
 */
#ifndef JM_KEYS_H
#define JM_KEYS_H

#include <jansson.h>

#include "joulemark.h"

enum jm_key_type {
	JM_KEY_TEXT,	/* max: bytes; 0 = JM_KEY_TEXT_MAX */
	JM_KEY_WORD,	/* one of words */
	JM_KEY_ID,	/* 32 hexadecimal digits */
	JM_KEY_INTEGER, /* min to max; both 0: any */
	JM_KEY_NUMBER,	/* the same */
	JM_KEY_FLAG,	/* true or false */
	/* keys: of it; NULL = any keys, whose values are single values or objects of them */
	JM_KEY_OBJECT,
	JM_KEY_TEXTS,	/* a list of texts, max: elements; 0 = JM_KEY_LIST_MAX */
	JM_KEY_NUMBERS, /* a list of numbers, max: elements; 0 = JM_KEY_LIST_MAX */
	JM_KEY_LIST,	/* a list of objects with these keys, max: elements; 0 = JM_KEY_LIST_MAX */
	JM_KEY_LISTS,	/* an object with any keys whose values are lists of texts */
	JM_KEY_SCALAR,	/* a text, a number or a flag */
};

#define JM_KEY_TEXT_MAX (128 << 10) /* bytes; Linux takes no longer word of a command */
#define JM_KEY_LIST_MAX 1000000
#define JM_KEY_HUGE	1e300 /* as max: from min on */

enum {
	JM_KEY_NULL = 1,      /* null stands for unknown */
	JM_KEY_REQUIRED = 2,  /* an object without it is refused; else a missing key is unknown */
	JM_KEY_NULLS = 4,     /* elements of a list may be null */
	JM_KEY_NOT_EMPTY = 8, /* a text or list of at least one byte or element */
	JM_KEY_DETAIL = 16,   /* no table, metric or verdict is made from it */
	/* Written by this version: always, null while it is unknown, but for */
	JM_KEY_OPTIONAL = 32, /* what is written only where it applies */
	JM_KEY_OF_CASE =
		64, /* what is always in the record of a case, but not in one of `measure` */
};

struct jm_key {
	const char *name; /* NULL ends a table */
	enum jm_key_type type;
	unsigned int flags;
	double min, max;
	const char *const *words;
	const struct jm_key *keys;
	const char *unit, *meaning;
	const char *column; /* in tables of records: the store's view, CSV; NULL = none */
	const char *since;  /* the version that wrote it first; NULL = 0.1.0 */
};

/*
 * Is every key of the table of its type, in its range and of its length? Keys that are not in the
 * table are let pass. what: names the object in the sentence ("record 3"): "... of record 3:
 * meters[0].joules is text, but a number or null belongs there." JM_EFORMAT.
 */
int jm_keys_check(
	const struct jm_key *keys, const json_t *object, const char *what, struct jm_err *err);
/* Deletes what is marked as detail, at any depth. */
void jm_keys_drop_details(const struct jm_key *keys, json_t *object);

/* An object with all keys of the table that are always written, and those that have one of the
 * flags: null where that may be, empty lists, objects alike; the other types are left for the
 * writer to set. */
json_t *jm_keys_blank(const struct jm_key *keys, unsigned int flags);

typedef void jm_keys_fn(void *arg, const char *path, const struct jm_key *key);
/* Calls fn for each key at any depth, in the table's order; path: "meters[].joules". */
void jm_keys_each(const struct jm_key *keys, jm_keys_fn *fn, void *arg);
/* The same for each key that is a column, which one of an object within a list is not; path:
 * "total.joules_measured". */
void jm_keys_columns(const struct jm_key *keys, jm_keys_fn *fn, void *arg);
/* The value of the object that is that column; NULL = it has none. */
const json_t *jm_keys_column(const struct jm_key *keys, const json_t *object, const char *column);

#endif
