/* SPDX-License-Identifier: Apache-2.0 */
/* What papers report, chosen by what the records did. */
#include "published.h"
#include "published_own.h"
#include "base/text/csv_fields.h"
#include "base/text/json.h"
#include "report/format/grid.h"
#include "report/format/text.h"
#include "report/model/dimension.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAME_WORK 0.05 /* FLOPs of an item may differ by so much: heads, counting */

static const struct column {
	const char *title, *key;
	bool left;
} columns[] = {
	{"device", "device", true},
	{"n", "devices", false},
	{"cap W", "cap_watts", false},
	{"batch", "batch", false},
	{"precision", "precision", true},
	{"/s per device", "items_per_s", false}, /* behind the item's name */
	{"W", "watts", false},
	{"W max", "watts_max", false},
	{"/J", "items_per_joule", false}, /* behind the item's name */
	{"hours", "hours", false},
	{"kWh of all", "kwh", false},
	{"GPU %", "gpu_load_percent", false},
	{"metric", "metric", true},
	{"gain %", "gain_percent", false},
	{"here cap W", "own_cap_watts", false},
	{"here gain %", "own_gain_percent", false},
	{"source", "source", true},
};
#define N_COLUMNS ((int)(sizeof(columns) / sizeof(columns[0])))

/* Did that run work on items of the papers' size, as far as its record shows? */
static bool same_size(const json_t *record, const json_t *work)
{
	const json_t *theirs, *ours;
	const char *name;

	json_object_foreach(json_object_get(work, "size"), name, theirs)
	{
		ours = jm_dim_parameter(record, name);
		if (ours && jm_dim_number(ours) != json_number_value(theirs))
			return false;
	}
	if (isnan(jm_json_real_of(work, "flops_model_per_item")))
		return true;
	return fabs(jm_json_real_of(record, "flops_model_per_item") /
			       jm_json_real_of(work, "flops_model_per_item") -
		       1) <= SAME_WORK;
}

/* Are both texts, and the same? */
static bool same_text(const json_t *a, const json_t *b)
{
	return json_is_string(a) && json_equal(a, b);
}

/* Did it do that work with that network, of whatever size? */
static bool same_model(const json_t *record, const json_t *work)
{
	const json_t *model = json_object_get(work, "model");
	bool sized = isnan(jm_json_real_of(work, "flops_model_per_item")) ||
		     !isnan(jm_json_real_of(record, "flops_model_per_item"));

	return same_text(json_object_get(record, "workload"), json_object_get(work, "workload")) &&
	       (json_is_null(model) || same_text(jm_dim_parameter(record, "model"), model)) &&
	       sized;
}

/* Is it the simulated work that was made from these figures? */
static bool is_made_of(const json_t *record, const json_t *work)
{
	return same_text(jm_dim_parameter(record, "response"), json_object_get(work, "response"));
}

bool jm_published_is(const json_t *record, const json_t *work)
{
	return same_model(record, work) && same_size(record, work);
}

/* Did a run do that work in the papers' size? ret_other: the first run of another size; NULL =
 * none. */
static bool was_done(const struct jm_grouping *g, const json_t *work, const json_t **ret_other)
{
	*ret_other = NULL;
	for (int i = 0; i < g->n_cases; i++) {
		const json_t *record = g->c[i].record;

		if (is_made_of(record, work))
			return true;
		if (!same_model(record, work))
			continue;
		if (same_size(record, work))
			return true;
		*ret_other = *ret_other ? *ret_other : record;
	}
	return false;
}

/* " (seq 1024)", as far as the record shows */
static void say_size(const json_t *record, const json_t *work, char *out, size_t size)
{
	const json_t *theirs, *ours;
	const char *name;

	*out = '\0';
	json_object_foreach(json_object_get(work, "size"), name, theirs)
	{
		ours = jm_dim_parameter(record, name);
		if (json_is_string(ours))
			jm_text_format(out, size, " (%s %s)", name, json_string_value(ours));
	}
}

static int refuse(json_t *work, const json_t *record)
{
	const char *unit = jm_json_text(work, "unit");
	char text[80];
	json_t *why;

	say_size(record, work, text, sizeof(text));
	why = json_sprintf("The papers' figures are of %s, which take %.4g GFLOP per %s; these "
			   "runs took %.4g%s and cannot be compared with them.",
		jm_json_text(work, "shape"), jm_json_real_of(work, "flops_model_per_item") / 1e9,
		unit, jm_json_real_of(record, "flops_model_per_item") / 1e9, text);

	return json_object_set_new(work, "why_not", why) ||
	       json_object_set_new(work, "rows", json_array()) ||
	       json_object_set_new(work, "notes", json_array());
}

static int add_own(const struct jm_grouping *g, json_t *work)
{
	bool *did = calloc((size_t)g->n_series + 1, sizeof(*did));

	if (!did)
		return -1;
	for (int s = 0; s < g->n_series; s++)
		did[s] = is_made_of(g->series[s].record, work) ||
			 jm_published_is(g->series[s].record, work);
	jm_published_own(g, did, work);
	free(did);
	return 0;
}

