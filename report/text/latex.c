/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables as LaTeX: one `table` with `tabular` per series, for \\input in a paper. Needs no
 * package: rules are \\hline, units and symbols are in math mode. Whatever came from outside is
 * escaped.
 */
#include "latex.h"
#include "report/format/grid.h"
#include "report/judge/series_table.h"
#include "report/judge/legend.h"
#include "report/judge/meaning.h"
#include "report/judge/sentence.h"
#include "report/judge/soft_control.h"

#include <string.h>

static const struct {
	const char *text, *latex;
} symbols[] = {
	{"\\", "\\textbackslash{}"},
	{"&", "\\&"},
	{"%", "\\%"},
	{"$", "\\$"},
	{"#", "\\#"},
	{"_", "\\_"},
	{"{", "\\{"},
	{"}", "\\}"},
	{"~", "\\textasciitilde{}"},
	{"^", "\\textasciicircum{}"},
	{"<", "$<$"},
	{">", "$>$"},
	{"±", "$\\pm$"},
	{"µ", "$\\mu$"},
	{"²", "$^2$"},
	{"³", "$^3$"},
	{"⁶", "$^6$"},
	{"·", "$\\cdot$"},
	{"°", "$^\\circ$"},
	{"--", "-{}-"}, /* no dash */
	{"\n", " "},
	{"\r", " "},
};

static void put(FILE *out, const char *text)
{
	while (*text) {
		size_t i = 0, n = sizeof(symbols) / sizeof(symbols[0]);

		while (i < n && strncmp(text, symbols[i].text, strlen(symbols[i].text)) != 0)
			i++;
		if (i < n) {
			fputs(symbols[i].latex, out);
			text += strlen(symbols[i].text);
		} else {
			fputc(*text++, out);
		}
	}
}

static void put_row(FILE *out, char **cells, int n)
{
	for (int i = 0; i < n; i++) {
		fputs(i ? " & " : "", out);
		put(out, cells[i] ? cells[i] : "");
	}
	fputs(" \\\\\n", out);
}

static void put_grid(FILE *out, struct jm_grid *t)
{
	jm_grid_apart(t);
	fputs("\\begin{tabular}{", out);
	for (int c = 0; c < t->columns; c++)
		fputc(t->left[c] ? 'l' : 'r', out);
	fputs("}\n\\hline\n", out);
	put_row(out, t->title, t->columns);
	fputs("\\hline\n", out);
	for (int r = 0; r < t->rows; r++)
		put_row(out, &t->cell[r * t->columns], t->columns);
	fputs("\\hline\n\\end{tabular}\n", out);
}

static int put_series(
	const struct jm_grouping *g, const struct jm_group_series *s, FILE *out, struct jm_err *err)
{
	struct jm_text_sign signs[JM_TEXT_SIGNS];
	struct jm_grid grid;
	char text[900];
	int rc = jm_series_table_of(&grid, g, s, err);

	if (rc)
		return rc;
	fputs("\\begin{table}\n\\centering\n\\caption{", out);
	put(out, s->title);
	fputs(". ", out);
	jm_text_energy(g, s, text, sizeof(text));
	put(out, text);
	jm_text_spread(g, s, text, sizeof(text));
	put(out, text);
	if (s->reference >= 0) {
		put(out, "; * the reference: ");
		put(out, jm_text_reference(g, s));
	}
	for (const struct jm_text_sign *sign = jm_text_signs(g, s, signs); sign->sign; sign++) {
		snprintf(text, sizeof(text), "; %s %s", sign->sign, sign->meaning);
		put(out, text);
	}
	if (jm_text_held(g, s, text, sizeof(text))) {
		put(out, ". ");
		put(out, text);
	}
	if (jm_text_share(g, s)) {
		put(out, ". ");
		put(out, jm_text_share(g, s));
	}
	fputs(".}\n", out);
	fprintf(out, "\\label{tab:joulemark-%d}\n", (int)(s - g->series) + 1);
	put_grid(out, &grid);
	jm_grid_done(&grid);
	fputs("\\end{table}\n", out);
	return 0;
}

int jm_report_write_latex(const struct jm_grouping *g, FILE *out, struct jm_err *err)
{
	char text[400];
	int rc = 0;

	for (int i = 0; i < g->n_series && !rc; i++)
		rc = put_series(g, &g->series[i], out, err);
	jm_text_figures(g, text, sizeof(text));
	if (*text) {
		fputs("% ", out);
		put(out, text);
		fputc('\n', out);
	}
	return rc;
}
