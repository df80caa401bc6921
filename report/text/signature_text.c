/* SPDX-License-Identifier: Apache-2.0 */
#include "signature_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "report/format/text.h"
#include "report/judge/signature.h"

static const char caption[] =
	"Mean power of one GPU under each kernel, of all of it and of its parts; rest is what no "
	"meter of a part covers. x is power divided by the power of the cores (of the rest, or of "
	"the whole GPU, where that is unknown) in the first row of the same workload. Theoretical "
	"FLOP/B takes each operand and result as moved once; measured FLOP/B divides by the bytes "
	"that the memory moved according to its activity.";

const char jm_signature_correlated[] =
	"Correlation (Pearson's r) of FLOP/B with each power, over the kernels of a setting.";

/* A column of numbers: the object and the key of a row. */
struct column {
	const char *part, *key, *title;
	double scale;
};

static const struct column columns[] = {
	{"watts", "total", "W", 1},
	{"watts", "core", "core W", 1},
	{"watts", "io", "io W", 1},
	{"watts", "memory", "memory W", 1},
	{"watts", "rest", "rest W", 1},
	{"normalised", "total", "x", 1},
	{"normalised", "core", "core x", 1},
	{"normalised", "io", "io x", 1},
	{"normalised", "memory", "memory x", 1},
	{"normalised", "rest", "rest x", 1},
	{"activity", "sm", "SM %", 100},
	{"activity", "tensor", "tensor %", 100},
	{"activity", "dram", "DRAM %", 100},
	{"activity", "nvlink", "NVLink GB/s", 1e-9},
	{"intensity", "theoretical", "FLOP/B", 1},
	{"intensity", "measured", "measured FLOP/B", 1},
};
#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

static double value_of(const json_t *row, const struct column *c)
{
	return c->scale * jm_json_real_of(json_object_get(row, c->part), c->key);
}

static bool is_known(const json_t *rows, const struct column *c)
{
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		if (!isnan(value_of(row, c)))
			return true;
	}
	return false;
}

static bool has_text(const json_t *rows, const char *key)
{
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		const char *text = jm_json_text(row, key);

		if (text && *text)
			return true;
	}
	return false;
}

static int put_number(struct jm_grid *grid, int row, int column, double x, struct jm_err *err)
{
	char text[40];

	jm_text_estimate(x, NAN, text, sizeof(text));
	return jm_grid_set(grid, row, column, err, "%s", text);
}

void jm_signature_text(const json_t *signatures, char *out, size_t size)
{
	const json_t *rows = json_object_get(signatures, "rows"), *row;
	size_t n = 0, i;

	json_array_foreach(rows, i, row)
	{
		const char *origin = jm_json_text(row, "origin");

		n += !origin || strcmp(origin, "measured") != 0;
	}
	snprintf(out, size, "%s%s", caption,
		!n			     ? ""
		: n == json_array_size(rows) ? " Nothing here was measured: power is simulated, "
					       "estimated or replayed."
					     : " Power of some rows was not measured.");
}

static int put_texts(
	struct jm_grid *grid, int at, const char *key, const json_t *rows, struct jm_err *err)
{
	int rc = jm_grid_set(grid, -1, at, err, "%s", key);
	const json_t *row;
	size_t i;

	grid->left[at] = true;
	json_array_foreach(rows, i, row)
	{
		const char *text = jm_json_text(row, key), *state = jm_json_text(row, "state");
		bool violated = !strcmp(key, "setting") && state && !strcmp(state, "violated");

		if (!rc)
			rc = jm_grid_set(grid, (int)i, at, err, "%s%s", text && *text ? text : "-",
				violated ? " (violated)" : "");
	}
	return rc;
}

static int put_columns(struct jm_grid *grid, int at, const json_t *rows, struct jm_err *err)
{
	const json_t *row;
	int rc = 0;
	size_t i;

	for (size_t c = 0; c < COLUMNS; c++) {
		if (!is_known(rows, &columns[c]))
			continue;
		if (!rc)
			rc = jm_grid_set(grid, -1, at, err, "%s", columns[c].title);
		json_array_foreach(rows, i, row)
		{
			if (!rc)
				rc = put_number(grid, (int)i, at, value_of(row, &columns[c]), err);
		}
		at++;
	}
	return rc;
}

int jm_signature_rows(const json_t *signatures, struct jm_grid *ret, struct jm_err *err)
{
	const json_t *rows = json_object_get(signatures, "rows");
	int n = (int)json_array_size(rows), names = has_text(rows, "setting") ? 2 : 1, known = 0;
	struct jm_grid grid;
	int rc;

	for (size_t c = 0; c < COLUMNS; c++)
		known += is_known(rows, &columns[c]);
	rc = jm_grid_new(&grid, n, names + known, err);
	if (rc)
		return rc;
	grid.n_setting = names;
	rc = put_texts(&grid, 0, "kernel", rows, err);
	if (!rc && names == 2)
		rc = put_texts(&grid, 1, "setting", rows, err);
	if (!rc)
		rc = put_columns(&grid, names, rows, err);
	if (rc)
		jm_grid_done(&grid);
	else
		*ret = grid;
	return rc;
}

