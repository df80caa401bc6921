/* SPDX-License-Identifier: Apache-2.0 */
/* Options of every command. */
#include "common_options.h"
#include "cli.h"
#include "screen.h"

const struct jm_option jm_common_options[] = {
	{.name = "output",
		.type = JM_TEXT,
		.argument = "FILE",
		.help = "write the results to this file instead of the terminal; - is standard "
			"output"},
	{.name = "quiet",
		.type = JM_FLAG,
		.help = "print results, warnings and errors only: no progress and no notes"},
	{.name = "width",
		.type = JM_INT,
		.min = JM_WIDTH_LEAST,
		.max = JM_WIDTH_MOST,
		.help = "columns of tables and text; without it those of the terminal, else 80"},
	{0},
};
