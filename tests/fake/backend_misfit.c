/* SPDX-License-Identifier: Apache-2.0 */
/* Plug-ins that the engine must turn away: OLDER speaks another version, HOLLOW lacks functions, and without
 * either it is no backend at all. */
#include "engine/backend.h"

#if defined(OLDER) || defined(HOLLOW)
static const struct jm_backend misfit = {
#ifdef OLDER
	.abi = JM_BACKEND_ABI - 1,
#else
	.abi = JM_BACKEND_ABI,
#endif
	.name = "misfit",
	.summary = "does not fit",
};

const struct jm_backend *jm_backend_entry(void)
{
	return &misfit;
}
#else
JM_API int alien(void);
int alien(void)
{
	return 0;
}
#endif
