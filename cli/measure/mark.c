/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark mark: one message from inside a measured command. */
#include "cli/frame/cli.h"
#include "measure/session/marker.h"
#include "measure/session/progress.h"

struct call {
	double items; /* NAN = not given */
};

static const struct jm_option options[] = {
	{.name = "items",
		JM_BIND(JM_REAL, struct call, items),
		.unit = "",
		.min = 0,
		.max = 1e300,
		.argument = "N",
		.help = "items done since the previous mark"},
	{0},
};

static int mark(struct jm_cli *cli)
{
	struct call call;

	JM_FILL(&cli->values, &call);
	return jm_progress_send(cli->args[0], call.items, &cli->err) ? jm_cli_fail(cli) : 0;
}

const struct jm_command jm_command_mark = {
	.name = "mark",
	.summary = "mark a phase, or items done, from inside a measured command",
	.usage = "[--items N] NAME",
	.description = "Sends a mark to the joulemark that runs this command. The mark begins the "
		       "phase NAME. The items were done since the previous mark. A mark with the "
		       "same NAME continues the phase, so that one mark after each step counts "
		       "items. The throughput is measured from the first mark to the last.\n\nA "
		       "mark outside of 'measure' and 'run' is an error.",
	.example =
		"joulemark measure -- \\\n"
		"    sh -c 'load; joulemark mark train; train; joulemark mark done --items 1000'",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.no_recovery = true, /* the mark is sent between two steps of the measured work */
	.run = mark,
};