json_t *jm_published_of(const struct jm_grouping *g)
{
	json_t *all = json_loads(jm_published_json, 0, NULL), *found = json_array(), *work;
	const json_t *other;
	int bad = !all || !found;
	size_t i;

	json_array_foreach(all, i, work)
	{
		bool same = !g->n_cases || was_done(g, work, &other);

		if ((!same && !other) || bad)
			continue;
		bad = same ? json_object_set_new(work, "why_not", json_string(""))
			   : refuse(work, other);
		bad = bad || add_own(g, work) || json_array_append(found, work);
	}
	json_decref(all);
	if (!bad)
		return found;
	json_decref(found);
	return NULL;
}

static void print_cell(const json_t *row, const struct column *c, char *out, size_t size)
{
	const json_t *value = json_object_get(row, c->key);
	bool broken = json_is_false(json_object_get(row, "cap_kept"));
	char number[64];

	if (json_is_string(value))
		snprintf(out, size, "%s", json_string_value(value));
	else if (!json_is_number(value))
		snprintf(out, size, "-");
	else if (strcmp(c->key, "items_per_s") != 0) {
		snprintf(out, size, json_is_integer(value) ? "%.0f" : "%.4g",
			json_number_value(value));
		jm_text_apart(out, size);
	} else {
		snprintf(number, sizeof(number), "%.6g", json_number_value(value));
		jm_text_apart(number, sizeof(number));
		snprintf(out, size, broken ? "(%s)" : "%s", number);
	}
}

static int fill_column(const json_t *work, const struct column *c, struct jm_grid *grid, int at)
{
	char text[200];
	json_t *row;
	size_t r;

	snprintf(text, sizeof(text), "%s%s", *c->title == '/' ? jm_json_text(work, "unit") : "",
		c->title);
	grid->left[at] = c->left;
	grid->title[at] = strdup(text);
	if (!grid->title[at])
		return -1;
	json_array_foreach(json_object_get(work, "rows"), r, row)
	{
		char **cell = &grid->cell[(int)r * grid->columns + at];

		print_cell(row, c, text, sizeof(text));
		*cell = strdup(text);
		if (!*cell)
			return -1;
	}
	return 0;
}

/* What no paper gives has no column. */
static bool is_known(const json_t *work, const struct column *c)
{
	const json_t *row;
	size_t r;

	json_array_foreach(json_object_get(work, "rows"), r, row)
	{
		if (!json_is_null(json_object_get(row, c->key)))
			return true;
	}
	return false;
}

int jm_published_grid(const json_t *work, struct jm_grid *ret, struct jm_err *err)
{
	size_t rows = json_array_size(json_object_get(work, "rows"));
	const struct column *shown[N_COLUMNS];
	struct jm_grid grid;
	int n = 0;
	bool bad;

	for (int c = 0; c < N_COLUMNS; c++)
		if (is_known(work, &columns[c]))
			shown[n++] = &columns[c];
	bad = jm_grid_new(&grid, (int)rows, n, err);
	for (int c = 0; c < grid.columns && !bad; c++)
		bad = fill_column(work, shown[c], &grid, c);
	if (bad) {
		jm_grid_done(&grid);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the published figures.");
	}
	*ret = grid;
	return 0;
}

void jm_published_title(const json_t *work, char *out, size_t size)
{
	const char *model = jm_json_text(work, "model");

	snprintf(out, size, "Published, not measured here: %s%s%s as papers report it", model,
		*model ? " " : "", jm_json_text(work, "task"));
}

void jm_published_shape(const json_t *work, char *out, size_t size)
{
	snprintf(out, size, "The papers' input: %s.", jm_json_text(work, "shape"));
}

int jm_published_each(
	const struct jm_grouping *g, jm_published_fn *put, FILE *out, struct jm_err *err)
{
	json_t *all = jm_published_of(g), *work;
	size_t i;
	int rc = 0;

	if (!all)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the published figures.");
	if (!json_array_size(all))
		fputs("Published: " JM_PUBLISHED_NONE "\n", out);
	json_array_foreach(all, i, work)
	{
		if (!rc)
			rc = put(g, work, out, err);
	}
	json_decref(all);
	return rc;
}

static void put_row(const json_t *work, const json_t *row, FILE *out)
{
	const json_t *kept = json_object_get(row, "cap_kept");

	jm_csv_put_text(out, jm_json_text(work, "model"));
	fputc(',', out);
	jm_csv_put_text(out, jm_json_text(work, "task"));
	fputc(',', out);
	jm_csv_put_text(out, jm_json_text(work, "unit"));
	for (int c = 0; c < N_COLUMNS; c++) {
		const json_t *value = json_object_get(row, columns[c].key);

		fputc(',', out);
		if (json_is_string(value))
			jm_csv_put_text(out, json_string_value(value));
		else if (json_is_number(value))
			fprintf(out, "%.10g", json_number_value(value));
	}
	fprintf(out, ",%s,", json_is_null(kept) ? "" : json_is_true(kept) ? "yes" : "no");
	jm_csv_put_text(out, jm_json_text(work, "origin"));
	fputs("\r\n", out);
}

int jm_published_write_csv(const struct jm_grouping *g, FILE *out, struct jm_err *err)
{
	json_t *all = jm_published_of(g), *work, *row;
	size_t i, k;

	if (!all)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the published figures.");
	fputs("model,task,item", out);
	for (int c = 0; c < N_COLUMNS; c++)
		fprintf(out, ",%s", columns[c].key);
	fputs(",cap_kept,origin\r\n", out);
	json_array_foreach(all, i, work)
	{
		json_array_foreach(json_object_get(work, "rows"), k, row) put_row(work, row, out);
	}
	json_decref(all);
	return 0;
}
