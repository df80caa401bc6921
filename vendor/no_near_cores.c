/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of near_cores.c, in a build without the headers of hwloc. */
#include "near_cores.h"

int jm_near_cores_try(struct jm_err *err)
{
	return jm_err_set(err, JM_ENOSUP,
		"This joulemark was built without the headers of hwloc; build it again with "
		"Debian's libhwloc-dev installed.");
}

int jm_near_cores(struct jm_near *rank, int n, char *ret_rest, bool *ret_here, struct jm_err *err)
{
	(void)rank;
	(void)n;
	(void)ret_rest;
	(void)ret_here;
	return jm_near_cores_try(err);
}
