/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_usage.h"

#include <jansson.h>

#include "base/text/json.h"
#include "serve_split.h"

int jm_serve_under_way(const struct serve *s)
{
	int n = jm_scheduler_unfinished(s->scheduler);

	for (int i = 0; i < s->n_flights; i++)
		n += s->flight[i].ends;
	return n;
}

void jm_serve_note_step(struct serve *s, const struct jm_serve_flight *f, int64_t taken_ns)
{
	double seconds = (double)(taken_ns - (s->awaited_more ? s->taken_ns : f->begin_ns)) / 1e9;

	s->usage.seconds += seconds;
	s->usage.running += seconds * f->pieces;
	s->usage.pages += seconds * f->pages / s->pages;
	s->usage.rows += (double)f->rows;
	s->usage.computed += s->served.size[jm_served_program(&s->served, f->rows)];
	if (s->awaited_more && s->served.idle_s > 0)
		s->usage.idle += s->served.idle_s;
	jm_serve_split_step(s, f, taken_ns, seconds);
	s->awaited_more = f->more;
	s->taken_ns = taken_ns;
}

void jm_serve_add_usage(const struct serve *s, json_t *to)
{
	const struct jm_serve_usage *u = &s->usage;

	json_object_set_new(to, "mean_running", jm_json_number(u->running / u->seconds));
	json_object_set_new(to, "padding", jm_json_number((u->computed - u->rows) / u->computed));
	json_object_set_new(to, "cache_use", jm_json_number(u->pages / u->seconds));
	json_object_set_new(
		to, "cache_type", json_string(jm_cache_type_name(s->kv, s->training.precision)));
	json_object_set_new(to, "device_idle", jm_json_number(u->idle / u->seconds));
}
