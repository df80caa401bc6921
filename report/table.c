/* SPDX-License-Identifier: Apache-2.0 */
/* The report on a terminal. */
#include "grid.h"
#include "base/json.h"
#include "published.h"

#include <stdlib.h>
#include <string.h>

#define GAP 2

static int column_width(const struct jm_grid *t, int column)
{
	int width = jm_text_width(t->title[column]);

	for (int r = 0; r < t->rows; r++) {
		int w = jm_text_width(t->cell[r * t->columns + column]);

		width = w > width ? w : width;
	}
	return width;
}

static void put(FILE *out, const char *text, int width, bool left, bool last)
{
	int pad = width - jm_text_width(text);

	if (left)
		fprintf(out, "%s%*s", text, last ? 0 : pad, "");
	else
		fprintf(out, "%*s%s", pad, "", text);
	fprintf(out, "%*s", last ? 0 : GAP, "");
}

/* The setting's columns, then first .. end - 1, then the origin's if it is not among them. */
static void put_line(const struct jm_grid *t, char **cells, const int *shown, int n, FILE *out)
{
	for (int i = 0; i < n; i++)
		put(out, cells[shown[i]], column_width(t, shown[i]), t->left[shown[i]], i + 1 == n);
	fputc('\n', out);
}

/* As many columns from `first` on as the width takes, at least one. Returns the next first. */
static int choose_block(
	const struct jm_grid *t, int first, int width, bool origin, int *shown, int *ret_n)
{
	int used = origin ? column_width(t, t->columns - 1) : 0, n = 0, c;
	int end = t->columns - origin;

	for (c = 0; c < t->n_setting; c++) {
		shown[n++] = c;
		used += column_width(t, c) + GAP;
	}
	for (c = first; c < end; c++) {
		used += column_width(t, c) + GAP;
		if (used > width && c > first)
			break;
		shown[n++] = c;
	}
	if (origin)
		shown[n++] = t->columns - 1;
	*ret_n = n;
	return c;
}

