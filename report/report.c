/* SPDX-License-Identifier: Apache-2.0 */
/* The formats of a report by name. */
#include "report.h"

int jm_report_render(const json_t *records, enum jm_report_format format,
	const struct jm_report_options *options, char **ret_text, struct jm_err *err)
{
	(void)format;
	(void)options;
	*ret_text = json_dumps(records, JSON_INDENT(2));
	if (!*ret_text)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the report.");
	return 0;
}

int jm_report_table(const json_t *records, const struct jm_report_options *options, char **ret_text,
	struct jm_err *err)
{
	return jm_report_render(records, JM_REPORT_TABLE, options, ret_text, err);
}
