/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of a data set's samples as rows of tokens of one length. */
#ifndef JM_TOKEN_ROWS_H
#define JM_TOKEN_ROWS_H

#include "data/sets/data_set.h"
#include "data/tokenizer/tokenizer.h"

struct jm_token_rows {
	int32_t *ids;
	int64_t *start;	      /* of text t: ids start[t] to start[t + 1] - 1 */
	const int64_t *first; /* the set's: texts of sample i */
	int64_t length;	      /* of a row */
	int32_t pad;	      /* behind the end of a shorter text */
	int64_t cut;	      /* texts that were longer */
};

/*
 * The tokens of all texts, with those that the tokenizer's template puts around a text; a longer
 * text loses tokens at its end, but not those of the template. The set outlives ret. JM_ERANGE: a
 * token is not below `below`, or the template is longer than a row.
 */
int jm_token_rows_make(const struct jm_data_set *set, struct jm_tokenizer *t, int64_t length,
	int32_t pad, int64_t below, struct jm_token_rows *ret, struct jm_err *err);
void jm_token_rows_done(struct jm_token_rows *r); /* a zeroed one is allowed */

/* A row of sample i, i32[length]: of its first text, or of one that the seed chooses. seed 0 = the
 * first. */
void jm_token_rows_write(const struct jm_token_rows *r, int64_t i, uint64_t seed, int32_t *ret);

#endif