static int put_blocks(const struct jm_grid *t, int width, FILE *out, struct jm_err *err)
{
	bool origin = !strcmp(t->title[t->columns - 1], "origin");
	int *shown = calloc((size_t)t->columns + 1, sizeof(*shown));
	int first = t->n_setting, n;

	if (!shown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a table.");
	while (first < t->columns - origin) {
		first = choose_block(t, first, width, origin, shown, &n);
		put_line(t, t->title, shown, n, out);
		for (int r = 0; r < t->rows; r++)
			put_line(t, &t->cell[r * t->columns], shown, n, out);
		fputc('\n', out);
	}
	free(shown);
	return 0;
}

/* Breaks at blanks; lines after the first are indented two more. */
static void put_wrapped(FILE *out, const char *text, int indent, int width)
{
	int used = indent;

	fprintf(out, "%*s", indent, "");
	while (*text) {
		const char *end = strchr(text, ' ');
		size_t length = end ? (size_t)(end - text) : strlen(text);
		int w = 0;

		for (size_t i = 0; i < length; i++)
			w += ((unsigned char)text[i] & 0xC0) != 0x80;
		if (used + 1 + w > width && used > indent + 2) {
			fprintf(out, "\n%*s", indent + 2, "");
			used = indent + 2;
		} else if (used > indent) {
			fputc(' ', out);
			used++;
		}
		fwrite(text, 1, length, out);
		used += w;
		text += length + (end != NULL);
	}
	fputc('\n', out);
}

static void put_verdicts(const struct jm_group *g, const struct jm_group_series *s, FILE *out)
{
	struct jm_verdict v[JM_VERDICT_MAX];
	char title[80], text[400], line[500];
	int n = jm_verdicts(g, s, v);

	if (s->n_points < 2)
		return;
	fprintf(out, "Best setting by metric%s%s%s\n", s->has_energy ? " (" : "",
		s->has_energy ? jm_origin_name(s->origin) : "", s->has_energy ? ")" : "");
	for (int i = 0; i < n; i++) {
		jm_group_metric_title(g, s, v[i].metric, title, sizeof(title));
		jm_text_verdict(g, s, &v[i], text, sizeof(text));
		snprintf(line, sizeof(line), "%-24s%s", title, text);
		put_wrapped(out, line, 2, g->options.width);
	}
	fputc('\n', out);
}

static void put_notes(const struct jm_group *g, const struct jm_group_series *s, FILE *out)
{
	bool violated = false, outliers = false;
	char reasons[1800], line[1900];

	for (int i = s->first_point; i < s->first_point + s->n_points; i++) {
		violated = violated || g->point[i].state == JM_STATE_VIOLATED;
		outliers = outliers || g->point[i].n_outliers;
	}
	if (s->reference >= 0)
		fprintf(out, "  *  the reference, in every block\n");
	if (violated)
		fprintf(out, "  () the device did not keep to the setting: not eligible as best\n");
	if (outliers)
		fprintf(out, "  !  an outlier is among the repeats; it is kept\n");
	if (s->has_energy && s->n_meters > 1)
		fprintf(out, "  median and max W are sums of the meters' own\n");
	if (*s->grade) {
		jm_text_quality(g, s, reasons, sizeof(reasons));
		snprintf(line, sizeof(line), "quality %s%s%s", s->grade, *reasons ? ": " : "",
			reasons);
		put_wrapped(out, line, 2, g->options.width);
	}
	fputc('\n', out);
}

static void put_failures(const struct jm_group *g, const struct jm_group_series *s, FILE *out)
{
	char text[900];

	if (!s->n_failed)
		return;
	fprintf(out, "Failed: %d of %d runs\n", s->n_failed, s->n_failed + s->n_ok);
	for (int i = 0; i < g->n_cases; i++) {
		if (g->c[i].ok || &g->series[g->c[i].series] != s)
			continue;
		jm_text_failure(g, &g->c[i], text, sizeof(text));
		put_wrapped(out, text, 2, g->options.width);
	}
	fputc('\n', out);
}

static int put_series(
	const struct jm_group *g, const struct jm_group_series *s, FILE *out, struct jm_err *err)
{
	struct jm_grid grid;
	char energy[200];
	int rc = jm_grid_init(&grid, g, s, err);

	if (rc)
		return rc;
	jm_text_energy(g, s, energy, sizeof(energy));
	fprintf(out, "%s\n%s; mean ± half of the 95 %% interval over n runs\n\n", s->title, energy);
	rc = put_blocks(&grid, g->options.width, out, err);
	jm_grid_done(&grid);
	put_notes(g, s, out);
	put_verdicts(g, s, out);
	put_failures(g, s, out);
	return rc;
}

static int put_work(const struct jm_group *g, const json_t *work, FILE *out, struct jm_err *err)
{
	const char *why_not = jm_json_text(work, "why_not");
	struct jm_grid grid;
	const json_t *note;
	char title[160];
	size_t i;
	int rc = 0;

	jm_published_title(work, title, sizeof(title));
	fprintf(out, "%s\n\n", title);
	jm_published_shape(work, title, sizeof(title));
	put_wrapped(out, title, 2, g->options.width);
	fputc('\n', out);
	if (*why_not)
		put_wrapped(out, why_not, 2, g->options.width);
	else
		rc = jm_published_grid(work, &grid, err);
	if (!*why_not && !rc) {
		rc = put_blocks(&grid, g->options.width, out, err);
		jm_grid_done(&grid);
	}
	json_array_foreach(json_object_get(work, "notes"), i, note)
		put_wrapped(out, json_string_value(note), 2, g->options.width);
	fputc('\n', out);
	return rc;
}

int jm_report_write_table(const struct jm_group *g, FILE *out, struct jm_err *err)
{
	int rc = 0;

	for (int i = 0; i < g->n_series && !rc; i++)
		rc = put_series(g, &g->series[i], out, err);
	return rc || !g->options.published ? rc : jm_published_each(g, put_work, out, err);
}
