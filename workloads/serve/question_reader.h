/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads what clients of --listen ask for, until prompts are tokens. A long text takes up to seconds
 * to become tokens, so long questions are read on a thread of their own, which has a tokenizer of
 * its own: short questions do not wait for them, and neither do steps; on device cpu the thread
 * takes processor time from these.
 */
#ifndef JM_QUESTION_READER_H
#define JM_QUESTION_READER_H

#include "completion_request.h"
#include "vendor/http_question.h"
#include "workloads/parts/prompts.h"

/*
 * A question that the reader returns. why.code: 0, or it cannot be served (JM_EUSAGE...); then
 * `ask` is empty. With code 0 and without ask.token it was not read, as its client had left or the
 * reader was stopped; ask.n and ask.output are then 1, since nobody knows them.
 */
struct jm_question {
	struct jm_asked *asked;
	struct jm_ask ask;
	struct jm_err why;
};

struct jm_question_reader;

/*
 * For a model of source->vocab tokens, which requests call by its name or source->from; rule: of
 * what a client does not say; tokenizer: that of `source` for short questions, NULL = there is
 * none. All of it outlives the reader. context: of prompt and answer, in tokens; longer ones are
 * refused. JM_ENOMEM; as jm_prompts_open_tokenizer, which it calls for long questions.
 */
int jm_question_reader_new(const struct jm_prompts_source *source, const char *model,
	const struct jm_rule *rule, struct jm_tokenizer *tokenizer, int64_t context,
	struct jm_question_reader **ret, struct jm_err *err);
/* Reads it at once; false: it is long, and jm_question_reader_next returns it later. */
bool jm_question_reader_read(
	struct jm_question_reader *r, struct jm_asked *asked, struct jm_question *ret);
/* The next long one that is read, or that is not as its client has left; false: there is none. */
bool jm_question_reader_next(struct jm_question_reader *r, struct jm_question *ret);
/* Long ones that jm_question_reader_next has not returned. */
int jm_question_reader_left(const struct jm_question_reader *r);
/* Finishes the question that is being read and reads no more: jm_question_reader_next returns all
 * that are left, and jm_question_reader_read is not called any more. */
void jm_question_reader_stop(struct jm_question_reader *r);
/* Those that are left are ended unanswered, after the one that is being read. Takes NULL. */
void jm_question_reader_free(struct jm_question_reader *r);

#endif
