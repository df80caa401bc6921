/* SPDX-License-Identifier: Apache-2.0 */
#include "step_times.h"

#include <math.h>

#include "base/text/json.h"

#define PART	"communication"
#define COLUMNS 6
#define FIGURES 3

static const char caption[] =
	"Means over the ranks, by the clocks of their devices. A step is computation alone, "
	"computation beside transfers (overlapped), and waits for transfers (exposed), part of "
	"which "
	"is waiting for slower ranks; concurrent is the share of a step in which a rank computed "
	"and transferred at once. Transfers by kind: sum, of gradients; gather, of what a sharded "
	"update divides; tp, of ranks that share a model; stage, with other stages.";

static const char *const titles[COLUMNS] = {"step ms", "compute alone ms", "overlapped ms",
	"exposed ms", "for slower ranks ms", "concurrent %"};
static const char *const kind_titles[FIGURES] = {"ms", "exposed ms", "overlapped ms"};
static const char *const kind_keys[FIGURES] = {"busy_s", "exposed_s", "overlapped_s"};

static const json_t *ranks_of(const json_t *record)
{
	return json_object_get(json_object_get(record, PART), "ranks");
}

static const json_t *kinds_of(const json_t *rank)
{
	return json_object_get(rank, "kinds");
}

static int known_runs(const struct jm_grouping *g, const struct jm_group_series *s)
{
	const struct jm_group_case *c;
	int n = 0, i = 0;

	while ((c = jm_run_table_next(g, s, PART, &i)))
		n += !isnan(jm_json_real_of(json_object_get(c->record, PART), "concurrent_share"));
	return n;
}

static int put_titles(
	struct jm_grid *grid, int first, const char *const *title, int n, struct jm_err *err)
{
	int rc = 0;

	for (int f = 0; f < n && !rc; f++)
		rc = jm_grid_set(grid, -1, first + f, err, "%s", title[f]);
	return rc;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static double mean_of(const json_t *ranks, const char *key)
{
	double sum = 0;
	const json_t *rank;
	size_t i;

	json_array_foreach(ranks, i, rank) sum += jm_json_real_of(rank, key);
	return sum / (double)json_array_size(ranks);
}

static int share_titles(struct jm_grid *grid, int first, struct jm_err *err)
{
	return put_titles(grid, first, titles, COLUMNS, err);
}

static void shares_of(const json_t *ranks, double ret_ms[JM_STEP_SHARES])
{
	double step = mean_of(ranks, "step_s"), compute = mean_of(ranks, "compute_s");
	double overlapped = mean_of(ranks, "overlapped_s");

	ret_ms[0] = 1e3 * (compute - overlapped);
	ret_ms[1] = 1e3 * overlapped;
	ret_ms[2] = 1e3 * (step - compute);
}

bool jm_step_shares_next(const struct jm_grouping *g, const struct jm_group_series *s, int *i,
	double ret_ms[JM_STEP_SHARES])
{
	const struct jm_group_case *c = jm_run_table_next(g, s, PART, i);

	if (c)
		shares_of(ranks_of(c->record), ret_ms);
	return c != NULL;
}

static int put_shares(struct jm_grid *grid, int row, int first, const struct jm_grouping *g,
	const struct jm_group_case *c, struct jm_err *err)
{
	const json_t *ranks = ranks_of(c->record);
	double concurrent = jm_json_real_of(json_object_get(c->record, PART), "concurrent_share");
	double values[COLUMNS] = {1e3 * mean_of(ranks, "step_s")};
	int rc = 0;

	(void)g;
	shares_of(ranks, &values[1]);
	values[1 + JM_STEP_SHARES] = 1e3 * mean_of(ranks, "late_ranks_s");
	values[2 + JM_STEP_SHARES] = 100 * concurrent;
	for (int f = 0; f < COLUMNS && !rc; f++)
		rc = jm_run_table_number(grid, row, first + f, values[f], err);
	return rc;
}

static int shares_table(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_grid *ret, struct jm_err *err)
{
	static const struct jm_run_table table = {.part = PART,
		.rows = 1,
		.columns = COLUMNS,
		.titles = share_titles,
		.put = put_shares};

	return jm_run_table(&table, g, s, ret, err);
}

/* ---- kinds of transfers ---------------------------------------------------------------------- */

/* Of the ranks that have this kind. */
static double mean_of_kind(const json_t *ranks, const char *kind, const char *key)
{
	double sum = 0;
	const json_t *rank;
	int n = 0;
	size_t i;

	json_array_foreach(ranks, i, rank)
	{
		const json_t *one = jm_json_find(kinds_of(rank), "kind", kind);

		if (!one)
			continue;
		sum += jm_json_real_of(one, key);
		n++;
	}
	return sum / n;
}

static int kind_column_titles(struct jm_grid *grid, int first, struct jm_err *err)
{
	return put_titles(grid, first, kind_titles, FIGURES, err);
}

static int put_kinds(struct jm_grid *grid, int row, int first, const struct jm_grouping *g,
	const struct jm_group_case *c, struct jm_err *err)
{
	const json_t *ranks = ranks_of(c->record), *one;
	int rc = 0;
	size_t i;

	(void)g;
	json_array_foreach(kinds_of(json_array_get(ranks, 0)), i, one)
	{
		const char *kind = jm_json_text(one, "kind");

		if (!rc)
			rc = jm_grid_set(grid, row + (int)i, first, err, "%s", kind);
		for (int f = 0; f < FIGURES && !rc; f++)
			rc = jm_run_table_number(grid, row + (int)i, first + 1 + f,
				1e3 * mean_of_kind(ranks, kind, kind_keys[f]), err);
	}
	return rc;
}

static int most_kinds(const struct jm_grouping *g, const struct jm_group_series *s)
{
	const struct jm_group_case *c;
	int most = 1, i = 0;

	while ((c = jm_run_table_next(g, s, PART, &i))) {
		int n = (int)json_array_size(kinds_of(json_array_get(ranks_of(c->record), 0)));

		most = n > most ? n : most;
	}
	return most;
}

static int kinds_table(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_grid *ret, struct jm_err *err)
{
	const struct jm_run_table table = {.part = PART,
		.rows = most_kinds(g, s),
		.columns = 1 + FIGURES,
		.label = "transfers",
		.titles = kind_column_titles,
		.put = put_kinds};

	return jm_run_table(&table, g, s, ret, err);
}

const struct jm_run_tables jm_step_times = {
	"Where the time of a step went", caption, NULL, known_runs, {shares_table, kinds_table}};
