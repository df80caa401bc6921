/* SPDX-License-Identifier: Apache-2.0 */
/* Texts to a data set of tokens. A text is read in parts of about a megabyte, so it may be larger
 * than memory. */
#ifndef JM_TOKENIZE_H
#define JM_TOKENIZE_H

#include "data/megatron.h"
#include "data/tokenizer/tokenizer.h"

struct jm_tokenize {
	struct jm_tokenizer *tokenizer;
	char *const *texts; /* files; "-" = standard input */
	int n_texts;
	bool lines;	 /* each line is a document, without its end; else each file */
	const char *key; /* each line is a JSON object with a document at this key; NULL = none */
	int32_t eos;	 /* the token behind each document; -1 = none */
	bool template;	 /* with the tokens of the tokenizer's post_processor */
	/* results */
	int64_t bytes; /* of the files */
	struct jm_megatron_size size;
};

/* Writes OUT.bin and OUT.idx; a document without bytes is left out. The error names the file, and
 * the line. JM_EUSAGE: a text is one of the two. */
int jm_tokenize(struct jm_tokenize *job, const char *out, struct jm_err *err);

#endif
