/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a series as text cells: the terminal prints it in blocks, Markdown in one piece. */
#ifndef JM_GRID_H
#define JM_GRID_H

#include <stdio.h>

#include "group.h"

struct jm_grid {
	int rows, columns;
	int n_setting; /* leading columns that name the setting; repeated in each block */
	char **title;  /* [columns], with the unit */
	char **cell;   /* [rows * columns] */
	bool *left;    /* [columns] aligned to the left */
};

int jm_grid_init(struct jm_grid *grid, const struct jm_group *g, const struct jm_group_series *s,
	struct jm_err *err);
void jm_grid_done(struct jm_grid *grid);

/* As snprintf, for what others wrote: one line of printable text, "..." where it did not fit. */
void jm_text_format(char *out, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The same behind what is there, with `between` if there is something. */
void jm_text_append(char *out, size_t size, const char *between, const char *what);
/* Columns a text takes on a terminal: code points, all of width one here. */
int jm_text_width(const char *text);
/*
 * "121084 ± 310": two digits of the half width decide how many of the mean make sense; four digits
 * where there is no interval. "-" for unknown.
 */
void jm_text_estimate(double mean, double half_width, char *out, size_t size);
/* A prefix for values of this size in a unit that takes one (J, Wh): "m" and 1e-3. */
double jm_text_prefix(const char *unit, double value, const char **ret_prefix);
/* "simulated", "estimated, simulated"... of all series: what a table must be marked with; "" = measured. */
void jm_text_origins(const struct jm_group *g, char *out, size_t size);
/* "energy: sum of 4 topmost meters, simulated; 100 W assumed for the rest of the node". */
void jm_text_energy(
	const struct jm_group *g, const struct jm_group_series *s, char *out, size_t size);
/* "energy per token" with its mean in a fitting unit: "16.1 mJ/token". */
void jm_text_metric_value(const struct jm_group *g, const struct jm_group_series *s, int metric,
	const struct jm_stat *stat, char *out, size_t size);
/* "best 300 W", what it is worth and why not: the whole sentence behind the metric's name. */
void jm_text_verdict(const struct jm_group *g, const struct jm_group_series *s,
	const struct jm_verdict *v, char *out, size_t size);
/* "300 W, repeat 2 (a3f2c1d0): the worker died": a failed case. */
void jm_text_failure(
	const struct jm_group *g, const struct jm_group_case *c, char *out, size_t size);
/* Why the runs have no better grade; of reasons that differ in numbers only, the first run's. */
json_t *jm_text_reasons(const struct jm_group *g, const struct jm_group_series *s);
/* The same as one text. */
void jm_text_quality(
	const struct jm_group *g, const struct jm_group_series *s, char *out, size_t size);

/* The formats; each writes to an open stream. */
int jm_report_write_table(const struct jm_group *g, FILE *out, struct jm_err *err);
int jm_report_write_md(const struct jm_group *g, FILE *out, struct jm_err *err);
int jm_report_write_csv(const struct jm_group *g, FILE *out, struct jm_err *err);
int jm_report_write_html(
	const struct jm_group *g, const json_t *records, FILE *out, struct jm_err *err);
/* The summary (joulemark.report/1), for the caller to decref; NULL: no memory. */
json_t *jm_report_summary(const struct jm_group *g);

#endif
