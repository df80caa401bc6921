/* SPDX-License-Identifier: Apache-2.0 */
/* Systems by work as tables and as JSON. */
#include "systems_show.h"
#include "base/text/json.h"
#include "published.h"
#include "report/format/grid.h"
#include "report/format/text.h"
#include "report/model/dimension.h"

#include <math.h>
#include <string.h>

/* "image/s" */
static int set_unit(
	struct jm_grid *grid, int column, int metric, const char *item, struct jm_err *err)
{
	const char *unit = jm_system_metrics[metric].unit;

	return jm_grid_set(
		grid, -1, column, err, "%s%s", *unit == '@' ? item : "", unit + (*unit == '@'));
}

static int set_estimate(
	struct jm_grid *grid, int row, int column, struct jm_estimate e, struct jm_err *err)
{
	char text[80];

	jm_text_estimate(e.mean, e.high - e.mean, text, sizeof(text)); /* no rate is below 0 */
	return jm_grid_set(grid, row, column, err, "%s", text);
}

static const char *origin_of(const struct jm_system *s)
{
	return !s->series->has_energy	 ? "-"
	       : s->series->mixed_origin ? "mixed"
					 : jm_origin_name(s->series->origin);
}

/* ---- the table of systems -------------------------------------------------------------------- */

enum column {
	NUMBER,
	SYSTEM,
	SETTING,
	FIRST_METRIC,
	OF_FIRST = FIRST_METRIC + JM_SYSTEM_METRIC_COUNT,
	ENERGY,
	RUNS,
	COLUMNS
};

/* Have all systems of the work the same origin of energy, or number of runs? The caption then names
 * it once. */
static bool same_for_all(
	const struct jm_systems *s, const struct jm_systems_work *w, enum column column)
{
	const struct jm_system *first = &s->system[w->first];

	for (int i = 1; i < w->n; i++)
		if (column == ENERGY ? strcmp(origin_of(first), origin_of(first + i)) != 0
				     : first->point->n_ok != first[i].point->n_ok)
			return false;
	return true;
}

static int choose_columns(
	const struct jm_systems *s, const struct jm_systems_work *w, enum column *ret)
{
	int n = 0;

	for (int c = 0; c < COLUMNS; c++)
		if (c < ENERGY || !same_for_all(s, w, (enum column)c))
			ret[n++] = (enum column)c;
	return n;
}

static int set_title(const struct jm_systems_work *w, enum column column, int at,
	struct jm_grid *grid, struct jm_err *err)
{
	static const char *const title[COLUMNS] = {[NUMBER] = "no",
		[SYSTEM] = "system",
		[SETTING] = "setting",
		[OF_FIRST] = "of 1st",
		[ENERGY] = "energy",
		[RUNS] = "n"};

	grid->left[at] = column == SYSTEM || column == SETTING || column == ENERGY;
	return title[column] ? jm_grid_set(grid, -1, at, err, "%s", title[column])
			     : set_unit(grid, at, (int)column - FIRST_METRIC, w->item, err);
}

static int set_of_first(const struct jm_systems *all, const struct jm_systems_work *w, int row,
	int at, struct jm_grid *grid, struct jm_err *err)
{
	const struct jm_system *first = &all->system[w->first];
	double ratio = first[row].value[all->sort].mean / first->value[all->sort].mean;

	return isnan(ratio) ? jm_grid_set(grid, row, at, err, "-")
			    : jm_grid_set(grid, row, at, err, "%.4g", ratio);
}

static int set_cell(const struct jm_systems *all, const struct jm_systems_work *w, int row,
	enum column column, int at, struct jm_grid *grid, struct jm_err *err)
{
	const struct jm_system *s = &all->system[w->first + row];

	switch (column) {
	case NUMBER:
		return jm_grid_set(grid, row, at, err, "%d", row + 1);
	case SYSTEM:
		return jm_grid_set(grid, row, at, err, "%s", s->name);
	case SETTING:
		return jm_grid_set(grid, row, at, err, "%s", s->setting);
	case OF_FIRST:
		return set_of_first(all, w, row, at, grid, err);
	case ENERGY:
		return jm_grid_set(grid, row, at, err, "%s", origin_of(s));
	case RUNS:
		return jm_grid_set(grid, row, at, err, "%d", s->point->n_ok);
	default:
		return set_estimate(grid, row, at, s->value[column - FIRST_METRIC], err);
	}
}

