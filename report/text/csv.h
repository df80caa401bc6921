/* SPDX-License-Identifier: Apache-2.0 */
/* The report as CSV. */
#ifndef JM_REPORT_CSV_H
#define JM_REPORT_CSV_H

#include "report/model/grouping.h"

/* Writes to an open stream. */
int jm_report_write_csv(const struct jm_grouping *g, FILE *out, struct jm_err *err);

#endif
