/* SPDX-License-Identifier: Apache-2.0 */
/* Records of one job that were measured at the same time by several processes: parts of one run. */
#ifndef JM_RECORD_JOBS_H
#define JM_RECORD_JOBS_H

#include <jansson.h>

#include "joulemark.h"

/*
 * {id, step, process} of this process, as the key `job` of a record: of `name` (--job), or of the
 * job and step of Slurm that the environment names. NULL: there is none.
 */
json_t *jm_record_job(const char *name);

/*
 * Records of the same job and step that overlap in time, each of another process, become one record
 * in the place of the first: each meter of a machine once, over the time in which any of them
 * measured it; items, processor time and throughput as sums. Where one record does not cover that
 * time, what is missing is estimated by the mean power of another one, within bounds. Records must
 * have been checked (jm_record_check).
 * *ret: a new array; *ret_place, to be freed: of each old index the new one. Counts: what was
 * joined, and into how many.
 */
struct jm_joined {
	json_t *records;
	size_t *place;
	int n_parts, n_runs;
};
int jm_record_join_jobs(const json_t *records, struct jm_joined *ret, struct jm_err *err);

#endif
