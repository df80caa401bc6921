/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_usage.h"

#include <jansson.h>

#include "base/text/json.h"

void jm_serve_note_step(struct serve *s, int64_t begin_ns, int pieces, int64_t rows)
{
	double seconds = (double)(jm_clock_now(s->work->sleeper->clock) - begin_ns) / 1e9;
	int free_pages = jm_scheduler_free_pages(s->scheduler);
	int64_t computed = s->cache.size[jm_cache_program(&s->cache, rows)];

	s->usage.seconds += seconds;
	s->usage.running += seconds * pieces;
	s->usage.pages += seconds * (s->pages - free_pages);
	s->usage.rows += rows;
	s->usage.computed += computed;
}

void jm_serve_add_usage(const struct serve *s, json_t *to)
{
	const struct jm_serve_usage *u = &s->usage;

	json_object_set_new(to, "mean_running", jm_json_number(u->running / u->seconds));
	json_object_set_new(to, "padding",
		jm_json_number((double)(u->computed - u->rows) / (double)u->computed));
	json_object_set_new(to, "cache_use", jm_json_number(u->pages / u->seconds / s->pages));
}
