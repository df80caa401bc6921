/* SPDX-License-Identifier: Apache-2.0 */
/* A comparison as a table and as JSON. */
#include "compare.h"

#include "base/json.h"
#include "text.h"

#include <math.h>
#include <string.h>

#define LINE "  %-14s %9s %9s %6s %18s %7s %s\n"

static const char *const units[] = {
#define X(name, text, unit, energy) unit,
	JM_COMPARED(X)
#undef X
};

/* "J/@": "J/token" */
static void put_unit(int metric, const char *item, char *out, size_t size)
{
	const char *at = strchr(units[metric], '@');

	snprintf(out, size, "%.*s%s", (int)(at ? at - units[metric] : (long)strlen(units[metric])),
		units[metric], at ? item : "");
}

static void put_change(const struct jm_comparison *c, char *out, size_t size)
{
	if (isnan(c->low))
		snprintf(out, size, "-");
	else
		snprintf(out, size, "%+.2f to %+.2f %%", 100 * (c->low - 1), 100 * (c->high - 1));
}

/* "-" where it is unknown. */
static void put_number(double value, char *out, size_t size)
{
	if (isnan(value))
		snprintf(out, size, "-");
	else
		snprintf(out, size, "%.4g", value);
}

static void print_line(const struct jm_compare_row *row, int metric, FILE *f)
{
	const struct jm_compare_line *l = &row->line[metric];
	char what[64], unit[48], change[48], a[24], b[24], ratio[24], p[24];

	put_unit(metric, row->item, unit, sizeof(unit));
	snprintf(what, sizeof(what), "%s %s", jm_compared_names[metric], unit);
	put_change(&l->c, change, sizeof(change));
	put_number(l->mean_a, a, sizeof(a));
	put_number(l->mean_b, b, sizeof(b));
	put_number(l->c.ratio, ratio, sizeof(ratio));
	snprintf(p, sizeof(p), isnan(l->c.p) ? "-" : l->c.p < 1e-4 ? "<0.0001" : "%.4f", l->c.p);
	fprintf(f, LINE, what, a, b, ratio, change, p, l->why_not ? "none" : jm_compare_verdict(l));
}

/* The test by ranks, which needs no distribution, beside Welch's; it decides nothing. */
static void print_ranks(const struct jm_compare_row *row, FILE *f)
{
	int n = 0;

	for (int i = 0; i < JM_COMPARED_COUNT; i++) {
		double p = row->line[i].p_rank;

		if (isnan(p))
			continue;
		fprintf(f, "%s%s %s%.*f",
			n++ ? ", " : "  p by ranks (Mann-Whitney): ", jm_compared_names[i],
			p < 1e-4 ? "<" : "", 4, fmax(p, 1e-4));
	}
	if (n)
		fputc('\n', f);
}

/* Each reason once, with the metrics that it holds for. */
static void print_reasons(const struct jm_compare_row *row, FILE *f)
{
	for (int i = 0; i < JM_COMPARED_COUNT; i++) {
		const char *why = row->line[i].why_not;
		bool is_first = why;

		for (int k = 0; k < i && is_first; k++)
			is_first = !row->line[k].why_not || strcmp(row->line[k].why_not, why) != 0;
		if (!is_first)
			continue;
		fprintf(f, "  no verdict on");
		for (int k = i, n = 0; k < JM_COMPARED_COUNT; k++)
			if (row->line[k].why_not && !strcmp(row->line[k].why_not, why))
				fprintf(f, "%s %s", n++ ? "," : "", jm_compared_names[k]);
		fprintf(f, ": %s\n", why);
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

static void print_row(const struct jm_compare_row *row, int width, FILE *f)
{
	print_title(row, width, f);
	if (row->failed_a + row->failed_b)
		fprintf(f, "  %d failed run%s of A and %d of B left out\n", row->failed_a,
			row->failed_a == 1 ? "" : "s", row->failed_b);
	fprintf(f, "  %-7s %10s %10s %7s %20s %8s  %s\n", "", "A", "B", "B/A", "change, 95 %", "p",
		"B is");
	for (int i = 0; i < JM_COMPARED_COUNT; i++)
		print_line(row, i, f);
	print_ranks(row, f);
	print_reasons(row, f);
}

int jm_compare_print(const struct jm_compare *c, int width, FILE *f)
{
	for (int i = 0; i < c->n; i++) {
		if (i)
			fputc('\n', f);
		print_row(&c->row[i], width, f);
	}
	if (c->only_a + c->only_b)
		fprintf(f, "\nNot compared: %d case%s only in A, %d only in B.\n", c->only_a,
			c->only_a == 1 ? "" : "s", c->only_b);
	if (c->note) {
		fputc('\n', f);
		jm_text_wrap(f, c->note, 0, 2, width);
	}
	return ferror(f) ? -1 : 0;
}

static json_t *optional_text(const char *text)
{
	return text ? json_string(text) : json_null();
}

static json_t *line_json(const struct jm_compare_row *row, int metric)
{
	const struct jm_compare_line *l = &row->line[metric];
	char unit[48];

	put_unit(metric, row->item, unit, sizeof(unit));
	return json_pack("{s:o, s:s, s:s, s:o, s:o, s:i, s:i, s:o, s:o, s:o, s:o, s:s, s:s, s:o}",
		"p_rank", jm_json_number(l->p_rank), "metric", jm_compared_names[metric], "unit",
		unit, "a", jm_json_number(l->mean_a), "b", jm_json_number(l->mean_b), "n_a",
		l->c.n_a, "n_b", l->c.n_b, "ratio", jm_json_number(l->c.ratio), "low",
		jm_json_number(l->c.low), "high", jm_json_number(l->c.high), "p",
		jm_json_number(l->c.p), "test", l->paired ? "paired" : "welch", "verdict",
		jm_compare_verdict(l), "why", optional_text(l->why_not));
}

static json_t *row_json(const struct jm_compare_row *row)
{
	json_t *lines = json_array();

	for (int i = 0; i < JM_COMPARED_COUNT; i++)
		json_array_append_new(lines, line_json(row, i));
	return json_pack("{s:s, s:s, s:b, s:i, s:i, s:o}", "work", row->title, "item", row->item,
		"simulated", row->simulated, "failed_a", row->failed_a, "failed_b", row->failed_b,
		"metrics", lines);
}

json_t *jm_compare_json(const struct jm_compare *c)
{
	json_t *rows = json_array();

	for (int i = 0; i < c->n; i++)
		json_array_append_new(rows, row_json(&c->row[i]));
	return json_pack("{s:s, s:o, s:i, s:i, s:o}", "schema", "joulemark.compare/1", "works",
		rows, "only_a", c->only_a, "only_b", c->only_b, "note", optional_text(c->note));
}
