/* SPDX-License-Identifier: Apache-2.0 */
/* Columns as CSV and as text. */
#include "data_frame.h"
#include "base/text/csv_fields.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX 60 /* printed without a gap */
#define ENDS	 5  /* rows at each end of a longer table */
#define DECIMALS 6

static double value_of(const struct jm_columns *c, int row, int column)
{
	return c->value[(size_t)row * (size_t)c->n + (size_t)column];
}

/* ---- CSV ---- */

/* The fewest digits that give the number back; empty for NAN. */
static void put_number(FILE *out, double value)
{
	char text[40];

	if (!isfinite(value))
		return;
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}
	fputs(text, out);
	if (!text[strspn(text, "-0123456789")])
		fputs(".0", out);
}

static void put_series(const struct jm_columns *c, FILE *out)
{
	fputs(",0\n", out);
	for (int i = 0; i < c->n; i++) {
		jm_csv_put_text(out, c->name[i]);
		fputc(',', out);
		put_number(out, c->value[i]);
		fputc('\n', out);
	}
}

static void put_table(const struct jm_columns *c, FILE *out)
{
	for (int i = 0; i < c->n; i++) {
		fputc(',', out);
		jm_csv_put_text(out, c->name[i]);
	}
	fputc('\n', out);
	for (int row = 0; row < c->rows; row++) {
		fprintf(out, "%d", row);
		for (int i = 0; i < c->n; i++) {
			fputc(',', out);
			put_number(out, value_of(c, row, i));
		}
		fputc('\n', out);
	}
}

bool jm_columns_write_csv(const struct jm_columns *c, FILE *out)
{
	(c->series ? put_series : put_table)(c, out);
	return !ferror(out);
}

/* ---- text ---- */

static bool shown(const struct jm_columns *c, int row)
{
	return c->rows <= ROWS_MAX || row < ENDS || row >= c->rows - ENDS;
}

static void cell_text(double value, int decimals, char *out, size_t size)
{
	if (isnan(value))
		snprintf(out, size, "NaN");
	else
		snprintf(out, size, "%.*f", decimals, value);
}

/* How many of six decimals this number needs; 1 at least. */
static int decimals_of(double value)
{
	char text[64];
	int n = DECIMALS;

	if (isnan(value))
		return 1;
	cell_text(value, DECIMALS, text, sizeof(text));
	for (size_t end = strlen(text); n > 1 && text[end - 1] == '0'; end--)
		n--;
	return n;
}

struct format {
	int decimals, width;
};

/* One of a column: as many decimals as one of its numbers needs. */
static struct format format_of(const struct jm_columns *c, int first, int last)
{
	struct format f = {1, 0};
	char text[64];

	for (int pass = 0; pass < 2; pass++) {
		for (int row = 0; row < c->rows; row++) {
			for (int i = first; shown(c, row) && i < last; i++) {
				double value = value_of(c, row, i);
				int decimals = decimals_of(value), width;

				f.decimals = decimals > f.decimals ? decimals : f.decimals;
				cell_text(value, f.decimals, text, sizeof(text));
				width = (int)strlen(text);
				f.width = width > f.width ? width : f.width;
			}
		}
	}
	return f;
}

static void print_series(const struct jm_columns *c, FILE *out)
{
	struct format f = format_of(c, 0, c->n);
	char text[64];
	int width = 0;

	for (int i = 0; i < c->n; i++)
		width = (int)strlen(c->name[i]) > width ? (int)strlen(c->name[i]) : width;
	for (int i = 0; i < c->n; i++) {
		cell_text(c->value[i], f.decimals, text, sizeof(text));
		fprintf(out, "%-*s    %*s\n", width, c->name[i], f.width, text);
	}
	fputs("dtype: float64\n", out);
}

static void print_row(const struct jm_columns *c, const struct format *f, int row, FILE *out)
{
	char text[64];

	for (int i = 0; i < c->n; i++) {
		if (row < 0)
			snprintf(text, sizeof(text), "...");
		else
			cell_text(value_of(c, row, i), f[i].decimals, text, sizeof(text));
		fprintf(out, "  %*s", f[i].width, text);
	}
	fputc('\n', out);
}

static void print_table(const struct jm_columns *c, FILE *out)
{
	struct format *f = calloc((size_t)c->n + 1, sizeof(*f));
	int index = snprintf(NULL, 0, "%d", c->rows - 1);

	if (!f)
		return;
	index = c->rows > ROWS_MAX && index < 2 ? 2 : index;
	fprintf(out, "%*s", index, "");
	for (int i = 0; i < c->n; i++) {
		f[i] = format_of(c, i, i + 1);
		if ((int)strlen(c->name[i]) > f[i].width)
			f[i].width = (int)strlen(c->name[i]);
		fprintf(out, "  %*s", f[i].width, c->name[i]);
	}
	fputc('\n', out);
	for (int row = 0; row < c->rows; row++) {
		if (!shown(c, row)) {
			fprintf(out, "%-*s", index, "..");
			print_row(c, f, -1, out);
			row = c->rows - ENDS;
		}
		fprintf(out, "%-*d", index, row);
		print_row(c, f, row, out);
	}
	if (c->rows > ROWS_MAX)
		fprintf(out, "\n[%d rows x %d columns]\n", c->rows, c->n);
	free(f);
}

void jm_columns_print(const struct jm_columns *c, FILE *out)
{
	(c->series ? print_series : print_table)(c, out);
}
