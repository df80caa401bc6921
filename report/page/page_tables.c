/* SPDX-License-Identifier: Apache-2.0 */
#include "page_tables.h"

#include "base/text/json.h"
#include "report/systems/published.h"
#include "report/text/phases.h"
#include "report/text/run_tables.h"
#include "report/text/scaling_text.h"
#include "report/text/signature_text.h"
#include "report/text/step_times.h"

static json_t *row_json(char *const *cells, int n)
{
	json_t *out = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(out, json_string(cells[i] ? cells[i] : ""));
	return out;
}

/* The grid is done with. */
static json_t *table_json(struct jm_grid *grid)
{
	json_t *left = json_array(), *rows = json_array(),
	       *titles = row_json(grid->title, grid->columns);

	for (int c = 0; c < grid->columns; c++)
		json_array_append_new(left, json_boolean(grid->left[c]));
	for (int r = 0; r < grid->rows; r++)
		json_array_append_new(
			rows, row_json(&grid->cell[r * grid->columns], grid->columns));
	jm_grid_done(grid);
	return json_pack("{s:o, s:o, s:o}", "titles", titles, "left", left, "rows", rows);
}

json_t *jm_page_phases(const json_t *record, const char *item)
{
	struct jm_err none = JM_ERR_INIT;
	struct jm_grid grid;

	if (!jm_phases_several(record) || jm_phases_grid(record, false, item, &grid, &none))
		return json_null();
	return table_json(&grid);
}

static void add_scaling(
	void *to, const struct jm_scaling *s, const char *title, struct jm_grid *grid)
{
	json_t *rows = json_array();

	for (int i = 0; i < s->n; i++) {
		const struct jm_stat *rate = &s->at[i]->point->stat[JM_M_THROUGHPUT];

		json_array_append_new(rows,
			json_pack("{s:f, s:f, s:o, s:o, s:f}", "devices", s->at[i]->devices, "mean",
				rate->mean, "low", jm_json_number(rate->mean - rate->half_width),
				"high", jm_json_number(rate->mean + rate->half_width), "share",
				jm_scaling_of_ideal(s, i)));
	}
	json_array_append_new(to, json_pack("{s:s, s:s, s:o, s:o}", "title", title, "item",
					  jm_json_text(s->at[0]->record, "unit"), "rows", rows,
					  "table", table_json(grid)));
}

static void begin(void *to, const char *title, const char *caption)
{
	json_array_append_new(
		to, json_pack("{s:s, s:s, s:[]}", "title", title, "caption", caption, "tables"));
}

static void put(void *to, struct jm_grid *grid)
{
	const json_t *last = json_array_get(to, json_array_size(to) - 1);

	json_array_append_new(json_object_get(last, "tables"), table_json(grid));
}

/* Of the tables of a series, to that of its steps. */
static void put_shares(
	const struct jm_grouping *g, const struct jm_group_series *s, const json_t *tables)
{
	json_t *steps = jm_json_find(tables, "title", jm_step_times.title), *shares = json_array();
	double ms[JM_STEP_SHARES];
	int i = 0;

	while (steps && jm_step_shares_next(g, s, &i, ms)) {
		json_t *row = json_array();

		for (int k = 0; k < JM_STEP_SHARES; k++)
			json_array_append_new(row, jm_json_number(ms[k]));
		json_array_append_new(shares, row);
	}
	if (steps)
		json_object_set(steps, "shares", shares);
	json_decref(shares);
}

static void put_signatures(json_t *signatures)
{
	struct jm_err none = JM_ERR_INIT;
	json_t *tables = json_array();
	struct jm_grid grid;
	char caption[900];

	jm_signature_text(signatures, caption, sizeof(caption));
	if (!jm_signature_rows(signatures, &grid, &none))
		json_array_append_new(tables, table_json(&grid));
	if (!jm_signature_correlations(signatures, &grid, &none))
		json_array_append_new(tables, table_json(&grid));
	json_object_set_new(signatures, "caption", json_string(caption));
	json_object_set_new(signatures, "correlated", json_string(jm_signature_correlated));
	json_object_set_new(signatures, "tables", tables);
}

void jm_page_tables(const struct jm_grouping *g, json_t *data)
{
	json_t *signatures = json_object_get(data, "signatures"), *scalings = json_array(), *one;
	struct jm_err none = JM_ERR_INIT;
	struct jm_grid grid;
	size_t i;

	jm_scaling_each(g, add_scaling, scalings);
	json_object_set_new(data, "scalings", scalings);
	json_object_set_new(data, "scaling_caption", json_string(jm_scaling_caption));
	json_array_foreach(json_object_get(data, "series"), i, one)
	{
		json_t *tables = json_array();

		jm_run_tables_each(
			g, &g->series[i], &(struct jm_run_tables_to){begin, put, tables});
		put_shares(g, &g->series[i], tables);
		json_object_set_new(one, "tables", tables);
	}
	if (json_is_object(signatures))
		put_signatures(signatures);
	json_array_foreach(json_object_get(data, "published"), i, one)
	{
		if (json_array_size(json_object_get(one, "rows")) &&
			!jm_published_grid(one, &grid, &none))
			json_object_set_new(one, "table", table_json(&grid));
	}
}
