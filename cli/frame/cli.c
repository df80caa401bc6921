/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"
#include "screen.h"

int jm_cli_fail(const struct jm_cli *cli)
{
	bool usage = cli->err.code == JM_EUSAGE || cli->err.code == JM_ERANGE;

	jm_screen_say("", cli->err.text);
	return usage ? JM_EXIT_USAGE : JM_EXIT_FAILURE;
}

bool jm_cli_given(const struct jm_cli *cli, const char *name)
{
	return jm_values_given(&cli->values, name);
}

const char *jm_cli_first_given(const struct jm_cli *cli, const char *const *names)
{
	while (*names && !jm_cli_given(cli, *names))
		names++;
	return *names;
}
