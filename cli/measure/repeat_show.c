/* SPDX-License-Identifier: Apache-2.0 */
#include "repeat_show.h"

#include "base/text/json.h"
#include "cli/frame/screen.h"
#include "report/format/grid.h"
#include "report/format/text.h"

#include <math.h>

#define COLUMNS 4

static const struct row {
	const char *key, *ratio, *title, *unit;
} rows[] = {
	{"seconds", "ratio_seconds", "time", "s"},
	{"joules", "ratio_joules", "energy", "J"},
	{"watts", "ratio_watts", "power", "W"},
	{"user_s", NULL, "user time", "s"},
	{"system_s", NULL, "system time", "s"},
};
#define ROWS (int)(sizeof(rows) / sizeof(rows[0]))

static const json_t *commands_of(const json_t *record)
{
	return json_object_get(json_object_get(record, "repeats"), "commands");
}

bool jm_repeat_title(const json_t *record, char *out, size_t size)
{
	const json_t *repeats = json_object_get(record, "repeats");
	size_t n = json_array_size(commands_of(record));

	if (n < 2)
		return false;
	snprintf(out, size, "joulemark: %zu commands in blocks of random order (seed %.0f)", n,
		jm_json_real_of(repeats, "seed"));
	return true;
}

/* "A: ./a --fast (10 runs, 1 failed)" */
static void put_command(FILE *out, int width, const json_t *command, size_t at, bool alone)
{
	int failed = (int)jm_json_real_of(command, "failed");
	int runs = (int)jm_json_real_of(command, "runs");
	const json_t *word;
	char text[600] = "";
	size_t i;

	if (!alone) {
		snprintf(text, sizeof(text), "%c:", 'A' + (int)at);
		json_array_foreach(json_object_get(command, "command"), i, word)
			jm_text_append(text, sizeof(text), " ",
				json_is_string(word) ? json_string_value(word) : "?");
	}
	fputs("\n", out);
	if (!alone)
		jm_text_wrap(out, text, 2, 4, width);
	if (failed && runs == failed)
		snprintf(text, sizeof(text), "%d %s, which failed", runs,
			runs == 1 ? "run" : "runs");
	else if (failed)
		snprintf(text, sizeof(text),
			"%d runs, of which %d failed; mean, spread and range of %d", runs, failed,
			(int)jm_json_real_of(command, "counted"));
	else
		snprintf(text, sizeof(text), "%d runs", (int)jm_json_real_of(command, "counted"));
	jm_text_wrap(out, text, 2, 4, width);
}

static int fill_row(
	struct jm_grid *g, int at, const struct row *row, const json_t *figure, struct jm_err *err)
{
	double mean = jm_json_real_of(figure, "mean"), high_of = jm_json_real_of(figure, "max");
	bool scaled = high_of < 1 && *row->unit != 'W';
	const char *prefix = "";
	double factor = scaled ? jm_text_prefix("J", high_of, &prefix) : 1;
	char text[80], low[40], high[40], unit[8];

	snprintf(unit, sizeof(unit), "%s%s", prefix, row->unit);
	jm_text_quantity(
		mean / factor, jm_json_real_of(figure, "sd") / factor, unit, text, sizeof(text));
	jm_text_quantity(jm_json_real_of(figure, "min") / factor, NAN, unit, low, sizeof(low));
	jm_text_quantity(high_of / factor, NAN, unit, high, sizeof(high));
	jm_grid_set(g, at, 0, err, "%s", row->title);
	jm_grid_set(g, at, 1, err, "%s", isnan(mean) ? "-" : text);
	jm_grid_set(g, at, 2, err, "%s", isnan(mean) ? "-" : low);
	return jm_grid_set(g, at, 3, err, "%s", isnan(mean) ? "-" : high);
}

static void put_figures(FILE *out, int width, const json_t *command)
{
	static const char *const titles[COLUMNS] = {"one run", "mean ± sd", "min", "max"};
	struct jm_err err = JM_ERR_INIT;
	struct jm_grid g;

	if (jm_grid_new(&g, ROWS, COLUMNS, &err))
		return;
	for (int c = 0; c < COLUMNS; c++)
		jm_grid_set(&g, -1, c, &err, "%s", titles[c]);
	g.left[0] = true;
	for (int i = 0; i < ROWS; i++)
		fill_row(&g, i, &rows[i], json_object_get(command, rows[i].key), &err);
	if (!err.code)
		jm_grid_print(&g, 2, width, out);
	jm_grid_done(&g);
}

/* Joules of single runs are unknown, though their energy is not. */
static void put_too_short(FILE *out, int width, const json_t *record)
{
	const json_t *repeats = json_object_get(record, "repeats");
	double refresh_s = jm_json_real_of(repeats, "refresh_s");
	const json_t *command;
	bool any = false;
	char text[200];
	size_t i;

	json_array_foreach(commands_of(record), i, command)
	{
		const json_t *seconds = json_object_get(command, "seconds");

		any = any || jm_json_real_of(seconds, "min") < refresh_s;
	}
	if (!any || !json_array_size(json_object_get(repeats, "energy")))
		return;
	snprintf(text, sizeof(text),
		"A run that is shorter than a refresh of the slowest sensor (%.3g s) has no energy "
		"of its own in this table.",
		refresh_s);
	jm_text_wrap(out, text, 2, 4, width);
}

/* "B / A   1.203 (1.190 to 1.216)", one column for each figure */
static void put_ratio(struct jm_grid *g, const json_t *command, int at)
{
	struct jm_err err = JM_ERR_INIT;

	jm_grid_set(g, at, 0, &err, "%c / A", 'A' + at + 1);
	for (int i = 0; rows[i].ratio; i++) {
		const json_t *ratio = json_object_get(command, rows[i].ratio);
		double value = jm_json_real_of(ratio, "ratio"), low = jm_json_real_of(ratio, "low");

		if (isnan(value))
			jm_grid_set(g, at, i + 1, &err, "-");
		else if (isnan(low))
			jm_grid_set(g, at, i + 1, &err, "%.3f", value);
		else
			jm_grid_set(g, at, i + 1, &err, "%.3f (%.3f to %.3f)", value, low,
				jm_json_real_of(ratio, "high"));
	}
}

static void put_ratios(FILE *out, int width, const json_t *record)
{
	const json_t *commands = commands_of(record);
	int n = (int)json_array_size(commands) - 1;
	struct jm_err err = JM_ERR_INIT;
	struct jm_grid g;

	if (n < 1 || jm_grid_new(&g, n, COLUMNS, &err))
		return;
	jm_grid_set(&g, -1, 0, &err, "ratio");
	for (int c = 1; c < COLUMNS; c++)
		jm_grid_set(&g, -1, c, &err, "%s", rows[c - 1].title);
	g.left[0] = true;
	g.n_setting = 1;
	for (int i = 0; i < n; i++)
		put_ratio(&g, json_array_get(commands, (size_t)i + 1), i);
	fputc('\n', out);
	jm_grid_print(&g, 2, width, out);
	jm_grid_done(&g);
	jm_text_wrap(out,
		"ratio: of geometric means, block by block, with its 95 % interval; an interval "
		"that excludes 1 shows a difference",
		2, 4, width);
}

void jm_repeat_show(FILE *out, int width, const json_t *record)
{
	const json_t *commands = commands_of(record), *command;
	bool alone = json_array_size(commands) == 1;
	size_t i;

	json_array_foreach(commands, i, command)
	{
		put_command(out, width, command, i, alone);
		put_figures(out, width, command);
	}
	if (!json_array_size(commands))
		return;
	put_too_short(out, width, record);
	put_ratios(out, width, record);
}
