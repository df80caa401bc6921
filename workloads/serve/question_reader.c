/* SPDX-License-Identifier: Apache-2.0 */
#include "question_reader.h"

#include <stdlib.h>
#include <string.h>

#include "base/process/quiet_thread.h"
#include "vendor/answer_server.h"

#define LONG ((size_t)32768) /* bytes of a body; fewer are read in milliseconds */

struct long_question {
	struct jm_question question;
	struct long_question *next;
};

/* Questions in the order of their arrival. */
struct queue {
	struct long_question *first, *last;
};

struct jm_question_reader {
	const struct jm_prompts_source *source;
	struct jm_answering model;
	const struct jm_rule *rule;
	struct jm_tokenizer *tokenizer; /* the caller's */
	struct jm_prompts own;		/* of the thread: its tokenizer */
	int64_t context;
	int left;
	pthread_t thread;
	bool is_started;
	pthread_mutex_t lock; /* of all that follows */
	pthread_cond_t wake;
	struct queue waiting, read;
	bool is_ending;
};

static void put(struct queue *q, struct long_question *l)
{
	l->next = NULL;
	if (q->first)
		q->last->next = l;
	else
		q->first = l;
	q->last = l;
}

/* NULL = none. */
static struct long_question *get(struct queue *q)
{
	struct long_question *l = q->first;

	if (l)
		q->first = l->next;
	return l;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A prompt that is a text becomes tokens. */
static int encode(
	struct jm_tokenizer *tokenizer, int64_t vocab, struct jm_ask *ask, struct jm_err *err)
{
	struct jm_ids ids = {0};
	int code;

