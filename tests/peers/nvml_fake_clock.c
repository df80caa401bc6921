/* SPDX-License-Identifier: Apache-2.0 */
/* Locked clocks of the fake NVML: kept in the state of the driver, and, as in the real one, not
 * reported by any call. */
#include "nvml_fake.h"

#define STEP 15

/* As the driver does: *n is the room, and then how many there are. */
static int give(unsigned int wanted, unsigned int *n, unsigned int *mhz, const unsigned int *from)
{
	unsigned int room = *n;

	*n = wanted;
	if (room < wanted)
		return JM_NVML_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < wanted; i++)
		mhz[i] = from[i];
	return JM_NVML_OK;
}

API int nvmlDeviceGetSupportedMemoryClocks(jm_nvml_device d, unsigned int *n, unsigned int *mhz)
{
	const unsigned int all[] = {fake.memory_mhz, LOW_MEMORY};

	ENTER(d);
	return fake.clocks ? give(2, n, mhz, all) : JM_NVML_NOT_SUPPORTED;
}

API int nvmlDeviceGetSupportedGraphicsClocks(
	jm_nvml_device d, unsigned int memory_mhz, unsigned int *n, unsigned int *mhz)
{
	unsigned int all[256], count = 0;

	ENTER(d);
	if (!fake.clocks)
		return JM_NVML_NOT_SUPPORTED;
	if (memory_mhz != fake.memory_mhz && memory_mhz != LOW_MEMORY)
		return JM_NVML_NOT_FOUND;
	for (unsigned int clock = fake.sm_mhz; clock >= LOWEST && count < 256; clock -= STEP)
		all[count++] = clock;
	return give(count, n, mhz, all);
}

/* The refusals are those of the power limit. */
static int lock(struct locked *clock, int gpu, unsigned int min, unsigned int max)
{
	int rc = 0;

	if (!fake.clocks)
		return JM_NVML_NOT_SUPPORTED;
	if (fake_is_denied(gpu))
		return JM_NVML_NO_PERMISSION;
	if (min > max)
		return JM_NVML_INVALID_ARGUMENT;
	fake_lock();
	if (fake.no_sets >= 0 && fake.state->sets >= fake.no_sets) {
		rc = JM_NVML_UNKNOWN;
	} else {
		*clock = (struct locked){.min = min, .max = max, .sets = clock->sets + 1};
		fake.state->sets++;
	}
	fake_unlock();
	return rc;
}

API int nvmlDeviceSetGpuLockedClocks(jm_nvml_device d, unsigned int min, unsigned int max)
{
	ENTER(d);
	return lock(&fake.state->clock[d->index], d->index, min, max);
}

API int nvmlDeviceResetGpuLockedClocks(jm_nvml_device d)
{
	ENTER(d);
	return lock(&fake.state->clock[d->index], d->index, 0, 0);
}

API int nvmlDeviceSetMemoryLockedClocks(jm_nvml_device d, unsigned int min, unsigned int max)
{
	ENTER(d);
	return lock(&fake.state->memory_clock[d->index], d->index, min, max);
}

API int nvmlDeviceResetMemoryLockedClocks(jm_nvml_device d)
{
	ENTER(d);
	return lock(&fake.state->memory_clock[d->index], d->index, 0, 0);
}
