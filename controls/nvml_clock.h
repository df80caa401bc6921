/* SPDX-License-Identifier: Apache-2.0 */
/* Locked clocks of NVIDIA GPUs: gpu.clock and gpu.memory_clock, of which the driver does not report
 * what is locked. */
#ifndef JM_NVML_CLOCK_H
#define JM_NVML_CLOCK_H

#include "guard/control.h"
#include "vendor/nvml.h"

/* The knob of a GPU's clock of that kind; false: the driver cannot lock it. Device and label are
 * the caller's. */
bool jm_nvml_clock_describe(const struct jm_nvml *nvml, jm_nvml_device gpu,
	enum jm_nvml_clock clock, struct jm_knob *ret);
/* Locks the clock to a range in Hz, or unlocks it; the code of the library. */
int jm_nvml_clock_set(const struct jm_nvml *nvml, jm_nvml_device gpu, enum jm_nvml_clock clock,
	const struct jm_knob_value *value);

/* The call that jm_nvml_clock_set makes, with its arguments, for people. */
void jm_nvml_clock_text(enum jm_nvml_clock clock, const char *device,
	const struct jm_knob_value *value, char *out, size_t size);

#endif
