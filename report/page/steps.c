/* SPDX-License-Identifier: Apache-2.0 */
/* Speed and loss of the steps of one run of each setting, for the page. */
#include "steps.h"
#include "base/text/json.h"
#include "page_details.h"

#include <math.h>
#include <stdlib.h>

#define MOST_RUNS 100
#define MOST_ROWS 15000 /* of all runs together: about 400 kB */
#define LEAST	  50	/* rows of a run */

/* Mean of elements from first on: steps have items alike, so that times add up. */
static json_t *mean_rate(const json_t *rates, size_t first, size_t n)
{
	double seconds = 0;

	for (size_t i = first; i < first + n; i++)
		seconds += 1 / jm_json_real(json_array_get(rates, i));
	return jm_json_number((double)n / seconds);
}

/* {run, every, steps, warmup, end_s, throughput, loss}, of whose lists `join` elements are one
 * here; the last one may stand for fewer steps. */
static json_t *thinned(const json_t *record, int run, size_t join)
{
	const json_t *series = json_object_get(record, "step_series");
	const json_t *from_end = json_object_get(series, "end_s");
	const json_t *from_rate = json_object_get(series, "throughput");
	const json_t *from_loss = json_object_get(series, "loss");
	json_t *end = json_array(), *rate = json_array(), *loss = json_array();
	size_t n = json_array_size(from_end);

	for (size_t i = 0; i < n; i += join) {
		size_t some = n - i < join ? n - i : join;
		json_t *last = json_array_get(from_loss, i + some - 1);

		json_array_append(end, json_array_get(from_end, i + some - 1));
		json_array_append_new(rate, mean_rate(from_rate, i, some));
		json_array_append(loss, last ? last : json_null());
	}
	return json_pack("{s:i, s:I, s:O*, s:O*, s:o, s:o, s:o}", "run", run, "every",
		json_integer_value(json_object_get(series, "every")) * (json_int_t)join, "steps",
		json_object_get(series, "steps"), "warmup", json_object_get(record, "warmup_steps"),
		"end_s", end, "throughput", rate, "loss", loss);
}

static bool has_series(const json_t *record)
{
	const json_t *series = json_object_get(record, "step_series");
	size_t n = json_array_size(json_object_get(series, "end_s"));

	return n > 1 && json_array_size(json_object_get(series, "throughput")) == n;
}

/* The first good run of each setting that has a series. */
static int choose(const struct jm_grouping *g, int ret[MOST_RUNS])
{
	bool *seen = calloc((size_t)g->n_points + 1, sizeof(*seen));
	int n = 0;

	for (int i = 0; seen && i < g->n_cases && n < MOST_RUNS; i++) {
		const struct jm_group_case *c = &g->c[i];

		if (!c->ok || seen[c->point] || !has_series(jm_page_whole_record(g, c)))
			continue;
		seen[c->point] = true;
		ret[n++] = i;
	}
	free(seen);
	return n;
}

json_t *jm_page_steps(const struct jm_grouping *g)
{
	int run[MOST_RUNS], n = choose(g, run);
	size_t room = n ? MOST_ROWS / (size_t)n : 0;
	json_t *out = json_array();

	if (room < LEAST)
		room = LEAST;
	for (int i = 0; i < n; i++) {
		const json_t *record = jm_page_whole_record(g, &g->c[run[i]]);
		const json_t *series = json_object_get(record, "step_series");
		size_t rows = json_array_size(json_object_get(series, "end_s"));

		json_array_append_new(out, thinned(record, run[i], (rows + room - 1) / room));
	}
	return out;
}
