/* SPDX-License-Identifier: Apache-2.0 */
/* The summary (joulemark.report/1), from which every format is made. */
#ifndef JM_REPORT_SUMMARY_H
#define JM_REPORT_SUMMARY_H

#include "report/model/grouping.h"

/* The summary (joulemark.report/1), for the caller to decref; NULL: no memory. */
json_t *jm_report_summary(const struct jm_grouping *g, bool with_cases);

#endif
