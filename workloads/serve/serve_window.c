/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_window.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "base/text/json.h"
#include "serve_requests.h"

void jm_serve_note_step(struct serve *s, int64_t begin_ns, int pieces, int64_t rows)
{
	double seconds = (double)(jm_clock_now(s->work->sleeper->clock) - begin_ns) / 1e9;
	int free_pages = jm_scheduler_free_pages(s->scheduler);
	int64_t computed = 1; /* programs have powers of two of rows */

	while (computed < rows)
		computed *= 2;
	s->usage.seconds += seconds;
	s->usage.running += seconds * pieces;
	s->usage.pages += seconds * (s->pages - free_pages);
	s->usage.rows += rows;
	s->usage.computed += computed;
}

/* ---- the window ----------------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int64_t arrived(const struct answer *a)
{
	return a->arrived;
}

static int64_t first(const struct answer *a)
{
	return a->first ? a->first : INT64_MAX;
}

static int64_t end(const struct answer *a)
{
	return a->end ? a->end : INT64_MAX;
}

/* The times of all requests, sorted; INT64_MAX = not yet. NULL when out of memory; to be freed. */
static int64_t *times(const struct serve *s, int64_t (*of)(const struct answer *a))
{
	int n = jm_scheduler_requests(s->scheduler);
	int64_t *ret = calloc((size_t)n + 1, sizeof(*ret));

	for (int i = 0; ret && i < n; i++)
		ret[i] = of(&s->answer[i]);
	if (ret)
		qsort(ret, (size_t)n, sizeof(*ret), by_time);
	return ret;
}

/* The time of the latest token of all. */
static int64_t last_token(const struct serve *s)
{
	int64_t last = 0;

	for (int i = 0; i < jm_scheduler_requests(s->scheduler); i++) {
		int made = jm_scheduler_request(s->scheduler, i)->made;

		if (made && s->answer[i].made[made - 1] > last)
			last = s->answer[i].made[made - 1];
	}
	return last;
}

static void window_of_running(const struct serve *s, struct jm_work_window *w)
{
	int n = jm_scheduler_requests(s->scheduler);
	int64_t *begun = times(s, first), *ended = times(s, end), last = last_token(s);

	if (begun && ended && n > s->running + 1) {
		w->t0_ns = begun[s->running - 1];
		w->t1_ns = ended[n - s->running - 2];
		w->t1_ns = w->t1_ns < last ? w->t1_ns : last;
	}
	free(begun);
	free(ended);
}

static void window_of_arrivals(const struct serve *s, struct jm_work_window *w)
{
	int n = jm_scheduler_requests(s->scheduler);
	int64_t *at = n ? times(s, arrived) : NULL;

	if (at) {
		w->t0_ns = at[(int)ceil(0.1 * (n - 1))];
		w->t1_ns = at[(int)floor(0.9 * (n - 1))];
	}
	free(at);
}

/* Tokens that were made after the window begins and not after it ends. */
static int64_t tokens_in(const struct serve *s, const struct jm_work_window *w)
{
	int64_t tokens = 0;

	for (int i = 0; i < jm_scheduler_requests(s->scheduler); i++) {
		int made = jm_scheduler_request(s->scheduler, i)->made;

		for (int k = 0; k < made; k++)
			tokens +=
				s->answer[i].made[k] > w->t0_ns && s->answer[i].made[k] <= w->t1_ns;
	}
	return tokens;
}

bool jm_serve_find_window(struct serve *s)
{
	struct jm_work_window w = {0};

	if (s->arrivals.kind == ARRIVE_ALL || s->arrivals.kind == ARRIVE_CLOSED)
		window_of_running(s, &w);
	else
		window_of_arrivals(s, &w);
	if (w.t0_ns < s->work->steady_ns)
		w.t0_ns = s->work->steady_ns;
	if (w.t1_ns <= w.t0_ns)
		return false;
	w.items = (double)tokens_in(s, &w);
	s->work->window = w;
	return true;
}

/* ---- the record ----------------------------------------------------------------------------------------- */

static json_t *window_json(const struct serve *s)
{
	const struct jm_work_window *w = &s->work->window;
	json_int_t done = 0;

	if (w->t1_ns <= w->t0_ns)
		return json_null();
	for (int i = 0; i < jm_scheduler_requests(s->scheduler); i++)
		done += s->answer[i].end > w->t0_ns && s->answer[i].end <= w->t1_ns;
	return json_pack("{s:f, s:f, s:I, s:I}", "begin_s",
		(double)(w->t0_ns - s->answer[0].arrived) / 1e9, "seconds",
		(double)(w->t1_ns - w->t0_ns) / 1e9, "requests_done", done, "tokens_out",
		(json_int_t)w->items);
}

void jm_serve_add_window(const struct serve *s, json_t *to)
{
	const struct jm_serve_usage *u = &s->usage;

	json_object_set_new(to, "mean_running", jm_json_number(u->running / u->seconds));
	json_object_set_new(to, "padding",
		jm_json_number((double)(u->computed - u->rows) / (double)u->computed));
	json_object_set_new(to, "cache_use", jm_json_number(u->pages / u->seconds / s->pages));
	json_object_set_new(to, "window", window_json(s));
}
