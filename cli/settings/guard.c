/* SPDX-License-Identifier: Apache-2.0 */
/* The hidden command `guard`: the process that changes knobs and restores them, which only
 * joulemark itself starts. */
#include "cli/frame/cli.h"
#include "guard/guard_serve.h"
#include "guard/guard_wire.h"

static int run_guard(struct jm_cli *cli)
{
	return jm_guard_serve(&cli->ctx, JM_WIRE_FD, &cli->err) ? jm_cli_fail(cli) : 0;
}

const struct jm_command jm_command_guard = {
	.name = "guard",
	.summary = "the process that changes knobs and restores them",
	.usage = "",
	.description = "Started by joulemark.",
	.hidden = true,
	.run = run_guard,
};
