/* SPDX-License-Identifier: Apache-2.0 */
#include "slurm_job.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define CGROUPS "/sys/fs/cgroup/"

/* Of Slurm's plug-ins cgroup/v2 and cgroup/v1; a node with several slurmd has its name before the
 * scope or the folder. The job's number follows. */
static const char *const beginnings[] = {
	"system.slice/slurmstepd.scope/job_",
	"system.slice/*_slurmstepd.scope/job_",
	"cpuacct/slurm*/uid_*/job_",
	"cpu,cpuacct/slurm*/uid_*/job_",
};

/* The first folder of that pattern; false = there is none. */
static bool find(const struct jm_ctx *ctx, const char *pattern, char *out, size_t size)
{
	char path[PATH_MAX];
	size_t head = strlen(ctx->root) + strlen(CGROUPS);
	glob_t found = {0};
	bool any;

	snprintf(path, sizeof(path), "%s" CGROUPS "%s", ctx->root, pattern);
	any = !glob(path, GLOB_ONLYDIR, NULL, &found) && found.gl_pathc &&
	      strlen(found.gl_pathv[0] + head) < size;
	if (any)
		snprintf(out, size, "%s", found.gl_pathv[0] + head);
	globfree(&found);
	return any;
}

int jm_slurm_job_cgroup(
	const struct jm_ctx *ctx, long job, char *out, size_t size, struct jm_err *err)
{
	char pattern[200];

	for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++) {
		snprintf(pattern, sizeof(pattern), "%s%ld", beginnings[i], job);
		if (find(ctx, pattern, out, size))
			return 0;
	}
	snprintf(pattern, sizeof(pattern), "freezer/slurm*/uid_*/job_%ld", job);
	if (find(ctx, pattern, out, size))
		return jm_err_set(err, JM_ENOSUP,
			"The Slurm job %ld runs here, but Slurm makes no control group that counts "
			"its processor time; that needs JobAcctGatherType=jobacct_gather/cgroup in "
			"slurm.conf. --pid measures one process.",
			job);
	return jm_err_set(err, JM_ENOENT,
		"There is no control group of the Slurm job %ld on this host: it does not run "
		"here, or Slurm does not use cgroups (ProctrackType=proctrack/cgroup). 'squeue -j "
		"%ld' shows where it runs; --pid measures one process.",
		job, job);
}
