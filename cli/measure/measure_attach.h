/* SPDX-License-Identifier: Apache-2.0 */
/* `measure` without a command: --for, --all, --pid, --cgroup. */
#ifndef JM_MEASURE_ATTACH_H
#define JM_MEASURE_ATTACH_H

#include "cli/frame/cli.h"
#include "measure/command/attach.h"
#include "measure/command/launch.h"

struct jm_measure_attach {
	struct jm_attach_options options;
	struct jm_attach *attach; /* NULL = a command is measured */
	struct jm_attached result;
	bool all;	     /* the machine, until Ctrl-C */
	long slurm_job;	     /* 0 = none */
	char job_group[512]; /* of slurm_job */
};

/* Before the sensors are opened; options, all, slurm_job: from the command line. */
int jm_measure_attach_open(struct jm_measure_attach *a, struct jm_cli *cli);
/* Under a session that has started. unit: as of jm_live_line_open */
int jm_measure_attach_run(struct jm_measure_attach *a, struct jm_cli *cli, struct jm_session *s,
	const char *unit, struct jm_outcome *ret);
void jm_measure_attach_close(struct jm_measure_attach *a);

#endif
