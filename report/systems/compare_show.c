/* SPDX-License-Identifier: Apache-2.0 */
/* A comparison as a table and as JSON. */
#include "compare_show.h"
#include "base/text/json.h"
#include "compare_draw.h"
#include "report/format/grid.h"
#include "report/format/text.h"

#include <math.h>
#include <string.h>

static const char *const units[] = {
#define X(name, text, unit, energy) unit,
	JM_COMPARED(X)
#undef X
};

/* "J/@": "J/token"; "EUR/1e6 token" */
static void put_unit(
	const struct jm_compare *c, int metric, const char *item, char *out, size_t size)
{
	const char *at = strchr(units[metric], '@');

	if (metric == JM_COMPARED_COST) {
		snprintf(out, size, "%s/1e6 %s", c->costs.currency ? c->costs.currency : "1", item);
		return;
	}

	snprintf(out, size, "%.*s%s", (int)(at ? at - units[metric] : (long)strlen(units[metric])),
		units[metric], at ? item : "");
}

/* Of all changes of a work, by the narrowest interval. */
static int change_decimals(const struct jm_compare_row *row)
{
	double narrowest = INFINITY;

	for (int m = 0; m < JM_COMPARED_COUNT; m++) {
		double wide = 100 * (row->line[m].c.high - row->line[m].c.low);

		if (wide > 0) /* neither unknown nor unused */
			narrowest = fmin(narrowest, wide);
	}
	return isinf(narrowest) || narrowest < 10 ? 2 : narrowest < 100 ? 1 : 0;
}

/* What rounds to 0 has no minus. */
static void put_percent(double percent, int decimals, char *out, size_t size)
{
	bool is_zero = fabs(percent) < 0.5 * pow(10, -decimals);

	snprintf(out, size, "%+.*f", decimals, is_zero ? 0 : percent);
}

static void put_change(const struct jm_comparison *c, int decimals, char *out, size_t size)
{
	char low[24], high[24];

	put_percent(100 * (c->low - 1), decimals, low, sizeof(low));
	put_percent(100 * (c->high - 1), decimals, high, sizeof(high));
	snprintf(out, size, isnan(c->low) ? "-" : "%s to %s", low, high);
}

/* "-" where it is unknown. */
static void put_number(double value, char *out, size_t size)
{
	if (isnan(value)) {
		snprintf(out, size, "-");
	} else {
		snprintf(out, size, fabs(value) >= 1e4 ? "%.0f" : "%.4g", value);
		jm_text_apart(out, size);
	}
}

/* The prefix of the unit that both means of a line have, "µ" of 8.27 µs/token; watts and long times
 * have none. */
static double prefix_of(const struct jm_compare_row *row, int metric, const char **ret_prefix)
{
	double mean = isnan(row->line[metric].mean_a) ? row->line[metric].mean_b
						      : row->line[metric].mean_a;

	*ret_prefix = "";
	if (metric == JM_COMPARED_COST)
		return 1;
	return jm_text_prefix(units[metric], mean, ret_prefix);
}

enum column { WHAT, OF_A, OF_B, RATIO, CHANGE, P, RESULT, COLUMNS };

/* Two digits, as many as a p value has that mean something. */
static void put_chance(double p, char *out, size_t size)
{
	if (isnan(p))
		snprintf(out, size, "-");
	else if (p < 1e-4)
		snprintf(out, size, "<0.0001");
	else
		snprintf(out, size, "%.*f", p < 0.001 ? 4 : p < 0.1 ? 3 : 2, p);
}

static void put_cell(const struct jm_compare *of, const struct jm_compare_row *row, int metric,
	enum column column, char *out, size_t size)
{
	const struct jm_compare_line *l = &row->line[metric];
	const char *prefix;
	double factor = prefix_of(row, metric, &prefix);
	char unit[48];

	switch (column) {
	case WHAT:
		put_unit(of, metric, row->item, unit, sizeof(unit));
		snprintf(out, size, "%s %s%s", jm_compared_names[metric], prefix, unit);
		return;
	case CHANGE:
		put_change(&l->c, change_decimals(row), out, size);
		return;
	case P:
		put_chance(l->c.p, out, size);
		return;
	case RESULT:
		snprintf(out, size, "%s", l->why_not ? "-" : jm_compare_verdict(l));
		return;
	default:
		put_number(column == OF_A   ? l->mean_a / factor
			   : column == OF_B ? l->mean_b / factor
					    : l->c.ratio,
			out, size);
	}
}

