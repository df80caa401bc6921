/* SPDX-License-Identifier: Apache-2.0 */
/* Values of tokenizer.json. Each function sets a sentence that names the file and the part of
 * it. */
#ifndef JM_TOKENIZER_READER_H
#define JM_TOKENIZER_READER_H

#include <jansson.h>

#include "data/tokenizer/tokenizer_parts.h"

struct jm__reader {
	struct jm_tokenizer *t;
	const json_t *root;
	const char
		*nul; /* stands for U+0000 in the texts of `root`, 3 bytes; NULL = there is none */
	struct jm_err *err;
};

/* Both return the code. */
int jm__refuse(const struct jm__reader *r, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int jm__reader_no_memory(const struct jm__reader *r);

/* Replaces the content of `to` by a text of the file. JM_ENOMEM */
int jm__take_text(const struct jm__reader *r, const char *text, struct jm_bytes *to);
/* The member of an object as text; JM_EFORMAT: it is missing or no text. part: for the error,
 * "decoder" */
int jm__take_member(const struct jm__reader *r, const json_t *object, const char *key,
	const char *part, struct jm_bytes *to);
/* null and a missing member are the fallback; JM_EFORMAT: another type. */
int jm__take_flag(const struct jm__reader *r, const json_t *object, const char *key,
	const char *part, bool fallback, bool *ret);
/* {"String": ...} or {"Regex": ...}. */
int jm__take_pattern(const struct jm__reader *r, const json_t *object, const char *part,
	struct jm__regex **ret_regex, struct jm_bytes *ret_find);

/* A step of a list that may be null, one step or {"type": "Sequence", KEY: [...]}, in which steps
 * may be Sequences. */
typedef int jm__step_fn(struct jm__reader *r, const json_t *step, const char *type);
int jm__each_step(struct jm__reader *r, const char *part, const char *key, jm__step_fn *take);

#endif
