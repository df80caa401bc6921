/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of the keys that a JSON object has, one table per kind of object, nested as the objects are.
 * What is read back from a file or a store is checked against its table before any of it is used.
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
	JM_KEY_OBJECT, /* keys: of it; NULL = any keys, whose values are single values or objects of them */
	JM_KEY_TEXTS,  /* a list of texts, max: elements; 0 = JM_KEY_LIST_MAX */
	JM_KEY_LIST,   /* a list of objects with these keys, max: elements; 0 = JM_KEY_LIST_MAX */
	JM_KEY_LISTS,  /* an object with any keys whose values are lists of texts */
	JM_KEY_SCALAR, /* a text, a number or a flag */
};

#define JM_KEY_TEXT_MAX (128 << 10) /* bytes; Linux takes no longer word of a command */
#define JM_KEY_LIST_MAX 1000000
#define JM_KEY_HUGE	1e300 /* as max: from min on */

enum {
	JM_KEY_NULL = 1,      /* null stands for unknown */
	JM_KEY_REQUIRED = 2,  /* an object without it is refused; else a missing key is unknown */
	JM_KEY_NULLS = 4,     /* elements of a list may be null */
	JM_KEY_NOT_EMPTY = 8, /* a text or list of at least one byte or element */
	JM_KEY_DETAIL = 16,   /* no table or metric is made from it */
};

struct jm_key {
	const char *name; /* NULL ends a table */
	enum jm_key_type type;
	unsigned int flags;
	double min, max;
	const char *const *words;
	const struct jm_key *keys;
	const char *unit, *meaning;
};

/*
 * Is every key of the table of its type, in its range and of its length? Keys that are not in the table are
 * let pass. what: names the object in the sentence ("record 3"): "... of record 3: meters[0].joules is text,
 * but a number or null belongs there." JM_EFORMAT.
 */
int jm_keys_check(
	const struct jm_key *keys, const json_t *object, const char *what, struct jm_err *err);
/* Deletes what is marked as detail, at any depth. */
void jm_keys_drop_details(const struct jm_key *keys, json_t *object);

#endif
