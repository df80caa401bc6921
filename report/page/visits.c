/* SPDX-License-Identifier: Apache-2.0 */
/* The visits of tuners, for the page. */
#include "visits.h"
#include "base/text/json.h"
#include "page_details.h"

#define MOST_RUNS 50
#define MOST_ROWS 5000 /* visits of all runs together: about 250 kB */
#define LEAST	  50   /* of a run */

/* The last `most` visits by key: {"start_s": [...], ...}. */
static json_t *by_key(const json_t *visits, size_t most)
{
	static const char *const keys[] = {"start_s", "stage", "found", "value", "second",
		"objective", "objective_error", "aside", NULL};
	size_t n = json_array_size(visits), first = n > most ? n - most : 0;
	json_t *out = json_object();

	for (int k = 0; keys[k]; k++) {
		json_t *list = json_array();

		for (size_t i = first; i < n; i++) {
			json_t *value = json_object_get(json_array_get(visits, i), keys[k]);

			json_array_append(list, value ? value : json_null());
		}
		json_object_set_new(out, keys[k], list);
	}
	return out;
}

static json_t *visits_of(const json_t *record)
{
	return json_object_get(json_object_get(record, "tune"), "visits");
}

/* All that the record says of the search, besides its visits. */
static json_t *tuned(const json_t *record, int run, size_t most)
{
	json_t *out = json_copy(json_object_get(record, "tune"));

	json_object_set_new(out, "run", json_integer(run));
	json_object_set_new(out, "visits", by_key(visits_of(record), most));
	return out;
}

json_t *jm_page_visits(const struct jm_grouping *g)
{
	int run[MOST_RUNS], n = 0;
	json_t *out = json_array();

	for (int i = 0; i < g->n_cases && n < MOST_RUNS; i++)
		if (json_array_size(visits_of(jm_page_whole_record(g, &g->c[i]))))
			run[n++] = i;
	for (int i = 0; i < n; i++) {
		size_t most = MOST_ROWS / (size_t)n;

		json_array_append_new(out, tuned(jm_page_whole_record(g, &g->c[run[i]]), run[i],
						   most > LEAST ? most : LEAST));
	}
	return out;
}
