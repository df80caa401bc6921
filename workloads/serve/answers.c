/* SPDX-License-Identifier: Apache-2.0 */
#include "answers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/files/output.h"
#include "base/grow.h"
#include "base/stat/stat.h"
#include "base/text/json.h"

static double seconds(int64_t from, int64_t to)
{
	return (double)(to - from) / 1e9;
}

double jm_answer_ttft(const struct jm_answer *a)
{
	return seconds(a->arrived, a->first);
}

double jm_answer_tpot(const struct jm_answer *a)
{
	return a->output > 1 && a->n_when > 1 ? seconds(a->first, a->end) / (a->output - 1) : NAN;
}

double jm_answer_latency(const struct jm_answer *a)
{
	return seconds(a->arrived, a->end);
}

/* ---- requests -------------------------------------------------------------------------------- */

bool jm_answers_append(struct jm_answers *a, const struct jm_answer *answer)
{
	struct jm_answer *more =
		a->n < a->cap ? a->answer : jm_grow(a->answer, &a->cap, sizeof(*more));

	if (!more)
		return false;
	a->answer = more;
	a->answer[a->n++] = *answer;
	return true;
}

int jm_answers_add(
	struct jm_answers *a, const struct jm_answer *answer, bool has_tokens, struct jm_err *err)
{
	size_t n = (size_t)answer->output;
	struct jm_answer one = *answer;

	one.room = answer->output;
	one.when = calloc(n, sizeof(*one.when));
	one.token = has_tokens ? calloc(n, sizeof(*one.token)) : NULL;
	if (one.when && (one.token || !has_tokens) && jm_answers_append(a, &one))
		return 0;
	free(one.when);
	free(one.token);
	return jm_err_set(err, JM_ENOMEM, "Out of memory for the requests.");
}

void jm_answers_close(struct jm_answers *a)
{
	for (int i = 0; i < a->n; i++) {
		free(a->answer[i].when);
		free(a->answer[i].token);
		free(a->answer[i].prompt);
	}
	free(a->answer);
}

bool jm_answers_piece(struct jm_answers *a, int number, int64_t now_ns)
{
	struct jm_answer *one = &a->answer[number];

	if (one->n_when == one->room) {
		int64_t *more = jm_grow(one->when, &one->room, sizeof(*more));

		if (!more)
			return false;
		one->when = more;
	}
	if (!one->n_when)
		one->first = now_ns;
	one->end = now_ns;
	one->when[one->n_when++] = now_ns;
	return true;
}

/* ---- the window ------------------------------------------------------------------------------ */

