/* SPDX-License-Identifier: Apache-2.0 */
/* Published figures on a terminal, below the tables of the records. */
#include "published_table.h"
#include "base/text/json.h"
#include "report/format/grid.h"
#include "report/format/text.h"

#include <stdlib.h>
#include <string.h>

#define MOST_SOURCES 26

/* The last column, of sources, gets letters; ret has what each stands for. Returns their number. */
static int shorten_sources(struct jm_grid *grid, char *ret[MOST_SOURCES])
{
	int n = 0, k;

	for (int r = 0; r < grid->rows; r++) {
		char **cell = &grid->cell[(r + 1) * grid->columns - 1];
		char letter[2] = {0}, *mark;

		for (k = 0; k < n && strcmp(ret[k], *cell) != 0; k++)
			;
		letter[0] = (char)('a' + k);
		mark = k < MOST_SOURCES ? strdup(letter) : NULL;
		if (!mark)
			return n;
		if (k < n)
			free(*cell);
		else
			ret[n++] = *cell;
		*cell = mark;
	}
	return n;
}

/* Where the table is too wide, its sources are below it. */
static void put_published(const struct jm_grouping *g, struct jm_grid *grid, FILE *out)
{
	int width = g->options.width;
	char *source[MOST_SOURCES], line[300];
	int n = jm_grid_fits(grid, width) ? 0 : shorten_sources(grid, source);

	jm_grid_print(grid, 0, width, out);
	for (int i = 0; i < n; i++) {
		jm_text_format(line, sizeof(line), "source %c: %s", 'a' + i, source[i]);
		jm_text_wrap(out, line, 2, 4, width);
		free(source[i]);
	}
}

static int put_work(const struct jm_grouping *g, const json_t *work, FILE *out, struct jm_err *err)
{
	const char *why_not = jm_json_text(work, "why_not");
	struct jm_grid grid;
	const json_t *note;
	char title[160];
	size_t i;
	int rc = 0;

	jm_published_title(work, title, sizeof(title));
	jm_text_title(out, title, g->options.bold, g->options.width);
	fputc('\n', out);
	jm_published_shape(work, title, sizeof(title));
	jm_text_wrap(out, title, 2, 4, g->options.width);
	fputc('\n', out);
	if (*why_not)
		jm_text_wrap(out, why_not, 2, 4, g->options.width);
	else
		rc = jm_published_grid(work, &grid, err);
	if (!*why_not && !rc) {
		put_published(g, &grid, out);
		jm_grid_done(&grid);
	}
	json_array_foreach(json_object_get(work, "notes"), i, note)
		jm_text_wrap(out, json_string_value(note), 2, 4, g->options.width);
	fputc('\n', out);
	return rc;
}

int jm_published_write_table(const struct jm_grouping *g, FILE *out, struct jm_err *err)
{
	return jm_published_each(g, put_work, out, err);
}
