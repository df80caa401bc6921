/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_results.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/files/output.h"
#include "base/text/json.h"
#include "serve_requests.h"
#include "serve_window.h"

static double seconds(int64_t from, int64_t to)
{
	return (double)(to - from) / 1e9;
}

static double ttft(const struct serve *s, int number)
{
	return seconds(s->answer[number].arrived, s->answer[number].first);
}

/* NAN for an answer of one token. */
static double tpot(const struct serve *s, int number)
{
	int output = jm_scheduler_request(s->scheduler, number)->output;

	return output > 1 ? seconds(s->answer[number].first, s->answer[number].end) / (output - 1)
			  : NAN;
}

static double latency(const struct serve *s, int number)
{
	return seconds(s->answer[number].arrived, s->answer[number].end);
}

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Linear between the two nearest, as numpy.percentile does by default. x is sorted, n above 0. */
static double percentile(const double *x, int n, double percent)
{
	double at = percent / 100 * (n - 1);
	int below = (int)at, above = below + 1 < n ? below + 1 : below;

	return x[below] + (at - below) * (x[above] - x[below]);
}

/* {"mean", "p50", "p90", "p99", "max"} of x, which it sorts; null if n is 0. */
static json_t *spread(double *x, int n)
{
	double sum = 0;

	if (!n)
		return json_null();
	for (int i = 0; i < n; i++)
		sum += x[i];
	qsort(x, (size_t)n, sizeof(*x), by_size);
	return json_pack("{s:f, s:f, s:f, s:f, s:f}", "mean", sum / n, "p50", percentile(x, n, 50),
		"p90", percentile(x, n, 90), "p99", percentile(x, n, 99), "max", x[n - 1]);
}

/* In seconds, of all that is done. */
static json_t *distribution(const struct serve *s, double (*of)(const struct serve *s, int number))
{
	int all = jm_scheduler_requests(s->scheduler), n = 0;
	double *x = calloc((size_t)all + 1, sizeof(*x));
	json_t *ret;

	for (int i = 0; x && i < all; i++)
		if (jm_serve_is_done(s, i) && !isnan(of(s, i)))
			x[n++] = of(s, i);
	ret = spread(x, n);
	free(x);
	return ret;
}

/* From each token to the next, in seconds, of all answers that are done. */
static json_t *gaps(const struct serve *s, json_int_t tokens_out)
{
	double *x = calloc((size_t)tokens_out + 1, sizeof(*x));
	json_t *ret;
	int n = 0;

	for (int i = 0; x && i < jm_scheduler_requests(s->scheduler); i++) {
		int output = jm_scheduler_request(s->scheduler, i)->output;
		const int64_t *made = s->answer[i].made;

		for (int k = 1; k < output && jm_serve_is_done(s, i); k++)
			x[n++] = seconds(made[k - 1], made[k]);
	}
	ret = spread(x, n);
	free(x);
	return ret;
}

/* A bound that is not given holds, and so does that of each token in an answer of one. */
static bool within(const struct serve *s, int number)
{
	return !(ttft(s, number) > s->ttft) && !(tpot(s, number) > s->tpot);
}

/* Requests per second that keep the bounds, from the first arrival to the last end; NAN without bounds. */
static double goodput(const struct serve *s)
{
	int64_t end = 0;
	int good = 0;

	for (int i = 0; i < jm_scheduler_requests(s->scheduler); i++) {
		if (!jm_serve_is_done(s, i))
			continue;
		good += within(s, i);
		end = s->answer[i].end > end ? s->answer[i].end : end;
	}
	if (!end || (isnan(s->ttft) && isnan(s->tpot)))
		return NAN;
	return good / seconds(s->answer[0].arrived, end);
}

