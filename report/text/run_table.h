/* SPDX-License-Identifier: Apache-2.0 */
/* Tables with one row or more for each run of a series whose record has a part, such as "serving".
 * The first column is the setting where there are several runs. */
#ifndef JM_RUN_TABLE_H
#define JM_RUN_TABLE_H

#include "report/format/grid.h"
#include "report/model/grouping.h"

struct jm_run_table {
	const char *part;  /* the key of the record; an object */
	int rows, columns; /* of a run, without the setting */
	const char *label; /* the title of a first column of text; NULL = there is none */
	int (*titles)(struct jm_grid *grid, int first, struct jm_err *err); /* behind the label */
	/* Fills the rows of a run from `row` and column `first` on; the label is the first one. */
	int (*put)(struct jm_grid *grid, int row, int first, const struct jm_grouping *g,
		const struct jm_group_case *c, struct jm_err *err);
};

/* One or two tables of such runs, with a title and an explanation. */
struct jm_run_tables {
	const char *title;
	const char *caption; /* NULL: `explain` writes it */
	void (*explain)(const struct jm_grouping *g, const struct jm_group_series *s, char *out,
		size_t size);
	/* how many runs of the series have figures for them; the tables take 1 and more */
	int (*runs)(const struct jm_grouping *g, const struct jm_group_series *s);
	int (*table[2])(const struct jm_grouping *g, const struct jm_group_series *s,
		struct jm_grid *ret, struct jm_err *err);
};

/* The next run from number *i on whose record has the part; NULL = there is none. */
const struct jm_group_case *jm_run_table_next(
	const struct jm_grouping *g, const struct jm_group_series *s, const char *part, int *i);
/* How many there are; the table takes 1 and more. */
int jm_run_table_runs(
	const struct jm_grouping *g, const struct jm_group_series *s, const char *part);
/* ret is the caller's, to be given to jm_grid_done; untouched after an error. */
int jm_run_table(const struct jm_run_table *t, const struct jm_grouping *g,
	const struct jm_group_series *s, struct jm_grid *ret, struct jm_err *err);
/* A number without an interval; "-" = unknown. */
int jm_run_table_number(struct jm_grid *grid, int row, int column, double x, struct jm_err *err);

#endif
