/* SPDX-License-Identifier: Apache-2.0 */
/* The report as Markdown. Whatever came from outside is escaped. */
#include "md.h"
#include "base/text/json.h"
#include "report/judge/signature.h"
#include "scaling_text.h"
#include "signature_text.h"
#include "report/format/grid.h"
#include "report/format/text.h"
#include "report/judge/legend.h"
#include "report/judge/meaning.h"
#include "report/judge/sentence.h"
#include "report/judge/soft_control.h"
#include "report/judge/verdict.h"
#include "report/model/warnings.h"
#include "report/systems/published.h"
#include "run_tables.h"
#include "training_text.h"

#include <string.h>

/* A newline would end a row, a pipe a cell; the rest would be markup. */
static void put(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '\n' || *text == '\r')
			fputc(' ', out);
		else if (*text == '<')
			fputs("&lt;", out);
		else if (*text == '>')
			fputs("&gt;", out);
		else if (*text == '&')
			fputs("&amp;", out);
		else if (strchr("\\|*_`[]#", *text))
			fprintf(out, "\\%c", *text);
		else
			fputc(*text, out);
	}
}

static void put_row(FILE *out, char **cells, int n)
{
	for (int i = 0; i < n; i++) {
		fputs("| ", out);
		put(out, cells[i]);
		fputc(' ', out);
	}
	fputs("|\n", out);
}

static void put_grid(FILE *out, struct jm_grid *t)
{
	jm_grid_apart(t);
	put_row(out, t->title, t->columns);
	for (int c = 0; c < t->columns; c++)
		fputs(t->left[c] ? "|---" : "|---:", out);
	fputs("|\n", out);
	for (int r = 0; r < t->rows; r++)
		put_row(out, &t->cell[r * t->columns], t->columns);
}

static void put_verdicts(const struct jm_grouping *g, const struct jm_group_series *s, FILE *out)
{
	struct jm_verdict v[JM_VERDICT_MAX];
	char title[120], text[400];
	int n = jm_verdicts(g, s, v);

	if (s->n_points < 2)
		return;
	if (jm_text_within(g, s, text, sizeof(text))) {
		fputc('\n', out);
		put(out, jm_text_within_title(g, title, sizeof(title)));
		fputs(": ", out);
		put(out, text);
		fputc('\n', out);
	}
	fputs("\n| By a single metric | Best setting", out);
	if (s->has_energy)
		fprintf(out, " (%s)", jm_origin_name(s->origin));
	fputs(" |\n|---|---|\n", out);
	for (int i = 0; i < n; i++) {
		if (jm_verdict_repeats(g, v, n, i) >= 0)
			continue;
		jm_text_question(g, s, v[i].metric, title, sizeof(title));
		jm_text_verdict(g, s, &v[i], text, sizeof(text));
		fputs("| ", out);
		put(out, title);
		fputs(" | ", out);
		put(out, text);
		fputs(" |\n", out);
	}
}

static void put_failures(const struct jm_grouping *g, const struct jm_group_series *s, FILE *out)
{
	char text[900];

	if (s->n_failed)
		fprintf(out, "\nFailed: %d of %d runs\n\n", s->n_failed, s->n_failed + s->n_ok);
	for (int i = 0; i < g->n_cases; i++) {
		if (g->c[i].ok || &g->series[g->c[i].series] != s)
			continue;
		jm_text_failure(g, &g->c[i], text, sizeof(text));
		fputs("- ", out);
		put(out, text);
		fputc('\n', out);
	}
}

static void put_paragraph(FILE *out, const char *text)
{
	fputc('\n', out);
	put(out, text);
	fputc('\n', out);
}

static void put_notes(const struct jm_grouping *g, const struct jm_group_series *s, FILE *out)
{
	json_t *warnings = jm_warnings(g, s);
	const json_t *warning;
	char text[900];
	size_t i;

	json_array_foreach(warnings, i, warning)
	{
		put_paragraph(out, json_string_value(warning));
	}
	json_decref(warnings);
	if (jm_text_held(g, s, text, sizeof(text)))
		put_paragraph(out, text);
	if (jm_text_share(g, s))
		put_paragraph(out, jm_text_share(g, s));
	jm_text_figures(g, text, sizeof(text));
	if (*text)
		put_paragraph(out, text);
}

static void put_caption(void *to, const char *title, const char *caption)
{
	FILE *out = to;

	(void)title;
	fprintf(out, "\n%s\n", caption);
}

static void put_run_grid(void *to, struct jm_grid *grid)
{
	FILE *out = to;

	fputc('\n', out);
	put_grid(out, grid);
}

/* Of a single run, as the terminal has it. */
static void put_learnt(const struct jm_grouping *g, const struct jm_group_series *s, FILE *out)
{
	char text[800];

	for (int i = 0; i < g->n_cases && s->n_ok == 1; i++) {
		if (!g->c[i].ok || &g->series[g->c[i].series] != s)
			continue;
		jm_text_learnt(g->c[i].record, text, sizeof(text));
		if (*text)
			fprintf(out, "\n%s\n", text);
	}
}

