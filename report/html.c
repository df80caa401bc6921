/* SPDX-License-Identifier: Apache-2.0 */
#include "grid.h"

int jm_report_write_html(
	const struct jm_group *g, const json_t *records, FILE *out, struct jm_err *err)
{
	(void)g;
	(void)records;
	(void)out;
	return jm_err_set(err, JM_ENOSUP, "The page is not written yet.");
}
