/* SPDX-License-Identifier: Apache-2.0 */
/* A table of text cells. The terminal prints it in blocks that fit its width, Markdown in one
 * piece. */
#ifndef JM_REPORT_GRID_H
#define JM_REPORT_GRID_H

#include <stdbool.h>
#include <stdio.h>

#include "joulemark.h"

struct jm_grid {
	int rows, columns;
	int n_setting; /* leading columns that name the setting; repeated in each block */
	char **title;  /* [columns], with the unit */
	char **cell;   /* [rows * columns] */
	bool *left;    /* [columns] aligned to the left */
};

/* An empty table: titles and cells are NULL. */
int jm_grid_new(struct jm_grid *grid, int rows, int columns, struct jm_err *err);
/* Title or cell, as snprintf; row -1 is the title. */
int jm_grid_set(struct jm_grid *grid, int row, int column, struct jm_err *err, const char *format,
	...) __attribute__((format(printf, 5, 6)));
/* Groups the thousands from 1,000 on in columns of numbers with some from 10,000 on. */
void jm_grid_apart(struct jm_grid *t);
/* Calls jm_grid_apart, then prints blocks of whole columns after `indent` blanks; each block
 * repeats the first n_setting columns. */
void jm_grid_print(struct jm_grid *t, int indent, int width, FILE *out);
/* Do all columns fit into one block? */
bool jm_grid_fits(const struct jm_grid *t, int width);
void jm_grid_done(struct jm_grid *grid);

#endif
