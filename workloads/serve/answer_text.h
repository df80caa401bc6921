/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of an answer while its tokens are made. Joined, its pieces are the text of the whole
 * answer: what a later token may still change, such as a character of which some bytes are missing,
 * is kept back.
 */
#ifndef JM_ANSWER_TEXT_H
#define JM_ANSWER_TEXT_H

#include <jansson.h>

#include "data/tokenizer/tokenizer.h"

/* Zeroed before the first token. */
struct jm_answer_text {
	/* where the tokens of the latest piece begin: they are decoded again before the next
	 * ones */
	int from;
	int given;   /* where they end */
	size_t told; /* bytes of their text */
};

/*
 * The next piece, a string, of the first n tokens of an answer; "" if there is none yet. is_last:
 * no more tokens come. Without a tokenizer (NULL) the text is the numbers of the tokens. NULL =
 * memory ran out.
 */
json_t *jm_answer_text_next(struct jm_answer_text *t, const struct jm_tokenizer *tokenizer,
	const int32_t *token, int n, bool is_last);

#endif