/* ---- correlations ---------------------------------------------------------------------------- */

#define FIXED 3 /* setting, intensity, kernels */

static bool same(const json_t *a, const json_t *b, const char *key)
{
	const char *x = jm_json_text(a, key), *y = jm_json_text(b, key);

	return x && y && !strcmp(x, y);
}

static int begin_row(struct jm_grid *grid, int row, const json_t *of, struct jm_err *err)
{
	const char *setting = jm_json_text(of, "setting");
	int rc = jm_grid_set(grid, row, 0, err, "%s", setting && *setting ? setting : "all");

	if (!rc)
		rc = jm_grid_set(grid, row, 1, err, "%s", jm_json_text(of, "intensity"));
	if (!rc)
		rc = put_number(grid, row, 2, jm_json_real_of(of, "kernels"), err);
	for (int p = 0; p <= JM_SIGNATURE_PARTS_N && !rc; p++)
		rc = jm_grid_set(grid, row, FIXED + p, err, "-");
	return rc;
}

static int put_titles(struct jm_grid *grid, struct jm_err *err)
{
	static const char *const titles[FIXED] = {"setting", "intensity", "kernels"};
	int rc = 0;

	for (int i = 0; i < FIXED && !rc; i++)
		rc = jm_grid_set(grid, -1, i, err, "%s", titles[i]);
	for (int p = 0; p <= JM_SIGNATURE_PARTS_N && !rc; p++)
		rc = jm_grid_set(grid, -1, FIXED + p, err, "r of %s W",
			jm_signature_part_name((enum jm_signature_part)p));
	grid->left[0] = grid->left[1] = true;
	grid->n_setting = 2;
	return rc;
}

static int fill(struct jm_grid *grid, const json_t *list, struct jm_err *err)
{
	const json_t *c, *before = NULL;
	int row = -1, rc = put_titles(grid, err);
	size_t i;

	json_array_foreach(list, i, c)
	{
		const char *part = jm_json_text(c, "part");
		char text[16];

		if (!rc && !(same(c, before, "setting") && same(c, before, "intensity")))
			rc = begin_row(grid, ++row, c, err);
		snprintf(text, sizeof(text), "%+.2f", jm_json_real_of(c, "r"));
		for (int p = 0; p <= JM_SIGNATURE_PARTS_N && !rc && part; p++)
			if (!strcmp(part, jm_signature_part_name((enum jm_signature_part)p)))
				rc = jm_grid_set(grid, row, FIXED + p, err, "%s", text);
		before = c;
	}
	return rc;
}

int jm_signature_correlations(const json_t *signatures, struct jm_grid *ret, struct jm_err *err)
{
	const json_t *list = json_object_get(signatures, "correlations"), *c, *before = NULL;
	struct jm_grid grid;
	int n = 0, rc;
	size_t i;

	json_array_foreach(list, i, c)
	{
		n += !(same(c, before, "setting") && same(c, before, "intensity"));
		before = c;
	}
	if (!n)
		return jm_err_set(err, JM_ENOENT, "There are no correlations.");
	rc = jm_grid_new(&grid, n, FIXED + JM_SIGNATURE_PARTS_N + 1, err);
	if (rc)
		return rc;
	rc = fill(&grid, list, err);
	if (rc)
		jm_grid_done(&grid);
	else
		*ret = grid;
	return rc;
}

/* ---- a terminal ------------------------------------------------------------------------------ */

bool jm_signature_compares(const json_t *signatures)
{
	return json_array_size(json_object_get(signatures, "rows")) > 1;
}

static void print(struct jm_grid *grid, int width, FILE *out)
{
	jm_grid_print(grid, 0, width, out);
	jm_grid_done(grid);
	fputc('\n', out);
}

static void print_tables(const json_t *signatures, int width, FILE *out)
{
	struct jm_err none = JM_ERR_INIT;
	struct jm_grid grid;
	char text[1000];

	jm_signature_text(signatures, text, sizeof(text));
	jm_text_wrap(out, text, 0, 2, width);
	fputc('\n', out);
	if (!jm_signature_rows(signatures, &grid, &none))
		print(&grid, width, out);
	if (jm_signature_correlations(signatures, &grid, &none))
		return;
	jm_text_wrap(out, jm_signature_correlated, 0, 2, width);
	fputc('\n', out);
	print(&grid, width, out);
}

void jm_signature_print(const struct jm_grouping *g, FILE *out)
{
	json_t *signatures = jm_signatures(g);

	if (jm_signature_compares(signatures)) {
		jm_text_title(out, "Signatures of kernels", g->options.bold, g->options.width);
		print_tables(signatures, g->options.width, out);
	}
	json_decref(signatures);
}
