/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_verify.h"

#include <jansson.h>
#include <string.h>

#include "listen.h"
#include "replicas.h"
#include "serve_requests.h"
#include "serve_results.h"
#include "workloads/parts/profile_json.h"

/* Shares of an answer's tokens; with the keys of another request nearly all differ. */
#define MAY_DIFFER 0.25 /* in 16 bits */
/* where rows, keys or queries were rounded to 8 bits: from here on the answers are wrong, if they
 * have so many tokens that this is not by chance */
#define MUST_DIFFER_8 0.95
#define MUST_HAVE_8   50

/* Writes the rows of the request from position `at` on; they are alone in the step. */
static void lay_out_alone(struct serve *s, int number, int at, int n)
{
	const struct jm_answer *a = &s->load.answers.answer[number];
	struct jm_served_model *c = &s->served;

	for (int i = 0; i < n; i++) {
		c->ids[i] = jm_serve_token(s, a, at + i);
		c->position[i] = at + i;
		c->request[i] = 0;
	}
	for (int i = 0; i < c->shape.requests; i++)
		c->last[i] = i < n ? i : 0;
	for (int i = 0; i < n && i < c->shape.requests; i++)
		jm_serve_rule(s, number, at + i + 1, i);
}

/*
 * Computes the request again, alone, and counts how many tokens of its answer differ from what
 * follows the tokens before them: those of the answer, so that one difference does not change what
 * comes after it.
 */
static int repeat(struct serve *s, int number, int *ret_differ, struct jm_err *err)
{
	const struct jm_answer *a = &s->load.answers.answer[number];
	int answer = a->input - 1, end = answer + a->output, code = 0, n;
	int pages = (int)s->served.shape.pages_each;

	pages = pages < s->pages ? pages : s->pages;
	*ret_differ = 0;
	for (int i = 0; i < pages; i++)
		s->served.page[i] = i;
	memset(s->served.used_pages, 0,
		(size_t)s->served.shape.requests * sizeof(*s->served.used_pages));
	s->served.used_pages[0] = pages;
	for (int at = 0; at < end && !code; at += n) {
		int left = at < answer ? answer - at : end - at;
		int most = at < answer ? s->step_tokens : s->running;

		n = left < most ? left : most;
		lay_out_alone(s, number, at, n);
		code = jm_served_run(&s->served, n, err);
		for (int i = 0; i < n && at >= answer && !code; i++)
			*ret_differ += s->served.token[i] != jm_serve_token(s, a, at + i + 1);
	}
	return code;
}

/*
 * In 16 bits the order of sums, which differs with the rows of a step, decides between logits that
 * are nearly equal, and moves the bounds between drawn tokens; in 8 bits it moves the rounding of
 * whole rows (63 of 100 tokens differed for llama3-8b with random weights on an H200). 1: this
 * cannot be judged. drawn: some of them were, not all the likeliest ones.
 */
static int judge(const struct serve *s, int differing, int tokens, bool drawn, struct jm_err *err)
{
	bool narrow = s->kv == JM_CACHE_F8E4M3, eight = s->training.fp8 || narrow;
	double most = s->training.precision == JM_F32 && !narrow ? 0 : MAY_DIFFER;

	if (differing <= most * tokens)
		return 0;
	if (most == 0 ||
		!(drawn || (eight && (tokens < MUST_HAVE_8 || differing < MUST_DIFFER_8 * tokens))))
		return jm_err_set(err, JM_ERANGE,
			"%d of %d tokens of answers are others when their requests are served "
			"alone.",
			differing, tokens);
	jm_err_set(err, JM_ERANGE,
		"%d of %d tokens are others when their requests are served alone, which rounding "
		"in %d bits may cause; verify with --precision %s%s%s.",
		differing, tokens, eight ? 8 : 16,
		s->training.fp8 && !drawn ? "bf16 or f32" : "f32", narrow ? " --kv auto" : "",
		drawn ? " or --temperature 0" : "");
	return 1;
}

/* Of requests that were repeated. */
struct repeated {
	double requests, tokens, differing, drawn; /* drawn: requests of which tokens were */
};

static int repeat_some(struct serve *s, struct repeated *ret, struct jm_err *err)
{
	int code = 0, differ;

	*ret = (struct repeated){0};
	for (int i = 0; i < s->load.answers.n && ret->requests < JM_SERVE_VERIFIED && !code; i++) {
		if (!jm_serve_is_done(s, i) || !s->load.answers.answer[i].token)
			continue;
		code = repeat(s, i, &differ, err);
		ret->differing += differ;
		ret->tokens += s->load.answers.answer[i].output;
		ret->drawn += jm_serve_rule_of(s, i).temperature > 0;
		ret->requests++;
	}
	return code;
}

/* Each rank repeats some of its own; rank 0, whose record it is, judges those of all. */
static int repeat_and_judge(struct serve *s, struct jm_err *err)
{
	struct repeated r;
	int code;

	if (s->simulated) {
		jm_err_set(err, JM_EUSAGE, "A simulated GPU computes no answers.");
		return 1;
	}
	code = repeat_some(s, &r, err);
	if (!code)
		code = jm_comm_sum(&s->gang.control, &r.requests, sizeof(r) / sizeof(double), err);
	if (!code && r.requests < 1) {
		jm_err_set(err, JM_EUSAGE, "No request was done; measure longer.");
		return 1;
	}
	if (code || s->work->rank)
		return code;
	return judge(s, (int)r.differing, (int)r.tokens, r.drawn > 0, err);
}

/* The files and the record, which are of all ranks. */
static int keep(struct serve *s, struct jm_err *err)
{
	int code = jm_load_finish(&s->load, s->all, s->work, err);

	if (!code && s->answers_file)
		code = jm_serve_write_answers(s, err);
	if (s->work->more)
		jm_serve_record(s);
	if (s->work->more && s->profiled)
		json_object_set_new(s->work->more, "profile", jm_profile_json(s->profiled));
	return code;
}

int jm_serve_verify(void *state, struct jm_err *err)
{
	struct serve *s = state;
	int code;

	jm_listen_finish(s);
	for (int i = 0; i < s->load.answers.n; i++)
		s->load.answers.answer[i].preempted =
			jm_scheduler_request(s->scheduler, i)->preempted;
	code = jm_replicas_gather(s, err);
	if (!code && !s->work->rank)
		code = keep(s, err);
	return code ? code : repeat_and_judge(s, err);
}
