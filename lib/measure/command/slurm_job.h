/* SPDX-License-Identifier: Apache-2.0 */
/* Where Slurm puts the processes of a job. */
#ifndef JM_SLURM_JOB_H
#define JM_SLURM_JOB_H

#include "base/ctx.h"

/* The job's control group on this host as a path below /sys/fs/cgroup, of version 2 or of version 1
 * with its processor times. JM_ENOENT: there is none. */
int jm_slurm_job_cgroup(
	const struct jm_ctx *ctx, long job, char *out, size_t size, struct jm_err *err);

#endif
