/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a series as text cells: the terminal prints it in blocks, Markdown in one piece. */
#ifndef JM_GRID_H
#define JM_GRID_H

#include <stdio.h>

#include "cells.h"
#include "family.h"
#include "group.h"
#include "text.h"

/* --columns names columns that there are. */
int jm_grid_check_columns(const struct jm_grouping *g, struct jm_err *err);
/* Has the table a column with the number of runs? If not, every setting has the same. */
bool jm_grid_says_runs(const struct jm_grouping *g, const struct jm_group_series *s);
/* The table of a family: its axes are the first columns. */
int jm_grid_family(struct jm_grid *grid, const struct jm_grouping *g, const struct jm_family *f,
	struct jm_err *err);
int jm_grid_init(struct jm_grid *grid, const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_err *err);

/* "simulated", "estimated, simulated"... of all series: what a table must be marked with; "" = measured. */
void jm_text_origins(const struct jm_grouping *g, char *out, size_t size);
/* "energy: sum over 4 GPUs, each counted once, simulated; 100 W assumed for the rest of the node". */
void jm_text_energy(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);
/* "; mean ± half of the 95 % interval over 3 runs", what follows it in a caption; "" where no run succeeded. */
void jm_text_spread(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);
/* A sign beside settings or figures of a table, and its meaning. */
struct jm_text_sign {
	const char *sign, *meaning;
};
#define JM_TEXT_SIGNS 5
/* Writes those that the table of the series has to ret[JM_TEXT_SIGNS], and NULL after them; returns ret. */
const struct jm_text_sign *jm_text_signs(
	const struct jm_grouping *g, const struct jm_group_series *s, struct jm_text_sign *ret);
/* "node1, 2 x NVIDIA H100 (GPU-8f000000, GPU-9a000000), nvidia 550.54", or which were pooled and how; "" of a
 * simulated run. */
void jm_text_machine(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);
/* "0.25 EUR per kWh, 380 gCO2e per kWh, PUE 1.2; source: ..."; "" = the user gave no figures. */
void jm_text_figures(const struct jm_grouping *g, char *out, size_t size);
/* "Nodes in a rack of 40,000 W at 400 W: by rated power (10,200 W) 3, by the 99th percentile ..." */
void jm_text_capacity(
	const struct jm_grouping *g, const struct jm_group_point *p, char *out, size_t size);
#define JM_PERCENT_LEAST                                                                           \
	0.01 /* percentage points: finer differences of a saving or a slowdown do not matter */
#define JM_PERCENT_PLACES 2
/* "11.29 ± 0.01": a saving or a slowdown in percent; a half width is JM_PERCENT_LEAST at least. */
void jm_text_percent(const struct jm_stat *stat, char *out, size_t size);
/* "600 W per GPU (11.29 ± 0.01 % less energy, 3.50 ± 0.01 % more time; simulated)" by jm_verdict_within, with the origin
 * unless it is measured; false: no such setting. */
bool jm_text_within(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);
/* "energy per token" with its mean in a fitting unit: "16.1 mJ/token". */
void jm_text_metric_value(const struct jm_grouping *g, const struct jm_group_series *s, int metric,
	const struct jm_stat *stat, char *out, size_t size);
/* "best 300 W", the gain, or the reason why there is none: the sentence after the metric's name. */
void jm_text_verdict(const struct jm_grouping *g, const struct jm_group_series *s,
	const struct jm_verdict *v, char *out, size_t size);
/* "300 W, repeat 2 (a3f2c1d0): the worker died": a failed case. */
void jm_text_failure(
	const struct jm_grouping *g, const struct jm_group_case *c, char *out, size_t size);
/* Why the grade of the runs is not better; of reasons that differ only in numbers, those of the first
 * run. */
json_t *jm_text_reasons(const struct jm_grouping *g, const struct jm_group_series *s);
/* The same as one text. */
void jm_text_quality(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);

/* "EDP: energy times time per token; lower is better": of a metric whose name does not say it; "" of the others. */
void jm_text_meaning(
	const struct jm_grouping *g, const char *item, int metric, char *out, size_t size);
/* "least energy per token": what the best setting by a metric is. */
void jm_text_question(const struct jm_grouping *g, const struct jm_group_series *s, int metric,
	char *out, size_t size);
/* "per GPU" where the one control was set on several devices; "" = it was not. */
void jm_text_per(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);
/* "4 GPUs", "5 meters": what power and energy are sums over; "" of one meter. */
void jm_text_sum(const struct jm_group_series *s, char *out, size_t size);
/* Both as a sentence; false: one of them is "". */
bool jm_text_sums(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);
/* What EDP and EDS are. */
void jm_text_products(const struct jm_group_series *s, char *out, size_t size);
/* "unchanged, the value that the devices had before the run"; the series has a reference. */
const char *jm_text_reference(const struct jm_grouping *g, const struct jm_group_series *s);
/* What the columns saved and slower are; a slowdown of more than 100 % is also given as a multiple of the time. */
void jm_text_relative(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);
/* "--hold-power: ... 300 W held": how runs of the series held the power by pauses; false: none was to hold one. */
bool jm_text_held(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);
/* "--sm-share: ...": runs had a part of the multiprocessors; NULL: none. */
const char *jm_text_share(const struct jm_grouping *g, const struct jm_group_series *s);
/* Both sentences, as far as the series has them: an array that the caller owns. */
json_t *jm_soft_json(const struct jm_grouping *g, const struct jm_group_series *s);
/* Why the intervals of those columns can be narrower than those they are made of; false: they are not paired. */
bool jm_text_paired(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);

/* The formats; each writes to an open stream. */
int jm_report_write_table(const struct jm_grouping *g, FILE *out, struct jm_err *err);
int jm_report_write_md(const struct jm_grouping *g, FILE *out, struct jm_err *err);
int jm_report_write_latex(const struct jm_grouping *g, FILE *out, struct jm_err *err);
int jm_report_write_csv(const struct jm_grouping *g, FILE *out, struct jm_err *err);
int jm_report_write_html(const struct jm_grouping *g, FILE *out, struct jm_err *err);
/* The summary (joulemark.report/1), for the caller to decref; NULL: no memory. */
json_t *jm_report_summary(const struct jm_grouping *g, bool with_cases);

#endif
