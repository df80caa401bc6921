/* SPDX-License-Identifier: Apache-2.0 */
/* Values that a shell may complete, of an option or of a store; one per line. */
#ifndef JM_OPTION_VALUES_H
#define JM_OPTION_VALUES_H

#include "cli.h"

/* What may follow --OPTION of that command (NULL = of any): devices that are here, models, knobs,
 * columns, choices. option "FILE:": the fields of the records of that store or file, for 'compare
 * FILE:NAME=VALUE'. Nothing for others. */
void jm_option_values_print(
	struct jm_cli *cli, const char *option, const struct jm_command *cmd, FILE *out);

#endif
