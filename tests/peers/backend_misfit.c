/* SPDX-License-Identifier: Apache-2.0 */
/* Plug-ins that the engine must refuse: OLDER has another version, HOLLOW lacks functions, EMPTY
 * gives no table, HALFWAY has only one of the event functions, and without any of these macros it
 * is no backend. */
#include "engine/device/backend_events.h"

#if defined(HALFWAY)
#include "engine/graph/tensor.h"

extern const struct jm_backend jm_backend_ref;
static struct jm_backend misfit;

static int event_query(void *dev, void *event, struct jm_err *err)
{
	(void)dev;
	(void)event;
	(void)err;
	return 1;
}

const struct jm_backend *jm_backend_entry(void)
{
	static const struct jm_backend_events events = {.query = event_query};

	misfit = jm_backend_ref;
	misfit.events = &events;
	return &misfit;
}
#elif defined(EMPTY)
const struct jm_backend *jm_backend_entry(void)
{
	return NULL;
}
#elif defined(OLDER) || defined(HOLLOW)
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
