/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What became of requests, and the figures of them: the same for a model that is served here and
 * for a server that is asked. It knows neither.
 */
#ifndef JM_ANSWERS_H
#define JM_ANSWERS_H

#include <jansson.h>

#include "run/workload.h"

enum jm_answer_state { JM_ANSWER_OPEN, JM_ANSWER_DONE, JM_ANSWER_FAILED };

/* One request. Times: ns of the clock; 0 = not yet. */
struct jm_answer {
	int number;	   /* of the request, in the order of their arrival from 0 on */
	int input, output; /* tokens: of its prompt; of its answer when it is done */
	enum jm_answer_state state;
	int64_t arrived, first, end; /* when it was meant to arrive; of its first and last token */
	int64_t *when;		     /* [n_when]: of each piece of the answer */
	int32_t *token;		     /* [output]; NULL = they are not known */
	int32_t *prompt;	     /* [input], of a client; NULL = it follows from the number */
	int n_when;    /* pieces so far; each is one token, unless a server sent several together */
	int room;      /* of `when` */
	int preempted; /* how often it gave up its pages */
	/* it has the prompt of the request whose number is less by this; 0 = one of its own */
	int back;
};

/* How many requests break each bound. */
struct jm_late {
	int ttft, tpot;
};

/* In the order in which they were added. */
struct jm_answers {
	struct jm_answer *answer; /* [n] */
	int n, cap;
	int running;		      /* at once, at most */
	bool timed;		      /* they arrive at times of their own, whatever was answered */
	double ttft, tpot;	      /* bounds of goodput, s; NAN = none */
	struct jm_work_window window; /* of jm_answers_find_window; t1_ns = 0: there is none */
	int n_ended; /* the first so many are done or have failed, as jm_answers_late found */
	struct jm_late ended; /* of them those that break a bound */
};

/* One more as it is; what it points to becomes the list's. false: there is no memory for it. */
bool jm_answers_append(struct jm_answers *a, const struct jm_answer *answer);
/*
 * One more, with room for `output` pieces and, if has_tokens, as many tokens; its prompt becomes
 * that of the list. JM_ENOMEM: nothing is changed. All is freed by jm_answers_close.
 */
int jm_answers_add(
	struct jm_answers *a, const struct jm_answer *answer, bool has_tokens, struct jm_err *err);
void jm_answers_close(struct jm_answers *a); /* takes a zeroed one */
/* A piece of the answer came. False: it is beyond those that were asked for, and memory ran out;
 * nothing is changed. */
bool jm_answers_piece(struct jm_answers *a, int number, int64_t now_ns);

/* s, of one that is done. */
double jm_answer_ttft(const struct jm_answer *a);
double jm_answer_tpot(const struct jm_answer *a); /* NAN for an answer of one token */
double jm_answer_latency(const struct jm_answer *a);

/*
 * The steady part. Without times of their own: from the time when `running` requests have had their
 * first token, to the time when all but `running` + 1 of those that arrived are done or have failed
 * (ML.ENERGY, mlenergy/benchmark/llm/benchmark.py), or the last token of all if that never was.
 * Others: the arrivals from the 10th to the 90th percentile. What is before steady_ns is cut off.
 */
void jm_answers_find_window(struct jm_answers *a, int64_t steady_ns);
/* "serving" of a record: counts of all requests, and the figures of those that were done in the
 * window; of all without one. */
json_t *jm_answers_json(const struct jm_answers *a);
/* {"mean", "p50", "p90", "p99", "max"} of x, which it sorts; null if n is 0. Percentiles: linear
 * between the two nearest. */
json_t *jm_answers_spread(double *x, int n);
/* Do the 99th percentiles of the span keep the bounds, if a failed request takes for ever? -1:
 * there are no bounds, or no request ended in the span. */
int jm_answers_keep_bounds(const struct jm_answers *a);
/* Those that break a bound by now. What has ended stays so, and the bounds are the same in each
 * call: it looks at the requests since the oldest that is open. */
struct jm_late jm_answers_late(struct jm_answers *a, int64_t now_ns);
/* Of the bound that more of them break. */
int jm_late_most(struct jm_late late);
/* A line for each request that was done. Errors: as jm_output_by. */
int jm_answers_write_csv(const struct jm_answers *a, const char *path, struct jm_err *err);

#endif
