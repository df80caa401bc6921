/* SPDX-License-Identifier: Apache-2.0 */
/* Options of every command. */
#include "common_options.h"
#include "cli.h"
#include "screen.h"

const struct jm_option jm_common_options[] = {
	{.name = "output",
		JM_BIND(JM_TEXT, struct jm_cli, output),
		.argument = "FILE",
		.help = "write the results to this file instead of the terminal; - is standard "
			"output"},
	{.name = "quiet",
		JM_BIND(JM_FLAG, struct jm_cli, quiet),
		.help = "print results, warnings and errors only: no progress and no notes"},
	{.name = "width",
		JM_BIND(JM_INT, struct jm_cli, given_width),
		.min = JM_WIDTH_LEAST,
		.max = JM_WIDTH_MOST,
		.help = "columns of tables and text; without it those of the terminal, else 80"},
	{0},
};
