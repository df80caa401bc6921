/* SPDX-License-Identifier: Apache-2.0 */
#include "report_formats.h"

#define BIT(FORMAT) (1U << JM_REPORT_##FORMAT)

static const struct {
	const char *option;
	unsigned int used; /* by these formats */
	const char *names;
} rows[] = {
	{"why", BIT(TABLE), "--format table (json and html always contain the reasons)"},
	{"phases", BIT(TABLE), "--format table (json and html always contain the phases)"},
	{"title", BIT(HTML), "--format html"},
	{"columns", BIT(TABLE) | BIT(MD) | BIT(LATEX), "--format table, md or latex"},
	{"published", BIT(TABLE) | BIT(MD) | BIT(CSV) | BIT(JSON) | BIT(HTML),
		"--format table, md, csv, json or html"},
};

int jm_report_check_format(struct jm_cli *cli, enum jm_report_format format)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!(rows[i].used & 1U << format) && jm_cli_given(cli, rows[i].option))
			return jm_err_set(&cli->err, JM_EUSAGE,
				"--%s has no effect here: it applies only to %s. Omit it.",
				rows[i].option, rows[i].names);
	return 0;
}
