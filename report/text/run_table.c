/* SPDX-License-Identifier: Apache-2.0 */
#include "run_table.h"

#include <jansson.h>
#include <math.h>

#include "report/format/text.h"
#include "report/judge/series_table.h"

const struct jm_group_case *jm_run_table_next(
	const struct jm_grouping *g, const struct jm_group_series *s, const char *part, int *i)
{
	for (; *i < g->n_cases; ++*i) {
		const struct jm_group_case *c = &g->c[*i];

		if (c->ok && &g->series[c->series] == s &&
			json_is_object(json_object_get(c->record, part)))
			return &g->c[(*i)++];
	}
	return NULL;
}

int jm_run_table_runs(
	const struct jm_grouping *g, const struct jm_group_series *s, const char *part)
{
	int n = 0, i = 0;

	while (jm_run_table_next(g, s, part, &i))
		n++;
	return n;
}

int jm_run_table_number(struct jm_grid *grid, int row, int column, double x, struct jm_err *err)
{
	char text[40];

	jm_text_estimate(x, NAN, text, sizeof(text));
	return jm_grid_set(grid, row, column, err, "%s", text);
}

static int put_head(
	const struct jm_run_table *t, struct jm_grid *grid, bool several, struct jm_err *err)
{
	int rc = several ? jm_grid_set(grid, -1, 0, err, "setting") : 0;

	grid->left[0] = several;
	grid->n_setting = several;
	if (t->label) {
		grid->left[several] = true;
		grid->n_setting++;
		if (!rc)
			rc = jm_grid_set(grid, -1, several, err, "%s", t->label);
	}
	return rc ? rc : t->titles(grid, several + (t->label != NULL), err);
}

int jm_run_table(const struct jm_run_table *t, const struct jm_grouping *g,
	const struct jm_group_series *s, struct jm_grid *ret, struct jm_err *err)
{
	int n = jm_run_table_runs(g, s, t->part), i = 0;
	bool several = n > 1;
	const struct jm_group_case *c;
	struct jm_grid grid;
	int rc = jm_grid_new(&grid, t->rows * n, t->columns + several, err);

	if (rc)
		return rc;
	rc = put_head(t, &grid, several, err);
	for (int row = 0; !rc && (c = jm_run_table_next(g, s, t->part, &i)); row += t->rows) {
		for (int k = 0; several && k < t->rows && !rc; k++)
			rc = jm_series_table_set_run(&grid, row + k, g, c, err);
		if (!rc)
			rc = t->put(&grid, row, several, g, c, err);
	}
	if (rc)
		jm_grid_done(&grid);
	else
		*ret = grid;
	return rc;
}
