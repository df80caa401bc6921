/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_results.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/files/output.h"
#include "serve_requests.h"

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

/* {"mean", "p50", "p90", "p99", "max"} in seconds of all that is done; null if nothing is. */
static json_t *distribution(const struct serve *s, double (*of)(const struct serve *s, int number))
{
	int all = jm_scheduler_requests(s->scheduler), n = 0;
	double *x = calloc((size_t)all + 1, sizeof(*x)), sum = 0;
	json_t *ret = NULL;

	for (int i = 0; x && i < all; i++)
		if (jm_serve_is_done(s, i) && !isnan(of(s, i)))
			sum += x[n++] = of(s, i);
	if (n) {
		qsort(x, (size_t)n, sizeof(*x), by_size);
		ret = json_pack("{s:f, s:f, s:f, s:f, s:f}", "mean", sum / n, "p50",
			percentile(x, n, 50), "p90", percentile(x, n, 90), "p99",
			percentile(x, n, 99), "max", x[n - 1]);
	}
	free(x);
	return ret ? ret : json_null();
}

void jm_serve_record(const struct serve *s)
{
	json_int_t done = 0, preempted = 0, in = 0, out = 0;
	int all = jm_scheduler_requests(s->scheduler);

	for (int i = 0; i < all; i++) {
		const struct jm_request *r = jm_scheduler_request(s->scheduler, i);

		done += jm_serve_is_done(s, i);
		preempted += r->preempted;
		in += jm_serve_is_done(s, i) ? r->input : 0;
		out += jm_serve_is_done(s, i) ? r->output : 0;
	}
	json_object_set_new(s->work->more, "serving",
		json_pack("{s:i, s:I, s:i, s:I, s:I, s:I, s:o, s:o, s:o}", "requests_offered", all,
			"requests_done", done, "requests_failed", 0, "preemptions", preempted,
			"tokens_in", in, "tokens_out", out, "ttft", distribution(s, ttft), "tpot",
			distribution(s, tpot), "latency", distribution(s, latency)));
}

int jm_serve_write_csv(const struct serve *s, struct jm_err *err)
{
	FILE *f = fopen(s->csv, "w");
	bool good = f != NULL;

	if (f)
		fprintf(f,
			"request,input_tokens,output_tokens,arrival_s,ttft_s,tpot_s,latency_s\n");
	for (int i = 0; f && i < jm_scheduler_requests(s->scheduler); i++) {
		const struct jm_request *r = jm_scheduler_request(s->scheduler, i);

		if (!jm_serve_is_done(s, i))
			continue;
		fprintf(f, "%d,%d,%d,%.9f,%.9f,", i, r->input, r->output,
			seconds(s->answer[0].arrived, s->answer[i].arrived), ttft(s, i));
		if (r->output > 1)
			fprintf(f, "%.12f", tpot(s, i)); /* a mean of ns */
		fprintf(f, ",%.9f\n", latency(s, i));
	}
	if (f && (ferror(f) | fclose(f)))
		good = false;
	return good ? 0
		    : jm_err_set(err, JM_EIO, "The file '%s' of --requests-csv cannot be written.",
			      s->csv);
}

static json_t *tokens_of(const struct serve *s, int number, int from, int n)
{
	json_t *ret = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(ret, json_integer(jm_serve_token(s, number, from + i)));
	return ret;
}

static json_t *answer_json(const struct serve *s, int number)
{
	const struct jm_request *r = jm_scheduler_request(s->scheduler, number);
	json_t *ret = json_pack("{s:i, s:o, s:o}", "request", number, "prompt_tokens",
		tokens_of(s, number, 0, r->input), "tokens",
		tokens_of(s, number, r->input, r->output));
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
