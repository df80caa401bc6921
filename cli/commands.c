/* SPDX-License-Identifier: Apache-2.0 */
/* The commands, in the order of the help. */
#include "cli.h"

extern const struct jm_command jm_command_describe;
extern const struct jm_command jm_command_help;
extern const struct jm_command jm_command_report;

const struct jm_command *const jm_commands[] = {
	&jm_command_report,
	&jm_command_describe,
	&jm_command_help,
	NULL,
};