/* What stands above the table of a series. */
static void put_head(const struct jm_grouping *g, const struct jm_group_series *s, FILE *out)
{
	struct jm_text_sign signs[JM_TEXT_SIGNS];
	char text[700];

	fputs("## ", out);
	put(out, s->title);
	jm_text_energy(g, s, text, sizeof(text));
	fputs("\n\n", out);
	put(out, text);
	jm_text_spread(g, s, text, sizeof(text));
	put(out, text);
	if (s->reference >= 0)
		fprintf(out, "; \\* the reference: %s", jm_text_reference(g, s));
	for (const struct jm_text_sign *sign = jm_text_signs(g, s, signs); sign->sign; sign++)
		fprintf(out, "; %s %s", sign->sign, sign->meaning);
	fputs("\n\n", out);
	if (s->reference >= 0) {
		jm_text_relative(g, s, text, sizeof(text));
		put(out, text);
		fputs("\n\n", out);
	}
	jm_text_machine(g, s, text, sizeof(text));
	put(out, text);
	fputs(*text ? "\n\n" : "", out);
}

static void put_quality(const struct jm_grouping *g, const struct jm_group_series *s, FILE *out)
{
	char text[700], grade[80];

	if (!*s->grade)
		return;
	jm_text_quality(g, s, text, sizeof(text));
	jm_text_grade(s->grade, jm_text_energy_origin(g, s), grade, sizeof(grade));
	fprintf(out, "\nQuality %s%s", grade, *text ? ". " : "");
	put(out, text);
	fputc('\n', out);
}

static int put_series(
	const struct jm_grouping *g, const struct jm_group_series *s, FILE *out, struct jm_err *err)
{
	struct jm_grid grid;
	int rc = jm_series_table_of(&grid, g, s, err);

	if (rc)
		return rc;
	put_head(g, s, out);
	put_grid(out, &grid);
	jm_grid_done(&grid);
	put_learnt(g, s, out);
	jm_run_tables_each(g, s, &(struct jm_run_tables_to){put_caption, put_run_grid, out});
	put_verdicts(g, s, out);
	put_failures(g, s, out);
	put_quality(g, s, out);
	put_notes(g, s, out);
	fputc('\n', out);
	return 0;
}

static int put_work(const struct jm_grouping *g, const json_t *work, FILE *out, struct jm_err *err)
{
	struct jm_grid grid;
	const json_t *note;
	char title[160];
	size_t i;
	int rc = jm_published_grid(work, &grid, err);

	(void)g;
	if (rc)
		return rc;
	jm_published_title(work, title, sizeof(title));
	fputs("## ", out);
	put(out, title);
	fputs("\n\n", out);
	jm_published_shape(work, title, sizeof(title));
	put(out, title);
	fputs("\n\n", out);
	put(out, jm_json_text(work, "why_not"));
	if (grid.rows)
		put_grid(out, &grid);
	jm_grid_done(&grid);
	fputc('\n', out);
	json_array_foreach(json_object_get(work, "notes"), i, note)
	{
		fputs("- ", out);
		put(out, json_string_value(note));
		fputc('\n', out);
	}
	fputc('\n', out);
	return 0;
}

static void put_signatures(const struct jm_grouping *g, FILE *out)
{
	json_t *signatures = jm_signatures(g);
	struct jm_err none = JM_ERR_INIT;
	struct jm_grid grid;
	char text[1000];

	if (jm_signature_compares(signatures)) {
		jm_signature_text(signatures, text, sizeof(text));
		fprintf(out, "## Signatures of kernels\n\n%s\n\n", text);
		if (!jm_signature_rows(signatures, &grid, &none)) {
			put_grid(out, &grid);
			jm_grid_done(&grid);
		}
		if (!jm_signature_correlations(signatures, &grid, &none)) {
			fprintf(out, "\n%s\n\n", jm_signature_correlated);
			put_grid(out, &grid);
			jm_grid_done(&grid);
		}
	}
	json_decref(signatures);
}

static void put_scaling(
	void *out, const struct jm_scaling *s, const char *title, struct jm_grid *grid)
{
	(void)s;
	fprintf(out, "## " JM_SCALING_TITLE ": %s\n\n%s\n\n", title, jm_scaling_caption);
	put_grid(out, grid);
}

int jm_report_write_md(const struct jm_grouping *g, FILE *out, struct jm_err *err)
{
	int rc = 0;

	for (int i = 0; i < g->n_series && !rc; i++)
		rc = put_series(g, &g->series[i], out, err);
	if (!rc)
		put_signatures(g, out);
	if (!rc)
		jm_scaling_each(g, put_scaling, out);
	return rc || !g->options.published ? rc : jm_published_each(g, put_work, out, err);
}
