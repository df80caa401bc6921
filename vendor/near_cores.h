/* SPDX-License-Identifier: Apache-2.0 */
/* Which processors of this machine lie next to which GPUs, by hwloc, which is opened when it is
 * needed. */
#ifndef JM_VENDOR_NEAR_CORES_H
#define JM_VENDOR_NEAR_CORES_H

#include <stddef.h>

#include "joulemark.h"

#define JM_CPUS_TEXT 1024

/* A rank and its share of the processors (hardware threads), as lists of the kernel's numbers. */
struct jm_near {
	char bus[32];		 /* of its GPU: "00000000:1A:00.0"; goes in, the rest comes out */
	char cpus[JM_CPUS_TEXT]; /* "0-11,96-107" */
	char nodes[128];	 /* NUMA nodes of these */
};

/*
 * Ranks whose GPUs lie next to the same cores divide these equally, in whole cores; if there are
 * fewer cores than ranks, each has all. rest[JM_CPUS_TEXT]: what no rank has; where the ranks
 * would have all, one core of theirs is left, unless one of them then had fewer than three: "".
 *
 * *ret_here: it is this machine; false: a file that hwloc's variable HWLOC_XMLFILE names.
 * JM_ENOENT: hwloc does not know a GPU; JM_EBUSY: this process is bound to some processors
 * already; JM_ENOSUP: no hwloc.
 */
int jm_near_cores(struct jm_near *rank, int n, char *ret_rest, bool *ret_here, struct jm_err *err);
/* Can it be opened? */
int jm_near_cores_try(struct jm_err *err);

#endif
