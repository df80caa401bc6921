/* SPDX-License-Identifier: Apache-2.0 */
/* Speed and loss of every step of a run in a fixed amount of memory. */
#include "step_series.h"
#include "base/text/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define DIGITS 7 /* of a number in the record, but not of a loss in f64 */

static void join_pairs(struct jm_step_series *s)
{
	for (int i = 0; i < s->n / 2; i++) {
		const struct jm_step_row *a = &s->row[2 * i], *b = a + 1;

		s->row[i] = (struct jm_step_row){
			b->end_ns, a->seconds + b->seconds, a->items + b->items, b->loss};
	}
	s->n /= 2;
	s->every *= 2;
	s->open = s->every;
}

void jm_step_series_begin(struct jm_step_series *s, int64_t now_ns)
{
	s->begin_ns = now_ns;
}

void jm_step_series_add(struct jm_step_series *s, int64_t end_ns, double items, double loss)
{
	struct jm_step_row *row;

	if (end_ns < s->begin_ns)
		end_ns = s->begin_ns;
	if (!s->every)
		s->every = s->open = 1;
	if (s->n == JM_STEP_ROWS && s->open == s->every)
		join_pairs(s);
	if (!s->n || s->open == s->every) {
		s->row[s->n++] = (struct jm_step_row){.end_ns = end_ns};
		s->open = 0;
	}
	row = &s->row[s->n - 1];
	row->seconds += 1e-9 * (double)(end_ns - s->begin_ns);
	row->items += items;
	row->loss = loss;
	row->end_ns = s->begin_ns = end_ns;
	s->open++;
}

/* The nearest number of few digits, which JSON then has as few digits. */
static json_t *number(double value)
{
	char text[32];

	snprintf(text, sizeof(text), "%.*g", DIGITS, value);
	return jm_json_number(strtod(text, NULL));
}

json_t *jm_step_series_json(const struct jm_step_series *s, int64_t start_ns)
{
	json_t *end = json_array(), *rate = json_array(), *loss = json_array();
	bool any_loss = false;

	for (int i = 0; i < s->n; i++) {
		const struct jm_step_row *r = &s->row[i];
		double microseconds = round(1e-3 * (double)(r->end_ns - start_ns));

		json_array_append_new(end, json_real(microseconds / 1e6));
		json_array_append_new(rate, number(r->seconds > 0 ? r->items / r->seconds : NAN));
		json_array_append_new(loss,
			r->loss == (float)r->loss ? number(r->loss) : jm_json_number(r->loss));
		any_loss = any_loss || isfinite(r->loss);
	}
	if (!any_loss) {
		json_decref(loss);
		loss = NULL;
	}
	if (s->n) {
		int64_t steps = s->every * (s->n - 1) + s->open;

		return json_pack("{s:I, s:I, s:o, s:o, s:o*}", "every", (json_int_t)s->every,
			"steps", (json_int_t)steps, "end_s", end, "throughput", rate, "loss", loss);
	}
	json_decref(end);
	json_decref(rate);
	return NULL;
}
