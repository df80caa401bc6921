/* SPDX-License-Identifier: Apache-2.0 */
#include "overlapped.h"

#include <math.h>

#include "base/text/json.h"
#include "report/format/text.h"
#include "report/judge/grid.h"

#define PARTS	3
#define FIGURES 5
#define SAVINGS 4

const char jm_overlapped_caption[] =
	"Of a pair of products and transfers, on rank 0: each alone, beside the other, and both at "
	"once. Exposed is what the transfers add to the products alone, overlapped what is saved "
	"against one after the other; both / longer of 1 hides the shorter one. J of a pair of one "
	"rank.";

static const struct {
	const char *key, *title;
} parts[PARTS] = {{"product", "products"}, {"collective", "transfers"}, {"both", "both at once"}};

/* scale: of seconds to ms. "-" stands where a part has no such key. */
static const struct figure {
	const char *key, *title;
	double scale;
} figures[FIGURES] = {{"seconds", "ms", 1e3}, {"beside_s", "ms beside the other", 1e3},
	{"slowdown", "slow-down", 1}, {"watts", "W", 1}, {"joules", "J", 1}},
  savings[SAVINGS] = {{"seconds", "both ms", 1e3}, {"exposed_s", "exposed ms", 1e3},
	  {"overlapped_s", "overlapped ms", 1e3}, {"of_longer", "both / longer", 1}};

/* The next run from number i on that is of this workload; NULL = there is none. */
static const struct jm_group_case *next_run(
	const struct jm_grouping *g, const struct jm_group_series *s, int *i)
{
	for (; *i < g->n_cases; ++*i) {
		const struct jm_group_case *c = &g->c[*i];

		if (c->ok && &g->series[c->series] == s &&
			json_is_object(json_object_get(c->record, "overlap")))
			return &g->c[(*i)++];
	}
	return NULL;
}

int jm_overlapped_runs(const struct jm_grouping *g, const struct jm_group_series *s)
{
	int n = 0, i = 0;

	while (next_run(g, s, &i))
		n++;
	return n;
}

/* A table whose first column is the setting where there are several runs. */
static int start(struct jm_grid *grid, int rows, int columns, bool several, struct jm_err *err)
{
	int rc = jm_grid_new(grid, rows, columns + several, err);

	if (rc)
		return rc;
	grid->left[0] = several;
	grid->n_setting = several;
	return several ? jm_grid_set(grid, -1, 0, err, "setting") : 0;
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
	char text[40];
	int rc = 0;

	for (int f = 0; f < n && !rc; f++) {
		jm_text_estimate(figure[f].scale * jm_json_real_of(part, figure[f].key), NAN, text,
			sizeof(text));
		rc = jm_grid_set(grid, row, first + f, err, "%s", text);
	}
	return rc;
}

static int put_parts(struct jm_grid *grid, int first, bool several, const struct jm_grouping *g,
	const struct jm_group_case *c, struct jm_err *err)
{
	const json_t *overlap = json_object_get(c->record, "overlap");
	int rc = 0;

	for (int k = 0; k < PARTS && !rc; k++) {
		if (several)
			rc = jm_grid_run(grid, first + k, g, c, err);
		if (!rc)
			rc = jm_grid_set(grid, first + k, several, err, "%s", parts[k].title);
		if (!rc)
			rc = put_figures(grid, first + k, several + 1, figures, FIGURES,
				json_object_get(overlap, parts[k].key), err);
	}
	return rc;
}

int jm_overlapped_parts(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_grid *ret, struct jm_err *err)
{
	int n = jm_overlapped_runs(g, s), i = 0;
	const struct jm_group_case *c;
	struct jm_grid grid;
	int rc = start(&grid, PARTS * n, 1 + FIGURES, n > 1, err);

	if (rc)
		return rc;
	grid.left[n > 1] = true;
	grid.n_setting = 1 + (n > 1);
	rc = jm_grid_set(&grid, -1, n > 1, err, "of a pair");
	if (!rc)
		rc = put_titles(&grid, 1 + (n > 1), figures, FIGURES, err);
	for (int row = 0; !rc && (c = next_run(g, s, &i)); row += PARTS)
		rc = put_parts(&grid, row, n > 1, g, c, err);
	if (rc)
		jm_grid_done(&grid);
	else
		*ret = grid;
	return rc;
}

int jm_overlapped_both(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_grid *ret, struct jm_err *err)
{
	int n = jm_overlapped_runs(g, s), i = 0;
	const struct jm_group_case *c;
	struct jm_grid grid;
	int rc = start(&grid, n, SAVINGS, n > 1, err);

	if (rc)
		return rc;
	rc = put_titles(&grid, n > 1, savings, SAVINGS, err);
	for (int row = 0; !rc && (c = next_run(g, s, &i)); row++) {
		const json_t *overlap = json_object_get(c->record, "overlap");

		if (n > 1)
			rc = jm_grid_run(&grid, row, g, c, err);
		if (!rc)
			rc = put_figures(&grid, row, n > 1, savings, SAVINGS,
				json_object_get(overlap, "both"), err);
	}
	if (rc)
		jm_grid_done(&grid);
	else
		*ret = grid;
	return rc;
}
