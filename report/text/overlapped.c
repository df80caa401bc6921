/* SPDX-License-Identifier: Apache-2.0 */
#include "overlapped.h"

#include "base/text/json.h"
#include "report/judge/series_table.h"

#define PARTS	3
#define FIGURES 7
#define SAVINGS 4

static const char caption[] =
	"The figures are for one pair of products and transfers on rank 0: each alone, each beside "
	"the other, and both at once. Exposed is the time that the transfers add to that of the "
	"products alone. Overlapped is the time saved compared with running one after the other. "
	"If "
	"both / longer is 1, the shorter one is fully hidden. J is the energy of a pair on one "
	"rank.";

static const struct {
	const char *key, *title;
} parts[PARTS] = {{"product", "products"}, {"collective", "transfers"}, {"both", "both at once"}};

/* scale: of seconds to ms. "-" stands where a part has no such key. */
static const struct figure {
	const char *key, *title;
	double scale;
} figures[FIGURES] = {{"seconds", "ms", 1e3}, {"beside_s", "ms beside the other", 1e3},
	{"slowdown", "slow-down", 1}, {"watts", "W", 1}, {"error_watts", "± W", 1},
	{"joules", "J", 1}, {"error_joules", "± J", 1}},
  savings[SAVINGS] = {{"seconds", "both ms", 1e3}, {"exposed_s", "exposed ms", 1e3},
	  {"overlapped_s", "overlapped ms", 1e3}, {"of_longer", "both / longer", 1}};

#define PART "overlap"

static int known_runs(const struct jm_grouping *g, const struct jm_group_series *s)
{
	return jm_run_table_runs(g, s, PART);
}

static int put_titles(
	struct jm_grid *grid, int first, const struct figure *figure, int n, struct jm_err *err)
{
	int rc = 0;

	for (int f = 0; f < n && !rc; f++)
		rc = jm_grid_set(grid, -1, first + f, err, "%s", figure[f].title);
	return rc;
}

static int put_figures(struct jm_grid *grid, int row, int first, const struct figure *figure, int n,
	const json_t *part, struct jm_err *err)
{
	int rc = 0;

	for (int f = 0; f < n && !rc; f++)
		rc = jm_run_table_number(grid, row, first + f,
			figure[f].scale * jm_json_real_of(part, figure[f].key), err);
	return rc;
}

/* ---- products, transfers, both --------------------------------------------------------------- */

static int parts_titles(struct jm_grid *grid, int first, struct jm_err *err)
{
	return put_titles(grid, first, figures, FIGURES, err);
}

static int put_parts(struct jm_grid *grid, int row, int first, const struct jm_grouping *g,
	const struct jm_group_case *c, struct jm_err *err)
{
	const json_t *overlap = json_object_get(c->record, PART);
	int rc = 0;

	(void)g;
	for (int k = 0; k < PARTS && !rc; k++) {
		rc = jm_grid_set(grid, row + k, first, err, "%s", parts[k].title);
		if (!rc)
			rc = put_figures(grid, row + k, first + 1, figures, FIGURES,
				json_object_get(overlap, parts[k].key), err);
	}
	return rc;
}

static int parts_table(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_grid *ret, struct jm_err *err)
{
	static const struct jm_run_table table = {.part = PART,
		.rows = PARTS,
		.columns = 1 + FIGURES,
		.label = "of a pair",
		.titles = parts_titles,
		.put = put_parts};

	return jm_run_table(&table, g, s, ret, err);
}

/* ---- both at once ---------------------------------------------------------------------------- */

static int savings_titles(struct jm_grid *grid, int first, struct jm_err *err)
{
	return put_titles(grid, first, savings, SAVINGS, err);
}

static int put_savings(struct jm_grid *grid, int row, int first, const struct jm_grouping *g,
	const struct jm_group_case *c, struct jm_err *err)
{
	const json_t *overlap = json_object_get(c->record, PART);

	(void)g;
	return put_figures(
		grid, row, first, savings, SAVINGS, json_object_get(overlap, "both"), err);
}

static int both_table(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_grid *ret, struct jm_err *err)
{
	static const struct jm_run_table table = {.part = PART,
		.rows = 1,
		.columns = SAVINGS,
		.titles = savings_titles,
		.put = put_savings};

	return jm_run_table(&table, g, s, ret, err);
}

const struct jm_run_tables jm_overlapped = {
	"Products beside transfers", caption, NULL, known_runs, {parts_table, both_table}};
