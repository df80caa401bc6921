/* SPDX-License-Identifier: Apache-2.0 */
/* What the best setting of a report is: least energy within a limit of slowdown, or what
 * --objective names instead. */
#ifndef JM_REPORT_OBJECTIVE_H
#define JM_REPORT_OBJECTIVE_H

#include "report/model/grouping.h"

/*
 * "slowdown:5%", "energy", "edp", "ed2p", "eds:1.5" as `tune` has them, and "power:2000W", the
 * highest throughput within a mean power. k of eds is added to the options' where it is missing.
 * JM_EUSAGE
 */
int jm_report_objective_parse(const char *text, struct jm_report_options *o, struct jm_err *err);
/* The numbers of --k, "1.5,2.0", which the metric EDS has; all are above 1. JM_EUSAGE */
int jm_report_k_parse(const char *text, struct jm_report_options *o, struct jm_err *err);
/* Percent: by default the best setting loses at most so much time. */
double jm_report_objective_slowdown(const struct jm_grouping *g);
/* The metric by which settings are compared; that of the energy saved for a limit of slowdown. */
int jm_report_objective_metric(const struct jm_grouping *g);
/* "least energy while at most 5 % slower than the reference" */
void jm_report_objective_text(const struct jm_grouping *g, char *out, size_t size);
/* "at most 5 % slower", "least energy", "EDS k=2": as the head of a column */
void jm_report_objective_brief(const struct jm_grouping *g, char *out, size_t size);
/* "slowdown", "energy"... */
const char *jm_report_objective_name(enum jm_report_objective objective);

#endif
