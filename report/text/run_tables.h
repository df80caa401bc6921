/* SPDX-License-Identifier: Apache-2.0 */
/* All kinds of tables of runs: of requests, of products beside transfers, of the steps of ranks. */
#ifndef JM_RUN_TABLES_H
#define JM_RUN_TABLES_H

#include "run_table.h"

/* Of each kind that runs of the series have figures for: begin with its title and explanation, then
 * put with each of its tables. */
struct jm_run_tables_to {
	void (*begin)(void *to, const char *title, const char *caption);
	void (*put)(void *to, struct jm_grid *grid);
	void *to;
};
void jm_run_tables_each(const struct jm_grouping *g, const struct jm_group_series *s,
	const struct jm_run_tables_to *out);

#endif
