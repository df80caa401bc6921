/* SPDX-License-Identifier: Apache-2.0 */
/* A table of text cells: filled cell by cell, printed in blocks of whole columns. */
#include "grid.h"
#include "base/printable.h"
#include "text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define GAP	   2
#define PLUS_MINUS " ± "

static int no_memory(struct jm_err *err)
{
	return jm_err_set(err, JM_ENOMEM, "Out of memory for a table.");
}

int jm_grid_new(struct jm_grid *grid, int rows, int columns, struct jm_err *err)
{
	*grid = (struct jm_grid){.rows = rows, .columns = columns, .n_setting = 1};
	grid->title = calloc((size_t)columns, sizeof(*grid->title));
	grid->left = calloc((size_t)columns, sizeof(*grid->left));
	grid->cell = calloc((size_t)columns * (size_t)rows + 1, sizeof(*grid->cell));
	if (grid->title && grid->left && grid->cell)
		return 0;
	jm_grid_done(grid);
	return no_memory(err);
}

int jm_grid_set(
	struct jm_grid *grid, int row, int column, struct jm_err *err, const char *format, ...)
{
	char **cell = row < 0 ? &grid->title[column] : &grid->cell[row * grid->columns + column];
	va_list ap;
	int n;

	free(*cell);
	va_start(ap, format);
	n = vasprintf(cell, format, ap);
	va_end(ap);
	if (n >= 0) {
		jm_text_tame(*cell); /* what others wrote controls no terminal */
		return 0;
	}
	*cell = NULL;
	return no_memory(err);
}

static const char *text_of(const char *cell)
{
	return cell ? cell : "";
}

static int column_width(const struct jm_grid *t, int column)
{
	int width = jm_text_width(text_of(t->title[column]));

	for (int r = 0; r < t->rows; r++) {
		int w = jm_text_width(text_of(t->cell[r * t->columns + column]));

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

/* The leading columns, then first .. end - 1. */
static void put_line(const struct jm_grid *t, char **cells, int first, int end, FILE *out)
{
	for (int c = 0; c < end; c++)
		if (c < t->n_setting || c >= first)
			put(out, text_of(cells[c]), column_width(t, c), t->left[c], c + 1 == end);
	fputc('\n', out);
}

/* As many columns from `first` on as fit into the width, at least one. Returns the one after
 * them. */
static int end_of_block(const struct jm_grid *t, int first, int width)
{
	int used = 0, c;

	for (c = 0; c < t->n_setting; c++)
		used += column_width(t, c) + GAP;
	for (c = first; c < t->columns; c++) {
		used += column_width(t, c) + (c > first ? GAP : 0);
		if (used > width && c > first)
			break;
	}
	return c;
}

bool jm_grid_fits(const struct jm_grid *t, int width)
{
	return end_of_block(t, t->n_setting, width) == t->columns;
}

static bool has_large(const struct jm_grid *t, int column)
{
	for (int r = 0; r < t->rows; r++)
		if (jm_text_is_apart(text_of(t->cell[r * t->columns + column])))
			return true;
	return false;
}

static void group_cell(char **cell)
{
	char text[100];

	if (!*cell || strlen(*cell) > sizeof(text) / 2)
		return;
	snprintf(text, sizeof(text), "%s", *cell);
	jm_text_apart_all(text, sizeof(text));
	if (strcmp(text, *cell) != 0) {
		char *grouped = strdup(text);

		if (grouped) {
			free(*cell);
			*cell = grouped;
		}
	}
}

void jm_grid_apart(struct jm_grid *t)
{
	for (int c = t->n_setting; c < t->columns; c++) {
		bool large = !t->left[c] && has_large(t, c);

		for (int r = 0; large && r < t->rows; r++)
			group_cell(&t->cell[r * t->columns + c]);
	}
}

/* What follows the "±" of a number; NULL = it has none. */
static const char *doubt_of(const char *cell)
{
	const char *at = cell ? strstr(cell, PLUS_MINUS) : NULL;

	return at ? at + strlen(PLUS_MINUS) : NULL;
}

/* "(16.70 ± 0.06)", of a setting that was not held. */
static bool is_closed(const char *cell)
{
	size_t n = cell ? strlen(cell) : 0;

	return n && cell[n - 1] == ')';
}

/* Of a column: the widest doubt, without a parenthesis, and whether there is one. */
struct doubts {
	int most;
	bool closed;
};

static struct doubts doubts_of(const struct jm_grid *t, int column)
{
	struct doubts d = {0};

	for (int r = 0; r < t->rows; r++) {
		const char *cell = t->cell[r * t->columns + column], *doubt = doubt_of(cell);
		int width = doubt ? jm_text_width(doubt) - is_closed(cell) : 0;

		d.most = width > d.most ? width : d.most;
		d.closed = d.closed || is_closed(cell);
	}
	return d;
}

/* A number alone ends where the others have their "±"; one with it gets blanks before a shorter
 * doubt. */
static void align_cell(char **cell, struct doubts d)
{
	const char *doubt = doubt_of(*cell), *after = d.closed && !is_closed(*cell) ? " " : "";
	const char *from = *cell + (**cell == '-');
	char *padded = NULL;
	int n = -1;

	if (doubt)
		n = asprintf(&padded, "%.*s%*s%s%s", (int)(doubt - *cell), *cell,
			d.most - jm_text_width(doubt) + is_closed(*cell), "", doubt, after);
	else if (*from >= '0' && *from <= '9')
		n = asprintf(
			&padded, "%s%*s%s", *cell, d.most + jm_text_width(PLUS_MINUS), "", after);
	if (n < 0)
		return;
	free(*cell);
	*cell = padded;
}

/* One below the other: the doubts of a column, and the numbers before them. */
static void align_doubts(struct jm_grid *t)
{
	for (int c = t->n_setting; c < t->columns; c++) {
		struct doubts d = doubts_of(t, c);

		for (int r = 0; d.most && !t->left[c] && r < t->rows; r++)
			if (t->cell[r * t->columns + c])
				align_cell(&t->cell[r * t->columns + c], d);
	}
}

/* Without blanks at the end of a line. */
static void put_row(const struct jm_grid *t, char **cells, int first, int end, FILE *out)
{
	char *line = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&line, &n);

	if (!f)
		return;
	put_line(t, cells, first, end, f);
	if (!fclose(f)) {
		while (n > 1 && line[n - 2] == ' ')
			n--;
		fprintf(out, "%.*s\n", (int)n - 1, line);
	}
	free(line);
}

void jm_grid_print(struct jm_grid *t, int indent, int width, FILE *out)
{
	jm_grid_apart(t);
	align_doubts(t);
	for (int first = t->n_setting, end; first < t->columns; first = end) {
		end = end_of_block(t, first, width - indent);
		if (first > t->n_setting)
			fputc('\n', out);
		fprintf(out, "%*s", indent, "");
		put_row(t, t->title, first, end, out);
		for (int r = 0; r < t->rows; r++) {
			fprintf(out, "%*s", indent, "");
			put_row(t, &t->cell[r * t->columns], first, end, out);
		}
	}
}

void jm_grid_done(struct jm_grid *grid)
{
	for (int i = 0; grid->title && i < grid->columns; i++)
		free(grid->title[i]);
	for (int i = 0; grid->cell && i < grid->columns * grid->rows; i++)
		free(grid->cell[i]);
	free(grid->title);
	free(grid->cell);
	free(grid->left);
	*grid = (struct jm_grid){0};
}
