/* SPDX-License-Identifier: Apache-2.0 */
/* Hidden commands, which `run` starts: `worker`, the process of one case; `keeper`, which cleans up
 * after it; `watchman`, which watches over a call. */
#include "cli/frame/cli.h"
#include "run/worker/case_keeper.h"
#include "run/gang/launcher.h"
#include "run/gang/watchman.h"
#include "run/worker/worker.h"
#include "run_affinity.h"

#include <stdio.h>
#include <unistd.h>
#include <fcntl.h>

static int worker_run(struct jm_cli *cli)
{
	json_t *job = json_loadfd(STDIN_FILENO, 0, NULL);
	int null, rc;

	if (!job || fcntl(JM_WORKER_FRAMES, F_GETFD) < 0) {
		json_decref(job);
		jm_err_set(&cli->err, JM_EUSAGE, "'worker' is for 'joulemark run' alone.");
		return jm_cli_fail(cli);
	}
	null = open("/dev/null", O_RDONLY);
	if (null >= 0)
		dup2(null, STDIN_FILENO);
	if (null > STDIN_FILENO)
		close(null);
	rc = jm_worker_run(&cli->ctx, job, jm_run_affinity, &cli->err);
	json_decref(job);
	return rc ? JM_EXIT_FAILURE : 0;
}

const struct jm_command jm_command_worker = {
	.name = "worker",
	.summary = "run one case (started by 'run')",
	.usage = "",
	.description = "Reads a job from standard input, sends its results to descriptor 3, and "
		       "reads orders from descriptor 4.",
	.hidden = true,
	.run = worker_run,
};

static int keeper_run(struct jm_cli *cli)
{
	return jm_case_keeper_serve(&cli->ctx, &cli->err) ? jm_cli_fail(cli) : 0;
}

const struct jm_command jm_command_keeper = {
	.name = "keeper",
	.summary = "end what a case of a killed 'run' has left behind",
	.usage = "",
	.description = "Started by 'joulemark run' itself.",
	.hidden = true,
	.run = keeper_run,
};

static int watchman_run(struct jm_cli *cli)
{
	return jm_watchman_serve(&cli->err) ? jm_cli_fail(cli) : 0;
}

const struct jm_command jm_command_watchman = {
	.name = "watchman",
	.summary = "end a 'run' over several hosts that is stopped",
	.usage = "",
	.description = "Started by 'joulemark run --launcher started' itself.",
	.hidden = true,
	.run = watchman_run,
};
