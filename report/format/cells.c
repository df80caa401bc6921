/* SPDX-License-Identifier: Apache-2.0 */
/* A table of text cells: filled cell by cell, printed in blocks of whole columns. */
#include "cells.h"
#include "text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define GAP 2

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
	if (n >= 0)
		return 0;
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

void jm_grid_print(struct jm_grid *t, int indent, int width, FILE *out)
{
	jm_grid_apart(t);
	for (int first = t->n_setting, end; first < t->columns; first = end) {
		end = end_of_block(t, first, width - indent);
		if (first > t->n_setting)
			fputc('\n', out);
		fprintf(out, "%*s", indent, "");
		put_line(t, t->title, first, end, out);
		for (int r = 0; r < t->rows; r++) {
			fprintf(out, "%*s", indent, "");
			put_line(t, &t->cell[r * t->columns], first, end, out);
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
