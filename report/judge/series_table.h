/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a series, or of a family of them, as a grid of text cells; its columns by
 * name. */
#ifndef JM_SERIES_TABLE_H
#define JM_SERIES_TABLE_H

#include "report/format/grid.h"
#include "report/model/family.h"

/* --columns names columns that there are. */
int jm_series_table_check_columns(const struct jm_grouping *g, struct jm_err *err);
/* Does --columns name the column, or all? */
bool jm_series_table_lists(const struct jm_grouping *g, const char *name);
/* Has the table a column with the number of runs? If not, every setting has the same. */
bool jm_series_table_says_runs(const struct jm_grouping *g, const struct jm_group_series *s);
/* To be freed by jm_grid_done. Of a family the axes are the first columns. */
int jm_series_table_of_family(struct jm_grid *grid, const struct jm_grouping *g,
	const struct jm_family *f, struct jm_err *err);
int jm_series_table_of(struct jm_grid *grid, const struct jm_grouping *g,
	const struct jm_group_series *s, struct jm_err *err);

/* The first cell of a row about one run: its setting, and its repeat if that has several runs. */
int jm_series_table_set_run(struct jm_grid *grid, int row, const struct jm_grouping *g,
	const struct jm_group_case *c, struct jm_err *err);

/* A name for --columns, without those of --k; NULL after the last. */
const char *jm_series_table_column(size_t i);

#endif
