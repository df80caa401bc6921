/* SPDX-License-Identifier: Apache-2.0 */
/* How busy the parts of a GPU were between two samples of its counters (GPM: Hopper and newer). */
#ifndef JM_NVML_ACTIVITY_H
#define JM_NVML_ACTIVITY_H

#include "nvml_probe.h"

/* field: the library's id of the metric */
extern const struct jm_nvml_probe jm_nvml_activities[JM_NVML_ACTIVITIES];
/* False: this GPU or its driver has no such samples. */
bool jm_nvml_sampler_open(
	const struct jm_nvml *nvml, jm_nvml_device device, struct jm_nvml_sampler *ret);
void jm_nvml_sampler_close(const struct jm_nvml *nvml, struct jm_nvml_sampler *s);
/*
 * Takes a sample at `now`; ret[JM_NVML_ACTIVITIES] is what holds since the one before, NAN =
 * unknown. The library's code.
 */
int jm_nvml_sampler_read(const struct jm_nvml *nvml, jm_nvml_device device,
	struct jm_nvml_sampler *s, int64_t now, double *ret);

#endif
