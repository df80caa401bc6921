/* SPDX-License-Identifier: Apache-2.0 */
/* Where a process stands in its job, and what its files are therefore called, by the rules of
 * jpwr. */
#ifndef JM_JPWR_JOB_H
#define JM_JPWR_JOB_H

#include "joulemark.h"

struct jm_jpwr_job {
	bool use_mpi;
	int rank;  /* -1 = unknown */
	int local; /* rank among the processes of this node; -1 = unknown */
};

/* From what the launcher wrote into the environment. With use_mpi an unknown rank is an error. */
int jm_jpwr_job_find(struct jm_jpwr_job *job, bool use_mpi, struct jm_err *err);
/* ranks: those that measure; n 0 = the first of each node, or rank 0 where the node's ranks are
 * unknown. */
bool jm_jpwr_job_measures(const struct jm_jpwr_job *job, const int *ranks, int n);
/*
 * What stands between "power." and ".csv". given: --df-suffix, whose %q{NAME} is replaced by the
 * variable of the environment; NULL = none.
 */
int jm_jpwr_job_suffix(struct jm_ctx *ctx, const struct jm_jpwr_job *job, const char *given,
	char *out, size_t size, struct jm_err *err);

#endif
