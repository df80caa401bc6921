/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a series as text cells. Values of settings that were not kept stand in parentheses. */
#include "grid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COLUMNS (3 * JM_GROUP_MAX_DIMS + JM_M_ALL + 4)

enum column_kind { SETTING, ACCEPTED, ENFORCED, STATE, RUNS, METRIC, ORIGIN };

struct column {
	enum column_kind kind;
	int index; /* of the dimension or metric */
	double factor;
	char title[80];
};

static void add(struct column *columns, int *n, enum column_kind kind, int index, const char *title)
{
	struct column *c = &columns[(*n)++];

	c->kind = kind;
	c->index = index;
	c->factor = 1;
	jm_text_format(c->title, sizeof(c->title), "%s", title);
}

static bool varies(const struct jm_group *g, const struct jm_group_series *s, int dim)
{
	const struct jm_group_point *first = &g->point[s->first_point];

	for (int i = 1; i < s->n_points; i++)
		if (strcmp(first[i].value[dim].key, first->value[dim].key))
			return true;
	return false;
}

static bool known(const struct jm_group *g, const struct jm_group_series *s, int metric)
{
	for (int i = s->first_point; i < s->first_point + s->n_points; i++)
		if (g->point[i].stat[metric].n)
			return true;
	return false;
}

static bool one_device(const struct jm_group *g, const struct jm_group_series *s)
{
	for (int i = s->first_point; i < s->first_point + s->n_points; i++)
		if (g->point[i].stat[JM_M_THROUGHPUT].n &&
			g->point[i].stat[JM_M_THROUGHPUT].mean !=
				g->point[i].stat[JM_M_THROUGHPUT_DEVICE].mean)
			return false;
	return true;
}

/* The largest mean decides the prefix of the column. */
static void add_metric(const struct jm_group *g, const struct jm_group_series *s, int metric,
	struct column *columns, int *n)
{
	char title[80], unit[48];
	const char *prefix;
	double largest = 0, factor;

	if (!known(g, s, metric) || (metric == JM_M_THROUGHPUT_DEVICE && one_device(g, s)))
		return;
	for (int i = s->first_point; i < s->first_point + s->n_points; i++)
		if (g->point[i].stat[metric].n)
			largest = fmax(largest, fabs(g->point[i].stat[metric].mean));
	jm_group_metric_unit(s, metric, unit, sizeof(unit));
	factor = jm_text_prefix(unit, largest, &prefix);
	if (metric >= JM_M_EDS)
		jm_group_metric_title(g, s, metric, title, sizeof(title));
	else if (metric == JM_M_THROUGHPUT_DEVICE)
		snprintf(title, sizeof(title), "%s/device", unit);
	else if (metric == JM_M_WATTS_MAX || metric == JM_M_WATTS_MEDIAN)
		snprintf(title, sizeof(title), "%s W", metric == JM_M_WATTS_MAX ? "max" : "median");
	else if (metric == JM_M_EDP)
		snprintf(title, sizeof(title), "EDP %s%s", prefix, unit);
	else if (metric >= JM_M_GAIN)
		snprintf(title, sizeof(title), "%s %%",
			metric == JM_M_GAIN   ? "energy gain"
			: metric == JM_M_LOSS ? "time loss"
					      : "gain - loss");
	else
		snprintf(title, sizeof(title), "%s%s", prefix, unit);
	add(columns, n, METRIC, metric, title);
	columns[*n - 1].factor = factor;
}

static void add_settings(const struct jm_group *g, const struct jm_group_series *s,
	struct column *columns, int *n, int *ret_n_setting)
{
	bool knobs = false;
	char title[80];

	for (int i = 0; i < g->n_dims; i++)
		if (varies(g, s, i) || g->n_dims == 1)
			add(columns, n, SETTING, i, g->dim[i].name);
	if (!*n)
		add(columns, n, SETTING, 0, g->n_dims ? g->dim[0].name : "setting");
	*ret_n_setting = *n;
	for (int i = 0, shown = *n; i < shown; i++) {
		int dim = columns[i].index;

		if (dim >= g->n_dims || !g->dim[dim].knob)
			continue;
		knobs = true;
		jm_text_format(title, sizeof(title), "%s%saccepted",
			shown > 1 ? g->dim[dim].name : "", shown > 1 ? " " : "");
		add(columns, n, ACCEPTED, dim, title);
		jm_text_format(title, sizeof(title), "%s%senforced",
			shown > 1 ? g->dim[dim].name : "", shown > 1 ? " " : "");
		add(columns, n, ENFORCED, dim, title);
	}
	if (knobs)
		add(columns, n, STATE, 0, "state");
	add(columns, n, RUNS, 0, "n");
}

static int choose_columns(const struct jm_group *g, const struct jm_group_series *s,
	struct column *columns, int *ret_n_setting)
{
	static const int before[] = {JM_M_THROUGHPUT, JM_M_THROUGHPUT_DEVICE, JM_M_WATTS,
		JM_M_WATTS_MEDIAN, JM_M_WATTS_MAX, JM_M_JOULES_ITEM, JM_M_ITEMS_JOULE,
		JM_M_ITEMS_WH, JM_M_EDP};
	int n = 0;

