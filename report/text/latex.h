/* SPDX-License-Identifier: Apache-2.0 */
/* The report in LaTeX. */
#ifndef JM_REPORT_LATEX_H
#define JM_REPORT_LATEX_H

#include "report/model/grouping.h"

/* Writes to an open stream. */
int jm_report_write_latex(const struct jm_grouping *g, FILE *out, struct jm_err *err);

#endif
