/* SPDX-License-Identifier: Apache-2.0 */
/* The first call for each GPU, which may never return: only this GPU then has no readings. */
#ifndef JM_NVML_FIRST_H
#define JM_NVML_FIRST_H

#include "base/process/driver_call.h"
#include "vendor/nvml.h"

struct jm_nvml_first; /* of all GPUs of the machine */

/* Asks those of this job, or all, for their sensors, all at once, and waits for them. NULL: out of
 * memory. */
struct jm_nvml_first *jm_nvml_first_ask(
	const struct jm_nvml *nvml, const struct jm_nvml_gpus *gpus, bool all);
/* Has the driver not returned from the call for this GPU, by its place in `gpus`? */
bool jm_nvml_first_waits(const struct jm_nvml_first *first, int gpu);
/* True: all calls have returned, and all is freed. Takes NULL. */
bool jm_nvml_first_done(struct jm_nvml_first *first);

#endif