	add_settings(g, s, columns, &n, ret_n_setting);
	for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++)
		add_metric(g, s, before[i], columns, &n);
	for (int i = 0; i < g->options.n_k; i++)
		add_metric(g, s, JM_M_EDS + i, columns, &n);
	for (int i = JM_M_GAIN; i <= JM_M_GAIN_LOSS; i++)
		add_metric(g, s, i, columns, &n);
	if (s->has_energy && (s->mixed_origin || s->origin != JM_MEASURED))
		add(columns, &n, ORIGIN, 0, "origin");
	return n;
}

static void print_enforced(
	const struct jm_group *g, const struct jm_group_point *p, int dim, char *out, size_t size)
{
	char low[40], high[40];

	if (isnan(p->enforced_min[dim])) {
		snprintf(out, size, "-");
		return;
	}
	jm_dim_quantity(p->enforced_min[dim], g->dim[dim].unit, low, sizeof(low));
	jm_dim_quantity(p->enforced_max[dim], g->dim[dim].unit, high, sizeof(high));
	if (strcmp(low, high))
		snprintf(out, size, "%.6g-%s", p->enforced_min[dim], high);
	else
		snprintf(out, size, "%s", low);
}

static void print_metric(
	const struct jm_group_point *p, const struct column *c, char *out, size_t size)
{
	const struct jm_stat *stat = &p->stat[c->index];
	bool kept = p->state != JM_STATE_VIOLATED;
	char number[80];

	jm_text_estimate(
		stat->mean / c->factor, stat->half_width / c->factor, number, sizeof(number));
	snprintf(out, size, kept || !stat->n ? "%s" : "(%s)", number);
}

static void print_runs(const struct jm_group_point *p, char *out, size_t size)
{
	if (p->n_failed)
		snprintf(out, size, "%d, %d failed", p->n_ok, p->n_failed);
	else
		snprintf(out, size, "%d%s", p->n_ok, p->n_outliers ? "!" : "");
}

static void print_cell(const struct jm_group *g, const struct jm_group_series *s,
	const struct jm_group_point *p, const struct column *c, char *out, size_t size)
{
	switch (c->kind) {
	case SETTING:
		snprintf(out, size, "%s%s", g->n_dims ? p->value[c->index].text : p->label,
			p->reference ? " *" : "");
		break;
	case ACCEPTED:
		snprintf(out, size, "-");
		if (!isnan(p->accepted[c->index]))
			jm_dim_quantity(p->accepted[c->index], g->dim[c->index].unit, out, size);
		break;
	case ENFORCED:
		print_enforced(g, p, c->index, out, size);
		break;
	case STATE:
		snprintf(out, size, "%s",
			p->state == JM_STATE_NONE ? "-" : jm_group_state_name(p->state));
		break;
	case RUNS:
		print_runs(p, out, size);
		break;
	case METRIC:
		print_metric(p, c, out, size);
		break;
	case ORIGIN:
		snprintf(out, size, "%s", s->mixed_origin ? "mixed" : jm_origin_name(s->origin));
		break;
	}
}

static int fill(struct jm_grid *grid, const struct jm_group *g, const struct jm_group_series *s,
	const struct column *columns, struct jm_err *err)
{
	char text[200];

	for (int c = 0; c < grid->columns; c++) {
		grid->left[c] = columns[c].kind == SETTING || columns[c].kind == STATE ||
				columns[c].kind == ORIGIN;
		grid->title[c] = strdup(columns[c].title);
		if (!grid->title[c])
			return jm_err_set(err, JM_ENOMEM, "Out of memory for a table.");
		for (int r = 0; r < grid->rows; r++) {
			print_cell(g, s, &g->point[s->first_point + r], &columns[c], text,
				sizeof(text));
			grid->cell[r * grid->columns + c] = strdup(text);
			if (!grid->cell[r * grid->columns + c])
				return jm_err_set(err, JM_ENOMEM, "Out of memory for a table.");
		}
	}
	return 0;
}

int jm_grid_init(struct jm_grid *grid, const struct jm_group *g, const struct jm_group_series *s,
	struct jm_err *err)
{
	struct column columns[MAX_COLUMNS];
	int rc;

	*grid = (struct jm_grid){.rows = s->n_points};
	grid->columns = choose_columns(g, s, columns, &grid->n_setting);
	grid->title = calloc((size_t)grid->columns, sizeof(*grid->title));
	grid->left = calloc((size_t)grid->columns, sizeof(*grid->left));
	grid->cell = calloc((size_t)grid->columns * (size_t)grid->rows, sizeof(*grid->cell));
	if (!grid->title || !grid->cell || !grid->left)
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for a table.");
	else
		rc = fill(grid, g, s, columns, err);
	if (rc)
		jm_grid_done(grid);
	return rc;
}

void jm_grid_done(struct jm_grid *grid)
{
	for (int i = 0; grid->title && i < grid->columns; i++)
		free(grid->title[i]);
	for (int i = 0; grid->cell && i < grid->columns * grid->rows; i++)
		free(grid->cell[i]);
	free(grid->title);
	free(grid->cell);
	free(grid->left);
	*grid = (struct jm_grid){0};
}
