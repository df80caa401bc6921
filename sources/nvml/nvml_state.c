/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the driver that may never return, each for one GPU. */
#include "nvml_state.h"
#include "base/clock.h"

#include <dlfcn.h>
#include <pthread.h>

void jm_nvml_call_begin(struct jm_nvml_board *g)
{
	atomic_store(&g->call_ns, jm_clock_now(jm_clock_real()));
}

/* glibc loads this library at the first pthread_exit, and aborts the process where it cannot. */
bool jm_nvml_can_leave(void)
{
	return dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_NODELETE);
}

void jm_nvml_call_end(struct jm_nvml_board *g)
{
	/* nothing of the board may be touched after this */
	if (atomic_exchange(&g->call_ns, 0) == JM_NVML_LEFT)
		pthread_exit(NULL);
}

bool jm_nvml_leave(void *state, int64_t since_ns)
{
	struct jm_nvml_state *s = state;

	for (int i = 0; s->can_leave && i < s->n; i++) {
		int64_t began = atomic_load(&s->gpu[i].call_ns);

		if (began > 0 && began < since_ns &&
			atomic_compare_exchange_strong(&s->gpu[i].call_ns, &began, JM_NVML_LEFT))
			return true;
	}
	return false;
}

bool jm_nvml_waits(void *state)
{
	struct jm_nvml_state *s = state;

	for (int i = 0; i < s->n; i++)
		if (atomic_load(&s->gpu[i].call_ns) == JM_NVML_LEFT)
			return true;
	if (!jm_nvml_first_done(s->first))
		return true;
	s->first = NULL;
	return false;
}