	if (!ask->text)
		return 0;
	if (!tokenizer)
		return jm_err_set(err, JM_EUSAGE,
			"The prompt is a text, but no tokenizer is known here; ask with a list of "
			"tokens.");
	code = jm_tokenizer_encode(
		tokenizer, ask->text, strlen(ask->text), JM_TOKENIZER_TEMPLATE, &ids, err);
	for (size_t i = 0; i < ids.n && !code; i++)
		if (ids.at[i] >= vocab)
			code = jm_err_set(err, JM_EUSAGE,
				"The tokenizer has tokens that the model does not have.");
	if (!code && (!ids.n || ids.n > INT32_MAX))
		code = jm_err_set(err, JM_EUSAGE, "The prompt has no token.");
	if (code) {
		free(ids.at);
		return code;
	}
	free(ask->text);
	ask->text = NULL;
	ask->token = ids.at;
	ask->n = (int)ids.n;
	return 0;
}

static int check_length(const struct jm_ask *ask, int64_t context, struct jm_err *err)
{
	int64_t tokens = (int64_t)ask->n + ask->output;

	return tokens <= context
		       ? 0
		       : jm_err_set(err, JM_EUSAGE,
				 "Prompt and answer have %lld tokens, the context of the model has "
				 "%lld.",
				 (long long)tokens, (long long)context);
}

static void read_with(
	struct jm_tokenizer *tokenizer, const struct jm_question_reader *r, struct jm_question *q)
{
	q->ask = (struct jm_ask){.rule = *r->rule};
	if (!jm_ask_parse(q->asked->body, q->asked->n, &r->model, &q->ask, &q->why) &&
		!encode(tokenizer, r->model.vocab, &q->ask, &q->why))
		check_length(&q->ask, r->context, &q->why);
	if (q->why.code)
		jm_ask_close(&q->ask);
	jm_asked_drop_body(q->asked);
}

/* With the lock held. */
static void leave_unread(struct jm_question_reader *r, struct long_question *l)
{
	l->question.ask = (struct jm_ask){.n = 1, .output = 1};
	jm_asked_drop_body(l->question.asked);
	put(&r->read, l);
}

/* Nobody waits for the answers to these. With the lock held. */
static void pass_over_those_that_left(struct jm_question_reader *r)
{
	struct queue stay = {0};
	struct long_question *l;

	while ((l = get(&r->waiting)))
		if (jm_asked_is_gone(l->question.asked))
			leave_unread(r, l);
		else
			put(&stay, l);
	r->waiting = stay;
}

static void *read_long(void *arg)
{
	struct jm_question_reader *r = arg;
	struct long_question *l;

	pthread_mutex_lock(&r->lock);
	while (!r->is_ending) {
		pass_over_those_that_left(r);
		l = get(&r->waiting);
		if (!l) {
			pthread_cond_wait(&r->wake, &r->lock);
			continue;
		}
		pthread_mutex_unlock(&r->lock);
		read_with(r->own.tokenizer, r, &l->question);
		pthread_mutex_lock(&r->lock);
		put(&r->read, l);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

/* False: there is no memory or no thread for it. */
static bool read_later(struct jm_question_reader *r, struct jm_asked *asked)
{
	struct long_question *l;

	if (!r->is_started)
		r->is_started = !jm_quiet_thread(&r->thread, read_long, r);
	l = r->is_started ? calloc(1, sizeof(*l)) : NULL;
	if (!l)
		return false;
	l->question = (struct jm_question){.asked = asked, .why = JM_ERR_INIT};
	r->left++;
	pthread_mutex_lock(&r->lock);
	put(&r->waiting, l);
	pthread_cond_signal(&r->wake);
	pthread_mutex_unlock(&r->lock);
	return true;
}

bool jm_question_reader_read(
	struct jm_question_reader *r, struct jm_asked *asked, struct jm_question *ret)
{
	if (asked->n > LONG && read_later(r, asked))
		return false;
	*ret = (struct jm_question){.asked = asked, .why = JM_ERR_INIT};
	read_with(r->tokenizer, r, ret);
	return true;
}

bool jm_question_reader_next(struct jm_question_reader *r, struct jm_question *ret)
{
	struct long_question *l;

	if (!r->left)
		return false;
	pthread_mutex_lock(&r->lock);
	pass_over_those_that_left(r);
	l = get(&r->read);
	pthread_mutex_unlock(&r->lock);
	if (!l)
		return false;
	*ret = l->question;
	free(l);
	r->left--;
	return true;
}

int jm_question_reader_left(const struct jm_question_reader *r)
{
	return r->left;
}

/* ---- open and close -------------------------------------------------------------------------- */

static int open_own(struct jm_question_reader *r, struct jm_err *err)
{
	int code = r->tokenizer ? jm_prompts_open_tokenizer(r->source, &r->own, err) : 0;

	return code <= 0 ? code
			 : jm_err_set(err, JM_ENOENT,
				   "The tokenizer of %s is not there any more; put it back.",
				   r->source->from);
}

int jm_question_reader_new(const struct jm_prompts_source *source, const char *model,
	const struct jm_rule *rule, struct jm_tokenizer *tokenizer, int64_t context,
	struct jm_question_reader **ret, struct jm_err *err)
{
	struct jm_question_reader *r = calloc(1, sizeof(*r));
	int code;

	if (!r)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a server.");
	r->source = source;
	r->model = (struct jm_answering){source->vocab, model, source->from};
	r->rule = rule;
	r->tokenizer = tokenizer;
	r->context = context;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->wake, NULL);
	code = open_own(r, err);
	if (code)
		jm_question_reader_free(r);
	else
		*ret = r;
	return code;
}

void jm_question_reader_stop(struct jm_question_reader *r)
{
	struct long_question *l;

	pthread_mutex_lock(&r->lock);
	r->is_ending = true;
	pthread_cond_signal(&r->wake);
	pthread_mutex_unlock(&r->lock);
	if (r->is_started)
		pthread_join(r->thread, NULL);
	r->is_started = false;
	while ((l = get(&r->waiting)))
		leave_unread(r, l);
}

static void end_all(struct queue *q)
{
	struct long_question *l;

	while ((l = get(q))) {
		jm_asked_end(l->question.asked);
		jm_ask_close(&l->question.ask);
		free(l);
	}
}

void jm_question_reader_free(struct jm_question_reader *r)
{
	if (!r)
		return;
	jm_question_reader_stop(r);
	end_all(&r->read);
	jm_prompts_close(&r->own);
	pthread_cond_destroy(&r->wake);
	pthread_mutex_destroy(&r->lock);
	free(r);
}
