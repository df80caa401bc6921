/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What papers report of the networks in a report, shown to the reader next to the measured figures.
 * It enters no statistic, no metric and no conclusion.
 */
#ifndef JM_PUBLISHED_H
#define JM_PUBLISHED_H

#include "report/judge/series_table.h"

/*
 * Made by published.py from published.json and sim/data: [{model, task ("training"), workload of a
 * record that does it, response of the simulated node made from it, unit, shape, size {option:
 * number} of that shape, flops_model_per_item, origin ("published"), notes[], rows[] {device,
 * devices that worked together, cap_watts, cap_kept (null: no cap), batch of all of them,
 * precision, items_per_s, watts, watts_max, items_per_joule, hours, kwh of all of them,
 * gpu_load_percent, metric of which gain_percent is the gain, own_gain_percent and own_cap_watts
 * (published_own.h), source}}]; rates and watts per device, unknown is null.
 */
extern const char jm_published_json[];

/*
 * Of the works that the records did or simulated, in that form, and of all works where there is no
 * record; where the papers' work is of another size, rows is empty and why_not a sentence, else "".
 * The caller owns it; NULL: no memory.
 */
json_t *jm_published_of(const struct jm_grouping *g);
/* Did the run do that work in the papers' size? */
bool jm_published_is(const json_t *record, const json_t *work);

#define JM_PUBLISHED_NONE "There are no published figures for the network of these records."
/* Calls put for each of them, in order; a sentence where there is none. */
typedef int jm_published_fn(
	const struct jm_grouping *g, const json_t *work, FILE *out, struct jm_err *err);
int jm_published_each(
	const struct jm_grouping *g, jm_published_fn *put, FILE *out, struct jm_err *err);

/* One network's rows as a table; jm_grid_done. */
int jm_published_grid(const json_t *work, struct jm_grid *ret, struct jm_err *err);
/* Its heading, and what the papers trained on as the sentence below it. */
void jm_published_title(const json_t *work, char *out, size_t size);
void jm_published_shape(const json_t *work, char *out, size_t size);
/* All of them as CSV with a heading. */
int jm_published_write_csv(const struct jm_grouping *g, FILE *out, struct jm_err *err);

#endif
