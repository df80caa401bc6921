/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records (joulemark.run/1, one JSON object per run of a case) -> a table, Markdown, CSV, JSON or
 * one self-contained HTML page. Everything is derived from one summary (joulemark.report/1,
 * summary.c), so that no two formats can disagree.
 */
#ifndef JM_REPORT_H
#define JM_REPORT_H

#include "report/model/options.h"

#define JM_REPORT_FORMATS(X)                                                                       \
	X(TABLE, "table")                                                                          \
	X(MD, "md")                                                                                \
	X(LATEX, "latex")                                                                          \
	X(CSV, "csv")                                                                              \
	X(JSON, "json")                                                                            \
	X(HTML, "html")                                                                            \
	X(OPENMETRICS, "openmetrics")
enum jm_report_format {
#define X(name, text) JM_REPORT_##name,
	JM_REPORT_FORMATS(X)
#undef X
};

/* Are the columns of that list (as in jm_report_options) columns of a table? NULL: yes.
 * JM_EUSAGE */
int jm_report_check_columns(const char *columns, struct jm_err *err);

/*
 * records: a JSON array of records, in any order, failed cases included. Returns the text,
 * 0-terminated and for the caller to free. options may be NULL.
 */
int jm_report_render(const json_t *records, enum jm_report_format format,
	const struct jm_report_options *options, char **ret_text, struct jm_err *err);

#endif