static int print_lines(const struct jm_compare *of, const struct jm_compare_names *names,
	const struct jm_compare_row *row, int width, FILE *f, struct jm_err *err)
{
	const char *const title[COLUMNS] = {
		" ", names->head[0], names->head[1], "B/A", "change %", "p", "B is"};
	struct jm_grid grid;
	char text[80];
	int n = jm_compared_count(of), rc = jm_grid_new(&grid, n, COLUMNS, err);

	if (rc)
		return rc;
	grid.left[WHAT] = grid.left[RESULT] = true;
	for (int c = 0; c < COLUMNS && !rc; c++)
		rc = jm_grid_set(&grid, -1, c, err, "%s", title[c]);
	for (int i = 0; i < n * COLUMNS && !rc; i++) {
		put_cell(of, row, i / COLUMNS, (enum column)(i % COLUMNS), text, sizeof(text));
		rc = jm_grid_set(&grid, i / COLUMNS, i % COLUMNS, err, "%s", text);
	}
	if (!rc)
		jm_grid_print(&grid, 2, width, f);
	jm_grid_done(&grid);
	return rc;
}

/* The test by ranks, which assumes no distribution, is shown in addition to Welch's and decides
 * nothing. */
static void print_ranks(const struct jm_compare_row *row, int n, int width, FILE *f)
{
	char text[240], all[160] = "", one[60], chance[24];

	for (int i = 0; i < n; i++) {
		double p = row->line[i].p_rank;

		if (isnan(p))
			continue;
		put_chance(p, chance, sizeof(chance));
		snprintf(one, sizeof(one), "%s %s", jm_compared_names[i], chance);
		jm_text_append(all, sizeof(all), ", ", one);
	}
	if (!*all)
		return;
	snprintf(text, sizeof(text), "p by ranks (Mann-Whitney): %s", all);
	jm_text_wrap(f, text, 2, 4, width);
}

/* Each reason once, with the metrics that it holds for. */
static void print_reasons(const struct jm_compare_row *row, int n, int width, FILE *f)
{
	char names[80], text[300];

	for (int i = 0; i < n; i++) {
		const char *why = row->line[i].why_not;
		bool is_first = why;

		for (int k = 0; k < i && is_first; k++)
			is_first = !row->line[k].why_not || strcmp(row->line[k].why_not, why) != 0;
		if (!is_first)
			continue;
		*names = '\0';
		for (int k = i; k < n; k++)
			if (row->line[k].why_not && !strcmp(row->line[k].why_not, why))
				jm_text_append(names, sizeof(names), ", ", jm_compared_names[k]);
		jm_text_format(text, sizeof(text), "no conclusion on %s: %s", names, why);
		jm_text_wrap(f, text, 2, 4, width);
	}
}

static void print_title(const struct jm_compare_row *row, int width, FILE *f)
{
	const struct jm_comparison *c = &row->line[JM_COMPARED_TIME].c;
	char runs[80], title[400];

	if (row->line[JM_COMPARED_TIME].paired)
		snprintf(runs, sizeof(runs), "%d pairs, one for each block", c->n_a);
	else
		snprintf(runs, sizeof(runs), "%d and %d independent runs (Welch's test)", c->n_a,
			c->n_b);
	jm_text_format(title, sizeof(title), "%s%s, per %s: %s", row->title,
		row->simulated ? " (simulated)" : "", row->item, runs);
	jm_text_wrap(f, title, 0, 2, width);
}

static int print_row(const struct jm_compare *c, const struct jm_compare_names *names,
	const struct jm_compare_row *row, int width, FILE *f, struct jm_err *err)
{
	int n = jm_compared_count(c), rc;
	char text[120];

	print_title(row, width, f);
	if (row->failed_a + row->failed_b) {
		snprintf(text, sizeof(text), "%d failed run%s of A and %d of B omitted",
			row->failed_a, row->failed_a == 1 ? "" : "s", row->failed_b);
		jm_text_wrap(f, text, 2, 4, width);
	}
	rc = print_lines(c, names, row, width, f, err);
	print_ranks(row, n, width, f);
	print_reasons(row, n, width, f);
	jm_compare_draw(row, width, f);
	return rc;
}

