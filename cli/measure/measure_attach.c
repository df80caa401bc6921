/* SPDX-License-Identifier: Apache-2.0 */
#include "measure_attach.h"
#include "cli/frame/interrupts.h"
#include "live_line.h"

#include "base/clock.h"
#include "base/process/process_identity.h"
#include "measure/command/slurm_job.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>

#define SHORT 0.1 /* s: energy over less than a refresh of a sensor is mostly bound */

/* How many of --all, --pid, --cgroup and --slurm-job are given. */
static int n_targets(const struct jm_measure_attach *a)
{
	return a->all + (a->options.pid != 0) + (a->options.cgroup != NULL) + (a->slurm_job != 0);
}

/* What needs a command, or another choice. */
static int check(const struct jm_measure_attach *a, struct jm_cli *cli)
{
	static const char *const of_commands[] = {"store", "items-regex", "items-json",
		"items-kind", "job", "phase-regex", "phase-at", NULL};
	const char *name = jm_cli_first_given(cli, of_commands);

	if (cli->command)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--for, --all, --pid, --cgroup and --slurm-job measure what is already "
			"running; omit them, or the command '%s'.",
			cli->command[0]);
	if (n_targets(a) > 1)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"Give one of --all, --pid, --cgroup and --slurm-job; --for can be added to "
			"each.");
	if (jm_cli_given(cli, "unit") && !jm_cli_given(cli, "items-url"))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--unit names what --items-url counts where no command runs; give both, or "
			"omit "
			"--unit.");
	if (!name)
		return 0;
	return jm_err_set(&cli->err, JM_EUSAGE,
		"--%s applies to a command, but --for, --all, --pid, --cgroup and --slurm-job run "
		"none; omit --%s.",
		name, name);
}

int jm_measure_attach_open(struct jm_measure_attach *a, struct jm_cli *cli)
{
	struct jm_attach_options *o = &a->options;
	bool attaches = n_targets(a) || o->for_ns;
	int rc;

	if (!attaches && cli->command)
		return 0;
	if (!attaches)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"There is no command to measure. Usage: 'joulemark measure [options] "
			"CMD...', or one of --for, --all, --pid, --cgroup and --slurm-job.");
	rc = check(a, cli);
	if (!rc && a->slurm_job)
		rc = jm_slurm_job_cgroup(
			&cli->ctx, a->slurm_job, a->job_group, sizeof(a->job_group), &cli->err);
	if (rc)
		return rc;
	if (*a->job_group)
		o->cgroup = a->job_group;
	o->tick_ns = JM_SECOND;
	o->tick = jm_live_line_draw;
	rc = jm_attach_open(&cli->ctx, o, &a->attach, &cli->err);
	if (!rc)
		rc = jm_catch_interrupts(&cli->ctx, &o->wake_fd, &cli->err);
	return rc;
}

static void warn_of_a_short_one(const struct jm_measure_attach *a, const struct jm_cli *cli)
{
	double seconds = (double)(a->result.end_ns - a->result.start_ns) * 1e-9;

	if (a->result.ended && seconds < SHORT)
		jm_log(&cli->ctx, JM_WARNING,
			"The %s ended %.3f s after the measurement began; this time is too short "
			"for an accurate energy.",
			a->result.what, seconds);
}

static void name_work(const struct jm_measure_attach *a, char *out, size_t size)
{
	if (a->options.pid)
		jm_process_text(a->options.pid, out, size);
	else if (a->options.cgroup)
		snprintf(out, size, "control group %s", a->options.cgroup);
	else
		snprintf(out, size, "the machine");
}

int jm_measure_attach_run(struct jm_measure_attach *a, struct jm_cli *cli, struct jm_session *s,
	const char *unit, struct jm_outcome *ret)
{
	struct jm_live_line line;
	int rc;

	jm_live_line_open(&line, cli, s, unit);
	if (a->options.for_ns)
		line.for_s = (double)a->options.for_ns * 1e-9;
	name_work(a, line.work, sizeof(line.work));
	a->options.tick_arg = &line;
	rc = jm_attach_run(a->attach, s, &a->result, &cli->err);
	jm_live_line_close(&line);
	if (rc)
		return rc;
	warn_of_a_short_one(a, cli);
	*ret = (struct jm_outcome){
		.phase = a->result.phase,
		.marked = a->result.phase,
		.start_ns = a->result.start_ns,
		.end_ns = a->result.end_ns,
		.wall_s = (double)(a->result.end_ns - a->result.start_ns) * 1e-9,
		.unseen_ns = a->result.unseen_ns,
		.items = NAN,
		.throughput = NAN,
	};
	return 0;
}

void jm_measure_attach_close(struct jm_measure_attach *a)
{
	jm_attach_close(a->attach);
	a->attach = NULL;
}
