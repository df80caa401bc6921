/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The texts of the values in a JSON file, one at a time: a list in it is given element by element.
 * A file of any size takes the memory of its longest value. Brackets are counted; whether a text is
 * JSON its reader finds out.
 */
#ifndef JM_JSON_TEXTS_H
#define JM_JSON_TEXTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum jm_json_place { JM_JSON_OUTSIDE, JM_JSON_FIRST, JM_JSON_ELEMENT, JM_JSON_BEHIND };

struct jm_json_texts {
	const char *text; /* of the value: n bytes and NUL, valid until the next call */
	size_t n;
	int line;	 /* in which the value, or what is wrong, begins */
	const char *why; /* what is wrong: "',' or ']' expected" */
	/* private: what was read of the file, of which the bytes before `from` were given */
	FILE *f;
	char *read;
	size_t from, n_read, room;
	bool ended, any;
	enum jm_json_place place;
	char behind; /* the byte where the NUL is */
};

void jm_json_texts_init(struct jm_json_texts *t, FILE *f);
/* 1 = a value; 0 = there are no more; JM_EFORMAT or JM_ENOMEM: t->why. A file without a value is
 * wrong. */
int jm_json_texts_next(struct jm_json_texts *t);
void jm_json_texts_done(struct jm_json_texts *t);

#endif
