/* SPDX-License-Identifier: Apache-2.0 */
/* What is fixed of an NVIDIA GPU: what its driver tells, and the peaks that follow from its compute
 * capability. */
#ifndef JM_NVML_HARDWARE_H
#define JM_NVML_HARDWARE_H

#include "nvml_probe.h"

/* What the driver does not tell is 0. */
void jm_nvml_hardware(
	const struct jm_nvml *nvml, const struct jm_nvml_gpu *gpu, struct jm_hardware *ret);

#endif
