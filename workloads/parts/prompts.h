/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts: the lines of a text file, as tokens of the served model; and answers as text. */
#ifndef JM_PROMPTS_H
#define JM_PROMPTS_H

#include <jansson.h>

#include "data/tokenizer/tokenizer.h"

/* Zeroed = none. */
struct jm_prompts {
	struct jm_tokenizer *tokenizer;
	struct jm_ids ids; /* of all prompts, one after the other */
	size_t *end;	   /* [n]: of each in ids */
	int n;
	int shortest, longest; /* in tokens */
};

/* Where prompts come from. */
struct jm_prompts_source {
	const char *text;      /* a file; each line that is not empty is a prompt */
	const char *tokenizer; /* a tokenizer.json; NULL = that of the folder `from` */
	const char *from;      /* NULL = none */
	int64_t vocab;	       /* of the model */
};

/*
 * Reads all prompts, each with the tokens that the tokenizer puts before and behind a text.
 * JM_ENOENT, JM_EFORMAT, JM_EUSAGE: names the file and what is wrong. *ret is closed by
 * jm_prompts_close also after an error.
 */
int jm_prompts_open(
	const struct jm_prompts_source *source, struct jm_prompts *ret, struct jm_err *err);
/* The tokenizer alone, without prompts; 1: there is none. Otherwise as jm_prompts_open. */
int jm_prompts_open_tokenizer(
	const struct jm_prompts_source *source, struct jm_prompts *ret, struct jm_err *err);
/* The tokens of prompt i, which is below n. */
const int32_t *jm_prompts_tokens(const struct jm_prompts *p, int i, int *ret_n);
/*
 * Appends the text of tokens, without special ones. A model may have more ids than its tokenizer
 * has tokens; these have no text. False: memory ran out, or the tokenizer cannot decode them.
 */
bool jm_prompts_decode(
	const struct jm_tokenizer *tokenizer, const int32_t *token, int n, struct jm_bytes *ret);
/* The same as JSON; null if there is no tokenizer, or as above. */
json_t *jm_prompts_text(const struct jm_prompts *p, const int32_t *token, int n);
void jm_prompts_close(struct jm_prompts *p);

#endif
