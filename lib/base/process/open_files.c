/* SPDX-License-Identifier: Apache-2.0 */
#include "open_files.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

/* A launcher has three files open for each rank on this host; a rank that was started apart has
 * one of the gang, one of its heartbeat, and one of a transport or launcher for each other rank.
 * The rest is for guests at a door (meet_door.c). */
#define WANTED(ranks) (3 * (rlim_t)(ranks) + 640)
#define NEEDED(ranks) (3 * (rlim_t)(ranks) + 64)

int jm_open_files_allow(int ranks, struct jm_err *err)
{
	struct rlimit most;

	if (getrlimit(RLIMIT_NOFILE, &most) || most.rlim_cur >= WANTED(ranks))
		return 0;
	if (most.rlim_max < NEEDED(ranks))
		return jm_err_set(err, JM_ERANGE,
			"%d ranks need %lu open files, and this process may have %lu; raise its "
			"limit (ulimit -Hn).",
			ranks, (unsigned long)NEEDED(ranks), (unsigned long)most.rlim_max);
	most.rlim_cur = most.rlim_max < WANTED(ranks) ? most.rlim_max : WANTED(ranks);
	return setrlimit(RLIMIT_NOFILE, &most) ? jm_err_set(err, JM_EIO,
							 "The limit of open files cannot be "
							 "raised: %s.",
							 strerror(errno))
					       : 0;
}