static void print_caption(
	const struct jm_systems *s, const struct jm_systems_work *w, int width, FILE *f)
{
	const struct jm_system *first = &s->system[w->first];
	char text[320], runs[32] = "one run", more[80] = "";
	int n = first->point->n_ok;

	if (n != 1)
		snprintf(runs, sizeof(runs), "%d runs", n);
	if (same_for_all(s, w, RUNS))
		snprintf(more, sizeof(more), "; %s%s", runs, w->n > 1 ? " each" : "");
	jm_text_format(text, sizeof(text), "%s: %d system%s and setting%s, by %s, per device%s%s%s",
		*w->title ? w->title : "run", w->n, w->n == 1 ? "" : "s", w->n == 1 ? "" : "s",
		jm_system_metric_names[s->sort], more,
		same_for_all(s, w, ENERGY) ? "; energy: " : "",
		!same_for_all(s, w, ENERGY) ? ""
		: first->series->has_energy ? origin_of(first)
					    : "none");
	jm_text_wrap(f, text, 0, 2, width);
	fputc('\n', f);
}

static int print_systems(const struct jm_systems *s, const struct jm_systems_work *w, int width,
	FILE *f, struct jm_err *err)
{
	enum column column[COLUMNS];
	struct jm_grid grid;
	int n = choose_columns(s, w, column), rc = jm_grid_new(&grid, w->n, n, err);

	if (rc)
		return rc;
	grid.n_setting = 2;
	for (int c = 0; c < n && !rc; c++)
		rc = set_title(w, column[c], c, &grid, err);
	for (int i = 0; i < w->n * n && !rc; i++)
		rc = set_cell(s, w, i / n, column[i % n], i % n, &grid, err);
	if (!rc) {
		print_caption(s, w, width, f);
		jm_grid_print(&grid, 0, width, f);
	}
	jm_grid_done(&grid);
	return rc;
}

/* ---- the table of ratios --------------------------------------------------------------------- */

static int set_pair_titles(
	const struct jm_systems_work *w, struct jm_grid *grid, struct jm_err *err)
{
	int rc = jm_grid_set(grid, -1, 0, err, "no");

	grid->left[1] = true;
	grid->n_setting = 2;
	rc = rc ? rc : jm_grid_set(grid, -1, 1, err, "published");
	for (int m = 0; m < JM_SYSTEM_METRIC_COUNT && !rc; m++)
		rc = set_unit(grid, 2 + m, m, w->item, err);
	return rc;
}

static int set_pair(const struct jm_systems_work *w, const struct jm_system_pair *p, int row,
	struct jm_grid *grid, struct jm_err *err)
{
	bool broken = json_is_false(json_object_get(p->row, "cap_kept"));
	int rc = jm_grid_set(grid, row, 0, err, "%d", p->system - w->first + 1);
	char name[120];

	jm_systems_row_name(p->row, name, sizeof(name));
	rc = rc ? rc : jm_grid_set(grid, row, 1, err, broken ? "(%s)" : "%s", name);
	for (int m = 0; m < JM_SYSTEM_METRIC_COUNT && !rc; m++)
		rc = set_estimate(
			grid, row, 2 + m, jm_system_ratio(p, (enum jm_system_metric)m), err);
	return rc;
}

static int print_pairs(const struct jm_systems *s, const struct jm_systems_work *w, int width,
	FILE *f, struct jm_err *err)
{
	struct jm_grid grid;
	char title[320];
	int rc = jm_grid_new(&grid, w->n_pairs, 2 + JM_SYSTEM_METRIC_COUNT, err);

	if (rc)
		return rc;
	rc = set_pair_titles(w, &grid, err);
	for (int i = 0; i < w->n_pairs && !rc; i++)
		rc = set_pair(w, &s->pair[w->first_pair + i], i, &grid, err);
	if (!rc) {
		jm_text_format(title, sizeof(title),
			"%s by published figures: each system divided by what papers report",
			w->title);
		fputc('\n', f);
		jm_text_wrap(f, title, 0, 2, width);
		jm_published_shape(w->published, title, sizeof(title));
		jm_text_wrap(f, title, 2, 4, width);
		fputc('\n', f);
		jm_grid_print(&grid, 0, width, f);
	}
	jm_grid_done(&grid);
	return rc;
}

static void print_notes(const json_t *published, int width, FILE *f)
{
	const json_t *note;
	size_t i;

	jm_text_wrap(f,
		"The 95 % interval covers the runs alone; papers state none. The power of a run is "
		"that of all its meters that no other one includes, divided by the number of its "
		"devices.",
		2, 4, width);
	json_array_foreach(json_object_get(published, "notes"), i, note)
		jm_text_wrap(f, json_string_value(note), 2, 4, width);
}

