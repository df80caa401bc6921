/* SPDX-License-Identifier: Apache-2.0 */
/* The formats of a report by name. */
#include "report.h"
#include "report/page/html.h"
#include "report/systems/published.h"
#include "report/text/csv.h"
#include "report/text/latex.h"
#include "report/text/md.h"
#include "report/text/openmetrics.h"
#include "report/text/summary.h"
#include "report/text/table.h"

#include <stdlib.h>

static int write_json(const struct jm_grouping *g, FILE *out, struct jm_err *err)
{
	json_t *summary = jm_report_summary(g, true);
	int rc = -1;

	if (summary)
		rc = json_dumpf(summary, out, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
	fputc('\n', out);
	json_decref(summary);
	return rc ? jm_err_set(err, JM_ENOMEM, "Out of memory for the report as JSON.") : 0;
}

static int write_format(const struct jm_grouping *g, const json_t *records,
	enum jm_report_format format, FILE *out, struct jm_err *err)
{
	switch (format) {
	case JM_REPORT_TABLE:
		return jm_report_write_table(g, out, err);
	case JM_REPORT_MD:
		return jm_report_write_md(g, out, err);
	case JM_REPORT_LATEX:
		return jm_report_write_latex(g, out, err);
	case JM_REPORT_CSV:
		return g->options.published ? jm_published_write_csv(g, out, err)
					    : jm_report_write_csv(g, out, err);
	case JM_REPORT_JSON:
		return write_json(g, out, err);
	case JM_REPORT_HTML:
		return jm_report_write_html(g, out, err);
	case JM_REPORT_OPENMETRICS:
		jm_openmetrics_records(&(struct jm_openmetrics){.out = out}, records);
		return 0;
	}
	return jm_err_set(err, JM_EBUG, "There is no report format %d.", (int)format);
}

int jm_report_check_columns(const char *columns, struct jm_err *err)
{
	struct jm_grouping g = {0};

	jm_group_take_options(&g, &(struct jm_report_options){.columns = columns});
	return jm_series_table_check_columns(&g, err);
}

int jm_report_render(const json_t *records, enum jm_report_format format,
	const struct jm_report_options *options, char **ret_text, struct jm_err *err)
{
	struct jm_grouping g;
	char *text = NULL;
	size_t size = 0;
	FILE *out;
	int rc = jm_group_init(&g, records, options, err);

	if (rc)
		return rc;
	rc = jm_series_table_check_columns(&g, err);
	out = rc ? NULL : open_memstream(&text, &size);
	if (!rc && !out)
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for the report.");
	else if (!rc)
		rc = write_format(&g, records, format, out, err);
	if (out && fclose(out) && !rc)
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for the report.");
	jm_group_done(&g);
	if (rc)
		free(text);
	else
		*ret_text = text;
	return rc;
}
