/* SPDX-License-Identifier: Apache-2.0 */
/* The report as one HTML page. */
#ifndef JM_REPORT_HTML_H
#define JM_REPORT_HTML_H

#include "report/model/grouping.h"

/* Writes to an open stream. */
int jm_report_write_html(const struct jm_grouping *g, FILE *out, struct jm_err *err);

#endif