/* What the cost is made of. */
static void print_costs(const struct jm_compare *c, int width, FILE *f)
{
	const char *currency = c->costs.currency ? c->costs.currency : "units of money";
	char text[400], price[100] = "";

	if (!(c->costs.purchase[0] > 0))
		return;
	if (c->costs.price > 0)
		snprintf(price, sizeof(price), ", and electricity at %.6g %s per kWh, PUE %.4g",
			c->costs.price, currency, c->costs.pue);
	jm_text_format(text, sizeof(text),
		"Cost: purchase of A %.10g %s and of B %.10g %s, in use without a pause for %.4g "
		"years%s; source: %s.",
		c->costs.purchase[0], currency, c->costs.purchase[1], currency, c->costs.years,
		price, c->costs.source);
	fputc('\n', f);
	jm_text_wrap(f, text, 0, 2, width);
}

int jm_compare_print(const struct jm_compare *c, const struct jm_compare_names *names, int width,
	FILE *f, struct jm_err *err)
{
	char text[420];
	int rc = 0;

	for (int i = 0; i < 2; i++) {
		snprintf(text, sizeof(text), "%c: %s", i ? 'B' : 'A', names->whole[i]);
		jm_text_wrap(f, text, 0, 3, width);
	}
	for (int i = 0; i < c->n && !rc; i++) {
		fputc('\n', f);
		rc = print_row(c, names, &c->row[i], width, f, err);
	}
	print_costs(c, width, f);
	if (c->only_a + c->only_b) {
		snprintf(text, sizeof(text), "Not compared: %d case%s only in A, %d only in B.",
			c->only_a, c->only_a == 1 ? "" : "s", c->only_b);
		fputc('\n', f);
		jm_text_wrap(f, text, 0, 2, width);
	}
	if (c->note) {
		fputc('\n', f);
		jm_text_wrap(f, c->note, 0, 2, width);
	}
	return rc;
}

static json_t *optional_text(const char *text)
{
	return text ? json_string(text) : json_null();
}

static json_t *line_json(const struct jm_compare *of, const struct jm_compare_row *row, int metric)
{
	const struct jm_compare_line *l = &row->line[metric];
	char unit[48];
	json_t *json = json_object();

	put_unit(of, metric, row->item, unit, sizeof(unit));
	jm_json_set_number(&json, "p_rank", l->p_rank);
	jm_json_set_text(&json, "metric", jm_compared_names[metric]);
	jm_json_set_text(&json, "unit", unit);
	jm_json_set_number(&json, "a", l->mean_a);
	jm_json_set_number(&json, "b", l->mean_b);
	jm_json_set_int(&json, "n_a", l->c.n_a);
	jm_json_set_int(&json, "n_b", l->c.n_b);
	jm_json_set_number(&json, "ratio", l->c.ratio);
	jm_json_set_number(&json, "low", l->c.low);
	jm_json_set_number(&json, "high", l->c.high);
	jm_json_set_number(&json, "p", l->c.p);
	jm_json_set_text(&json, "test", l->paired ? "paired" : "welch");
	jm_json_set_text(&json, "verdict", jm_compare_verdict(l));
	jm_json_set_text(&json, "why", l->why_not);
	return json;
}

static json_t *row_json(const struct jm_compare *c, const struct jm_compare_row *row)
{
	json_t *lines = json_array();

	for (int i = 0; i < jm_compared_count(c); i++)
		json_array_append_new(lines, line_json(c, row, i));
	return json_pack("{s:s, s:s, s:b, s:i, s:i, s:o}", "work", row->title, "item", row->item,
		"simulated", row->simulated, "failed_a", row->failed_a, "failed_b", row->failed_b,
		"metrics", lines);
}

json_t *jm_compare_json(const struct jm_compare *c, const struct jm_compare_names *names)
{
	json_t *rows = json_array();

	for (int i = 0; i < c->n; i++)
		json_array_append_new(rows, row_json(c, &c->row[i]));
	return json_pack("{s:s, s:s, s:s, s:o, s:i, s:i, s:o}", "schema", "joulemark.compare/1",
		"a", names->whole[0], "b", names->whole[1], "works", rows, "only_a", c->only_a,
		"only_b", c->only_b, "note", optional_text(c->note));
}