static int by_time(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* A long question of a client is taken later than short ones that came after it. */
static int64_t first_arrival(const struct jm_answers *a)
{
	int64_t first = INT64_MAX;

	for (int i = 0; i < a->n; i++)
		first = a->answer[i].arrived < first ? a->answer[i].arrived : first;
	return first;
}

static int64_t arrived(const struct jm_answer *a)
{
	return a->arrived;
}

static int64_t first(const struct jm_answer *a)
{
	return a->first ? a->first : INT64_MAX;
}

static int64_t end(const struct jm_answer *a)
{
	return a->state == JM_ANSWER_OPEN ? INT64_MAX : a->end;
}

/* The times of all requests, sorted; INT64_MAX = not yet. NULL when out of memory; to be freed. */
static int64_t *times(const struct jm_answers *a, int64_t (*of)(const struct jm_answer *a))
{
	int64_t *ret = calloc((size_t)a->n + 1, sizeof(*ret));

	for (int i = 0; ret && i < a->n; i++)
		ret[i] = of(&a->answer[i]);
	if (ret)
		qsort(ret, (size_t)a->n, sizeof(*ret), by_time);
	return ret;
}

/* The time of the latest token of all. */
static int64_t last_token(const struct jm_answers *a)
{
	int64_t last = 0;

	for (int i = 0; i < a->n; i++)
		if (a->answer[i].n_when && a->answer[i].end > last)
			last = a->answer[i].end;
	return last;
}

static void window_of_running(const struct jm_answers *a, struct jm_work_window *w)
{
	int64_t *begun = times(a, first), *ended = times(a, end), last = last_token(a);

	if (begun && ended && a->n > a->running + 1) {
		w->t0_ns = begun[a->running - 1];
		w->t1_ns = ended[a->n - a->running - 2];
		w->t1_ns = w->t1_ns < last ? w->t1_ns : last;
	}
	free(begun);
	free(ended);
}

static void window_of_arrivals(const struct jm_answers *a, struct jm_work_window *w)
{
	int64_t *at = a->n ? times(a, arrived) : NULL;

	if (at) {
		w->t0_ns = at[(int)ceil(0.1 * (a->n - 1))];
		w->t1_ns = at[(int)floor(0.9 * (a->n - 1))];
	}
	free(at);
}

static bool is_within(const struct jm_work_window *w, int64_t t)
{
	return t > w->t0_ns && t <= w->t1_ns;
}

/* Of pieces that a server sent together, each has as many tokens as the others of its answer. */
static double tokens_of_piece(const struct jm_answer *a)
{
	return a->state == JM_ANSWER_DONE ? (double)a->output / a->n_when : 1;
}

static double tokens_within(const struct jm_answers *a, const struct jm_work_window *w)
{
	double tokens = 0;

	for (int i = 0; i < a->n; i++)
		for (int k = 0; k < a->answer[i].n_when; k++)
			if (is_within(w, a->answer[i].when[k]))
				tokens += tokens_of_piece(&a->answer[i]);
	return tokens;
}

void jm_answers_find_window(struct jm_answers *a, int64_t steady_ns)
{
	struct jm_work_window w = {.name = "window"};

	if (a->timed)
		window_of_arrivals(a, &w);
	else
		window_of_running(a, &w);
	if (w.t0_ns < steady_ns)
		w.t0_ns = steady_ns;
	if (w.t1_ns <= w.t0_ns)
		return;
	w.items = tokens_within(a, &w);
	a->window = w;
}

/* ---- figures --------------------------------------------------------------------------------- */

static bool has_window(const struct jm_answers *a)
{
	return a->window.t1_ns > a->window.t0_ns;
}

/* Has it become that in the window, or in the run if there is none? */
static bool is_in_span(
	const struct jm_answers *a, const struct jm_answer *one, enum jm_answer_state state)
{
	return one->state == state && (!has_window(a) || is_within(&a->window, one->end));
}

/* Do the figures cover it? */
static bool is_covered(const struct jm_answers *a, const struct jm_answer *one)
{
	return is_in_span(a, one, JM_ANSWER_DONE);
}

/* Linear between the two nearest, as numpy.percentile does by default. x is sorted, n above 0. */
static double percentile(const double *x, int n, double percent)
{
	double at = percent / 100 * (n - 1);
	int below = (int)at, above = below + 1 < n ? below + 1 : below;

	return at > below ? x[below] + (at - below) * (x[above] - x[below]) : x[below];
}

json_t *jm_answers_spread(double *x, int n)
{
	double sum = 0;

	if (!n)
		return json_null();
	for (int i = 0; i < n; i++)
		sum += x[i];
	qsort(x, (size_t)n, sizeof(*x), jm_stat_by_value);
	return json_pack("{s:f, s:f, s:f, s:f, s:f}", "mean", sum / n, "p50", percentile(x, n, 50),
		"p90", percentile(x, n, 90), "p99", percentile(x, n, 99), "max", x[n - 1]);
}

/* Of the requests that the figures cover, in seconds; returns how many have one. */
static int figures(const struct jm_answers *a, double (*of)(const struct jm_answer *a), double *x)
{
	int n = 0;

	for (int i = 0; i < a->n; i++)
		if (is_covered(a, &a->answer[i]) && !isnan(of(&a->answer[i])))
			x[n++] = of(&a->answer[i]);
	return n;
}

static json_t *distribution(const struct jm_answers *a, double (*of)(const struct jm_answer *a))
{
	double *x = calloc((size_t)a->n + 1, sizeof(*x));
	json_t *ret = jm_answers_spread(x, x ? figures(a, of, x) : 0);

	free(x);
	return ret;
}

/* From each piece of an answer to the next, in seconds. */
static json_t *gaps(const struct jm_answers *a)
{
	size_t all = 1;
	double *x;
	json_t *ret;
	int n = 0;

	for (int i = 0; i < a->n; i++)
		all += (size_t)a->answer[i].n_when;
	x = calloc(all, sizeof(*x));
	for (int i = 0; x && i < a->n; i++) {
		const struct jm_answer *one = &a->answer[i];

		for (int k = 1; k < one->n_when && is_covered(a, one); k++)
			x[n++] = seconds(one->when[k - 1], one->when[k]);
	}
	ret = jm_answers_spread(x, n);
	free(x);
	return ret;
}

/* Tokens that came together say nothing of the time per token: as if each took for ever. NAN: an
 * answer of one token has none. */
static double longest_tpot(const struct jm_answer *a)
{
	return a->output > 1 && isnan(jm_answer_tpot(a)) ? INFINITY : jm_answer_tpot(a);
}

/* A bound that is not given holds, and so does that of each token in an answer of one. */
static bool is_good(const struct jm_answers *a, const struct jm_answer *one)
{
	return !(jm_answer_ttft(one) > a->ttft) && !(longest_tpot(one) > a->tpot);
}

static bool has_bounds(const struct jm_answers *a)
{
	return !isnan(a->ttft) || !isnan(a->tpot);
}

/* Is it known whether it keeps the bounds? The end of the run may have come before its own, but
 * what has broken one stays so. */
static bool is_judged(const struct jm_answers *a, const struct jm_answer *one, int64_t now)
{
	return one->state != JM_ANSWER_OPEN ||
	       seconds(one->arrived, one->n_when ? one->first : now) > a->ttft ||
	       (one->n_when && jm_answer_tpot(one) > a->tpot);
}

/* Where the window is that of arrivals, of requests that arrive in it: what was left of the time
 * before it would otherwise count with them, and more than are offered. Not without a bound of
 * TTFT, with which each request that waits would count as soon as it is answered. Up to the first
 * one that is not judged; NAN where that is the first of all. */
static double goodput_of_arrivals(const struct jm_answers *a)
{
	struct jm_work_window w = a->window;
	int64_t now = last_token(a);
	int good = 0, judged = 0;

	for (int i = 0; i < a->n; i++) {
		const struct jm_answer *one = &a->answer[i];

		if (is_within(&w, one->arrived) && !is_judged(a, one, now))
			w.t1_ns = one->arrived - 1;
	}
	for (int i = 0; i < a->n; i++) {
		const struct jm_answer *one = &a->answer[i];

		if (!is_within(&w, one->arrived))
			continue;
		judged++;
		good += one->state == JM_ANSWER_DONE && is_good(a, one);
	}
	return judged ? good / seconds(w.t0_ns, w.t1_ns) : (double)NAN;
}

/* Requests per second that keep the bounds: that end in the window, or arrive in it; without one,
 * from the first arrival to the last end. NAN without bounds, or where no request ended. */
static double goodput(const struct jm_answers *a)
{
	int64_t last = 0;
	int good = 0;

	if (a->timed && has_window(a) && !isnan(a->ttft))
		return goodput_of_arrivals(a);
	for (int i = 0; i < a->n; i++) {
		const struct jm_answer *one = &a->answer[i];

		good += is_covered(a, one) && is_good(a, one);
		if (one->state != JM_ANSWER_OPEN && one->end > last)
			last = one->end;
	}
	if (!has_bounds(a) || (!last && !has_window(a)))
		return NAN;
	return good / (has_window(a) ? seconds(a->window.t0_ns, a->window.t1_ns)
				     : seconds(first_arrival(a), last));
}

/* Failed requests of the span. */
static int failures(const struct jm_answers *a)
{
	int n = 0;

	for (int i = 0; i < a->n; i++)
		n += is_in_span(a, &a->answer[i], JM_ANSWER_FAILED);
	return n;
}

/* Is the 99th percentile at most the bound (NAN = none), if a failed request takes for ever? */
static bool keeps(const struct jm_answers *a, double bound, double (*of)(const struct jm_answer *a))
{
	double *x = calloc((size_t)a->n + 1, sizeof(*x));
	int n = x ? figures(a, of, x) : 0, failed = failures(a);
	bool ret;

	for (int i = 0; i < failed && x; i++)
		x[n++] = INFINITY;
	if (n)
		qsort(x, (size_t)n, sizeof(*x), jm_stat_by_value);
	ret = isnan(bound) || (x && (!n || percentile(x, n, 99) <= bound));
	free(x);
	return ret;
}

int jm_answers_keep_bounds(const struct jm_answers *a)
{
	int ended = failures(a);

	for (int i = 0; i < a->n; i++)
		ended += is_covered(a, &a->answer[i]);
	if (!has_bounds(a) || !ended)
		return -1;
	return keeps(a, a->ttft, jm_answer_ttft) && keeps(a, a->tpot, longest_tpot);
}

static void add_late(const struct jm_answers *a, int i, int64_t now_ns, struct jm_late *late)
{
	const struct jm_answer *one = &a->answer[i];
	bool failed = one->state == JM_ANSWER_FAILED;
	int64_t first = one->first ? one->first : now_ns;

	late->ttft += failed || seconds(one->arrived, first) > a->ttft;
	late->tpot += failed || (one->state == JM_ANSWER_DONE && longest_tpot(one) > a->tpot);
}

struct jm_late jm_answers_late(struct jm_answers *a, int64_t now_ns)
{
	struct jm_late ret;

	while (a->n_ended < a->n && a->answer[a->n_ended].state != JM_ANSWER_OPEN)
		add_late(a, a->n_ended++, now_ns, &a->ended);
	ret = a->ended;
	for (int i = a->n_ended; i < a->n; i++)
		add_late(a, i, now_ns, &ret);
	return ret;
}

int jm_late_most(struct jm_late late)
{
	return late.ttft > late.tpot ? late.ttft : late.tpot;
}

static json_t *p99_in_bounds(const struct jm_answers *a)
{
	int kept = jm_answers_keep_bounds(a);

	return kept < 0 ? json_null() : json_boolean(kept);
}

static json_t *window_json(const struct jm_answers *a)
{
	const struct jm_work_window *w = &a->window;
	json_int_t done = 0, in = 0, first = 0;
	json_t *json;

	if (!has_window(a))
		return json_null();
	for (int i = 0; i < a->n; i++) {
		done += is_covered(a, &a->answer[i]);
		if (!is_within(w, a->answer[i].first))
			continue;
		first++;
		in += a->answer[i].back ? 0 : a->answer[i].input;
	}
	json = json_object();
	jm_json_set_number(&json, "begin_s", seconds(first_arrival(a), w->t0_ns));
	jm_json_set_number(&json, "seconds", seconds(w->t0_ns, w->t1_ns));
	jm_json_set_int(&json, "requests_done", done);
	jm_json_set_int(&json, "requests_failed", failures(a));
	jm_json_set_int(&json, "tokens_in", in);
	jm_json_set_number(&json, "tokens_out", w->items);
	jm_json_set_int(&json, "tokens_first", first);
	return json;
}

json_t *jm_answers_json(const struct jm_answers *a)
{
	json_t *json = json_object();
	json_int_t done = 0, failed = 0, preempted = 0, times = 0, in = 0, out = 0;

	for (int i = 0; i < a->n; i++) {
		const struct jm_answer *one = &a->answer[i];
		bool is_done = one->state == JM_ANSWER_DONE;

		done += is_done;
		failed += one->state == JM_ANSWER_FAILED;
		preempted += one->preempted > 0;
		times += one->preempted;
		in += is_done ? one->input : 0;
		out += is_done ? one->output : 0;
	}
	jm_json_set_int(&json, "requests_offered", a->n);
	jm_json_set_int(&json, "requests_done", done);
	jm_json_set_int(&json, "requests_failed", failed);
	jm_json_set_int(&json, "requests_preempted", preempted);
	jm_json_set_int(&json, "preemptions", times);
	jm_json_set_int(&json, "tokens_in", in);
	jm_json_set_int(&json, "tokens_out", out);
	jm_json_set_text(&json, "span", has_window(a) ? "window" : "all");
	jm_json_set(&json, "ttft", distribution(a, jm_answer_ttft));
	jm_json_set(&json, "tpot", distribution(a, jm_answer_tpot));
	jm_json_set(&json, "itl", gaps(a));
	jm_json_set(&json, "latency", distribution(a, jm_answer_latency));
	jm_json_set_number(&json, "goodput", goodput(a));
	jm_json_set(&json, "p99_in_bounds", p99_in_bounds(a));
	jm_json_set(&json, "window", window_json(a));
	return json;
}

/* ---- the list of requests -------------------------------------------------------------------- */

static bool put_requests(const void *what, FILE *f)
{
	const struct jm_answers *a = what;
	int64_t begin = first_arrival(a);

	fprintf(f,
		"request,input_tokens,output_tokens,arrival_s,ttft_s,tpot_s,latency_s,in_window\n");
	for (int i = 0; i < a->n; i++) {
		const struct jm_answer *one = &a->answer[i];

		if (one->state != JM_ANSWER_DONE)
			continue;
		fprintf(f, "%d,%d,%d,%.9f,%.9f,", i, one->input, one->output,
			seconds(begin, one->arrived), jm_answer_ttft(one));
		if (!isnan(jm_answer_tpot(one)))
			fprintf(f, "%.12f", jm_answer_tpot(one)); /* a mean of ns */
		fprintf(f, ",%.9f,%d\n", jm_answer_latency(one),
			has_window(a) && is_covered(a, one));
	}
	return !ferror(f);
}

int jm_answers_write_csv(const struct jm_answers *a, const char *path, struct jm_err *err)
{
	return jm_output_by(path, put_requests, a, err);
}
