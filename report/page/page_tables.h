/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of the terminal as cells, which the page sorts, filters and saves. */
#ifndef JM_PAGE_TABLES_H
#define JM_PAGE_TABLES_H

#include "report/model/grouping.h"

/*
 * Adds to the data of the page, a table being {titles, left [column is text], rows}:
 *	series[].tables		of runs that serve, overlap or train by several ranks: [{title,
 *				caption, tables}]; of training also `shares`, for a chart: in each
 *				row of the first table computation alone, computation beside
 *				transfers, and waits for these, ms
 *	signatures.tables	of kernels, and of correlations if there are some; `caption` and
 *				`correlated` say what they are
 *	published[].table	where there are rows
 *	scalings		over devices: [{title, item, rows[] {devices, mean, low, high of the
 *				throughput, share: percent of the ideal}, table}]; `scaling_caption`
 */
void jm_page_tables(const struct jm_grouping *g, json_t *data);
/* Phases of one run; null = it has no more than one. item: as of jm_phases_grid. */
json_t *jm_page_phases(const json_t *record, const char *item);

#endif
