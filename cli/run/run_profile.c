/* SPDX-License-Identifier: Apache-2.0 */
/* The profile of a run as a table: time of each kind of node, and its share of what the roofline
 * allows. */
#include "run_profile.h"
#include "base/text/json.h"
#include "report/format/grid.h"
#include "report/format/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_LINES 24
#define FIGURES	   7

/* A dash where it is unknown. */
static int put_number(
	struct jm_grid *grid, int row, int column, double x, int decimals, struct jm_err *err)
{
	return isfinite(x) ? jm_grid_set(grid, row, column, err, "%.*f", decimals, x)
			   : jm_grid_set(grid, row, column, err, "-");
}

/* That show four digits of the largest energy of a kind. */
static int joule_decimals(const json_t *kinds)
{
	double most = 0;
	const json_t *line;
	size_t i;

	json_array_foreach(kinds, i, line) most = fmax(most, jm_json_real_of(line, "joules_model"));
	return most > 0 && most < 1000 ? 3 - (int)fmax(floor(log10(most)), -9) : 0;
}

static int put_line(
	struct jm_grid *grid, int row, const json_t *line, int joule_places, struct jm_err *err)
{
	const struct {
		double value;
		int decimals;
	} figures[FIGURES] = {{jm_json_real_of(line, "calls"), 0},
		{1e3 * jm_json_real_of(line, "seconds"), 3},
		{100 * jm_json_real_of(line, "share"), 1},
		{jm_json_real_of(line, "flops_per_s") / 1e9, 1},
		{jm_json_real_of(line, "bytes_per_s") / 1e9, 1},
		{100 * jm_json_real_of(line, "roofline"), 1},
		{jm_json_real_of(line, "joules_model"), joule_places}};
	int rc = jm_grid_set(grid, row, 0, err, "%s", jm_json_text(line, "name"));

	for (int i = 0; i + 1 < grid->columns && !rc; i++)
		rc = put_number(grid, row, i + 1, figures[i].value, figures[i].decimals, err);
	return rc;
}

static int make_grid(const json_t *kinds, bool energy, struct jm_grid *grid, struct jm_err *err)
{
	static const char *const titles[FIGURES + 1] = {
		"node", "calls", "ms", "%", "GFLOP/s", "GB/s", "roofline %", "J (model)"};
	size_t n = json_array_size(kinds);
	int joule_places = joule_decimals(kinds);
	int rc = jm_grid_new(
		grid, (int)(n < MOST_LINES ? n : MOST_LINES), energy ? FIGURES + 1 : FIGURES, err);

	if (rc)
		return rc;
	grid->left[0] = true;
	for (int c = 0; c < grid->columns && !rc; c++)
		rc = jm_grid_set(grid, -1, c, err, "%s", titles[c]);
	for (int r = 0; r < grid->rows && !rc; r++)
		rc = put_line(grid, r, json_array_get(kinds, (size_t)r), joule_places, err);
	if (rc)
		jm_grid_done(grid);
	return rc;
}

static void head_text(const json_t *record, const json_t *profile, char *out, size_t size)
{
	double sum = jm_json_real_of(profile, "step_s"),
	       whole = jm_json_real_of(profile, "whole_step_s");
	const char *id = jm_json_text(record, "id");

	snprintf(out, size,
		"Profile of a step of %.8s: its nodes, each timed by itself, take %.4g ms in sum",
		*id ? id : "the run", 1e3 * sum);
	if (!(whole > 0))
		return;
	size -= strlen(out);
	out += strlen(out);
	snprintf(out, size, "; as a whole the step takes %.4g ms (%+.1f %%)", 1e3 * whole,
		100 * (whole / sum - 1));
}

static void print_profile(FILE *out, const json_t *record, const json_t *profile, int width)
{
	const json_t *kinds = json_object_get(profile, "kinds");
	const json_t *energy = json_object_get(profile, "energy");
	struct jm_err none = JM_ERR_INIT;
	struct jm_grid grid;
	char text[300];

	head_text(record, profile, text, sizeof(text));
	jm_text_wrap(out, text, 0, 2, width);
	if (make_grid(kinds, energy != NULL, &grid, &none))
		return;
	jm_grid_print(&grid, 0, width, out);
	jm_grid_done(&grid);
	if (json_array_size(kinds) > MOST_LINES)
		fprintf(out, "%zu more kinds; --json has all of them, node by node\n",
			json_array_size(kinds) - MOST_LINES);
	if (energy) {
		snprintf(text, sizeof(text), "J (model): %s (%s).", jm_json_text(energy, "model"),
			jm_json_text(energy, "origin"));
		jm_text_wrap(out, text, 0, 2, width);
	}
	fputc('\n', out);
}

void jm_run_print_profiles(FILE *out, const json_t *records, int width)
{
	const json_t *record;
	size_t i;

	json_array_foreach(records, i, record)
	{
		const json_t *profile = json_object_get(record, "profile");

		if (profile)
			print_profile(out, record, profile, width);
	}
}
