/* SPDX-License-Identifier: Apache-2.0 */
/* Options of `report` that only some formats have a place for. */
#ifndef JM_REPORT_FORMATS_H
#define JM_REPORT_FORMATS_H

#include "cli/frame/cli.h"
#include "report/report.h"

/* An option that changes nothing of this format is an error. */
int jm_report_check_format(struct jm_cli *cli, enum jm_report_format format);

#endif
