/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations about pictures as rows of tokens of one length, of which answers are learnt. */
#ifndef JM_TALK_ROWS_H
#define JM_TALK_ROWS_H

#include "data/sets/data_set.h"
#include "data/tokenizer/tokenizer.h"

#define JM_TALK_IGNORED -100 /* a target that is not learnt */

struct jm_talk_rows {
	int32_t *ids;		/* of all conversations, without the places of pictures */
	bool *is_learnt;	/* [ids] of an answer, or its end */
	int64_t *start;		/* of conversation i: ids start[i] to start[i + 1] - 1 */
	int64_t before;		/* tokens before a picture */
	int64_t length, places; /* of a row, and those of a picture in it */
	int64_t left_out;	/* answers that do not fit, and those behind them */
};

/*
 * A conversation is what the tokenizer's template puts before a text, "USER: ", the picture, an end
 * of line, and for each pair of turns a question, " ASSISTANT:", the answer and the token </s> (or
 * <|endoftext|>, where the tokenizer has one); "USER: " before later questions. It ends before the
 * first answer that does not fit into a row. JM_ERANGE: a first answer does not fit, or a token is
 * not below `below`.
 */
int jm_talk_rows_make(const struct jm_data_set *set, struct jm_tokenizer *t, int64_t length,
	int64_t places, int64_t below, struct jm_talk_rows *ret, struct jm_err *err);
void jm_talk_rows_done(struct jm_talk_rows *r); /* a zeroed one is allowed */

/* Of conversation i: its tokens i32[length], with 0 at the places of the picture and behind the
 * end; the token that follows each, if it is learnt; or the first place of the picture, i32[1]. */
void jm_talk_rows_write(
	const struct jm_talk_rows *r, enum jm_data_type type, int64_t i, int32_t *ret);

#endif
