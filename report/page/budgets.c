/* SPDX-License-Identifier: Apache-2.0 */
/* The limits that a power budget was shared among, for the page. */
#include "budgets.h"
#include "base/text/json.h"
#include "page_details.h"

#include <math.h>

#define MOST_RUNS   20
#define MOST_LIMITS 20000 /* of all runs together: about 150 kB */

/* The last changes, by key; of each device a list. */
static json_t *by_key(const json_t *changes, size_t devices, size_t most)
{
	size_t n = json_array_size(changes), first = n > most ? n - most : 0;
	json_t *out = json_object(), *start = json_array(), *watts = json_array();

	for (size_t k = 0; k < devices; k++)
		json_array_append_new(watts, json_array());
	for (size_t i = first; i < n; i++) {
		const json_t *change = json_array_get(changes, i);

		json_array_append(start, json_object_get(change, "start_s"));
		for (size_t k = 0; k < devices; k++) {
			json_t *w = json_array_get(json_object_get(change, "watts"), k);

			json_array_append(json_array_get(watts, k), w ? w : json_null());
		}
	}
	jm_json_set(&out, "start_s", start);
	jm_json_set(&out, "watts", watts);
	return out;
}

static const json_t *changes_of(const json_t *record)
{
	return json_object_get(json_object_get(record, "budget"), "changes");
}

/* When the last phase ended, s; NAN = unknown. */
static double end_of(const json_t *record)
{
	double end = NAN;
	const json_t *phase;
	size_t i;

	json_array_foreach(json_object_get(record, "phases"), i, phase) end =
		fmax(end, jm_json_real(json_object_get(phase, "end_s")));
	return end;
}

static json_t *budget_of(const json_t *record, int run, size_t most_limits)
{
	json_t *out = json_copy(json_object_get(record, "budget"));
	size_t devices = json_array_size(json_object_get(out, "limits"));

	jm_json_set_int(&out, "run", run);
	jm_json_set_number(&out, "end_s", end_of(record));
	jm_json_set_int(&out, "changes_made", (json_int_t)json_array_size(changes_of(record)));
	jm_json_set(&out, "changes",
		by_key(changes_of(record), devices, devices ? most_limits / devices : 0));
	return out;
}

json_t *jm_page_budgets(const struct jm_grouping *g)
{
	int run[MOST_RUNS], n = 0;
	json_t *out = json_array();

	for (int i = 0; i < g->n_cases && n < MOST_RUNS; i++)
		if (json_array_size(changes_of(jm_page_whole_record(g, &g->c[i]))))
			run[n++] = i;
	for (int i = 0; i < n; i++)
		json_array_append_new(out, budget_of(jm_page_whole_record(g, &g->c[run[i]]), run[i],
						   MOST_LIMITS / (size_t)n));
	return out;
}
