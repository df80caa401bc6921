/* SPDX-License-Identifier: Apache-2.0 */
/* The report for a terminal. */
#ifndef JM_REPORT_TABLE_H
#define JM_REPORT_TABLE_H

#include "report/model/grouping.h"

/* Writes to an open stream. */
int jm_report_write_table(const struct jm_grouping *g, FILE *out, struct jm_err *err);

#endif