/* The reason why the work has no table of ratios; "" = it has one, or none was requested. */
static const char *why_unpublished(const struct jm_systems *s, const struct jm_systems_work *w)
{
	const json_t *record = s->system[w->first].record, *published;
	const char *model = json_string_value(jm_dim_parameter(record, "model"));
	size_t i;

	if (!s->published || w->published)
		return "";
	json_array_foreach(s->published, i, published)
	{
		if (model && !strcmp(model, jm_json_text(published, "model")) &&
			*jm_json_text(published, "why_not"))
			return jm_json_text(published, "why_not");
	}
	return JM_PUBLISHED_NONE;
}

int jm_systems_print(const struct jm_systems *s, int width, FILE *f, struct jm_err *err)
{
	int rc = 0;

	for (int i = 0; i < s->n_works && !rc; i++) {
		const struct jm_systems_work *w = &s->work[i];

		if (i)
			fputc('\n', f);
		rc = print_systems(s, w, width, f, err);
		if (!rc && w->n_pairs)
			rc = print_pairs(s, w, width, f, err);
		if (!rc && w->published)
			print_notes(w->published, width, f);
		if (*why_unpublished(s, w))
			jm_text_wrap(f, why_unpublished(s, w), 2, 4, width);
	}
	return rc;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *estimate_json(struct jm_estimate e)
{
	return json_pack("{s:o, s:o, s:o}", "mean", jm_json_number(e.mean), "low",
		jm_json_number(e.low), "high", jm_json_number(e.high));
}

static json_t *system_json(const struct jm_system *s)
{
	json_t *one = json_pack("{s:s, s:s, s:i, s:f, s:o, s:s, s:b}", "system", s->name, "setting",
		s->setting, "runs", s->point->n_ok, "devices", s->devices, "cap_watts",
		jm_json_number(s->cap_watts), "energy", origin_of(s), "simulated", s->simulated);

	for (int m = 0; m < JM_SYSTEM_METRIC_COUNT; m++)
		json_object_set_new(one, jm_system_metric_names[m], estimate_json(s->value[m]));
	return one;
}

static json_t *ratio_json(const struct jm_system_pair *p, int metric)
{
	const struct jm_compare_line *l = &p->line[jm_system_metrics[metric].compared];
	struct jm_estimate e = jm_system_ratio(p, (enum jm_system_metric)metric);

	return json_pack("{s:o, s:o, s:o, s:o, s:o}", "published",
		jm_json_number(jm_json_real_of(p->row, jm_system_metrics[metric].key)), "ratio",
		jm_json_number(e.mean), "low", jm_json_number(e.low), "high",
		jm_json_number(e.high), "why", l->why_not ? json_string(l->why_not) : json_null());
}

static json_t *pair_json(const struct jm_systems *s, const struct jm_system_pair *p)
{
	static const char *const same[] = {"device", "cap_watts", "cap_kept", "batch", "source"};
	json_t *one = json_pack("{s:s, s:s}", "system", s->system[p->system].name, "setting",
		s->system[p->system].setting);

	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		json_object_set(one, same[i], json_object_get(p->row, same[i]));
	for (int m = 0; m < JM_SYSTEM_METRIC_COUNT; m++)
		json_object_set_new(one, jm_system_metric_names[m], ratio_json(p, m));
	return one;
}

static json_t *work_json(const struct jm_systems *s, const struct jm_systems_work *w)
{
	json_t *systems = json_array(), *pairs = json_array();

	for (int i = w->first; i < w->first + w->n; i++)
		json_array_append_new(systems, system_json(&s->system[i]));
	for (int i = w->first_pair; i < w->first_pair + w->n_pairs; i++)
		json_array_append_new(pairs, pair_json(s, &s->pair[i]));
	return json_pack("{s:s, s:s, s:o, s:o, s:s}", "work", w->title, "item", w->item, "systems",
		systems, "published", pairs, "published_note", why_unpublished(s, w));
}

json_t *jm_systems_json(const struct jm_systems *s)
{
	json_t *works = json_array();

	for (int i = 0; i < s->n_works; i++)
		json_array_append_new(works, work_json(s, &s->work[i]));
	return json_pack("{s:s, s:s, s:o}", "schema", "joulemark.systems/1", "sort",
		jm_system_metric_names[s->sort], "works", works);
}
