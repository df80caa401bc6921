/* SPDX-License-Identifier: Apache-2.0 */
/* Hidden commands, which `run` starts: `worker`, the process of one case; `reaper`, which cleans up
 * after it; `watchdog`, which watches over a call. */
#include "cli/frame/cli.h"
#include "run/worker/case_reaper.h"
#include "run/gang/launcher.h"
#include "run/gang/call_watchdog.h"
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

static int reaper_run(struct jm_cli *cli)
{
	return jm_case_reaper_serve(&cli->ctx, &cli->err) ? jm_cli_fail(cli) : 0;
}

const struct jm_command jm_command_reaper = {
	.name = "reaper",
	.summary = "end what a case of a killed 'run' has left behind",
	.usage = "",
	.description = "Started by 'joulemark run' itself.",
	.hidden = true,
	.run = reaper_run,
};

static int watchdog_run(struct jm_cli *cli)
{
	return jm_watchdog_serve(&cli->err) ? jm_cli_fail(cli) : 0;
}

const struct jm_command jm_command_watchdog = {
	.name = "watchdog",
	.summary = "end a 'run' over several hosts that is stopped",
	.usage = "",
	.description = "Started by 'joulemark run --launcher started' itself.",
	.hidden = true,
	.run = watchdog_run,
};