void jm_serve_record(const struct serve *s)
{
	json_int_t done = 0, preempted = 0, times = 0, in = 0, out = 0;
	json_t *serving;
	int all = jm_scheduler_requests(s->scheduler);

	for (int i = 0; i < all; i++) {
		const struct jm_request *r = jm_scheduler_request(s->scheduler, i);

		done += jm_serve_is_done(s, i);
		preempted += r->preempted > 0;
		times += r->preempted;
		in += jm_serve_is_done(s, i) ? r->input : 0;
		out += jm_serve_is_done(s, i) ? r->output : 0;
	}
	serving = json_pack("{s:i, s:I, s:i, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}",
		"requests_offered", all, "requests_done", done, "requests_failed", 0,
		"requests_preempted", preempted, "preemptions", times, "tokens_in", in,
		"tokens_out", out, "ttft", distribution(s, ttft), "tpot", distribution(s, tpot),
		"itl", gaps(s, out), "latency", distribution(s, latency));
	json_object_set_new(serving, "goodput", jm_json_number(goodput(s)));
	jm_serve_add_window(s, serving);
	json_object_set_new(s->work->more, "serving", serving);
}

static bool put_requests(const void *what, FILE *f)
{
	const struct serve *s = what;

	fprintf(f, "request,input_tokens,output_tokens,arrival_s,ttft_s,tpot_s,latency_s\n");
	for (int i = 0; i < jm_scheduler_requests(s->scheduler); i++) {
		const struct jm_request *r = jm_scheduler_request(s->scheduler, i);

		if (!jm_serve_is_done(s, i))
			continue;
		fprintf(f, "%d,%d,%d,%.9f,%.9f,", i, r->input, r->output,
			seconds(s->answer[0].arrived, s->answer[i].arrived), ttft(s, i));
		if (r->output > 1)
			fprintf(f, "%.12f", tpot(s, i)); /* a mean of ns */
		fprintf(f, ",%.9f\n", latency(s, i));
	}
	return !ferror(f);
}

int jm_serve_write_csv(const struct serve *s, struct jm_err *err)
{
	return jm_output_by(s->csv, put_requests, s, err);
}

static json_t *tokens_of(const struct serve *s, int number, int from, int n)
{
	json_t *ret = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(ret, json_integer(jm_serve_token(s, number, from + i)));
	return ret;
}

/* Seconds from its arrival to each token. */
static json_t *token_times(const struct serve *s, int number)
{
	const struct answer *a = &s->answer[number];
	json_t *ret = json_array();

	for (int i = 0; i < jm_scheduler_request(s->scheduler, number)->output; i++)
		json_array_append_new(ret, json_real(seconds(a->arrived, a->made[i])));
	return ret;
}

static json_t *answer_json(const struct serve *s, int number)
{
	const struct jm_request *r = jm_scheduler_request(s->scheduler, number);
	json_t *ret = json_pack("{s:i, s:o, s:o, s:o}", "request", number, "prompt_tokens",
		tokens_of(s, number, 0, r->input), "tokens",
		tokens_of(s, number, r->input, r->output), "token_s", token_times(s, number));
	int n;

	if (s->prompts.n) {
		const int32_t *prompt = jm_serve_prompt(s, number, &n);

		json_object_set_new(ret, "prompt", jm_prompts_text(&s->prompts, prompt, n));
		json_object_set_new(ret, "text",
			jm_prompts_text(&s->prompts, s->answer[number].token, r->output));
	}
	return ret;
}

static bool put_answers(const void *what, FILE *f)
{
	const struct serve *s = what;

	for (int i = 0; i < jm_scheduler_requests(s->scheduler) && !ferror(f); i++) {
		json_t *line = jm_serve_is_done(s, i) ? answer_json(s, i) : NULL;

		if (line && !json_dumpf(line, f, JSON_COMPACT))
			fputc('\n', f);
		json_decref(line);
	}
	return !ferror(f);
}

int jm_serve_write_answers(const struct serve *s, struct jm_err *err)
{
	return jm_output_by(s->answers, put_answers, s, err);
}
