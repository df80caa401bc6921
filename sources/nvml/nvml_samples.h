/* SPDX-License-Identifier: Apache-2.0 */
/* Power out of the driver's own buffer: a sample each 20 ms on Hopper (an H200 keeps 119 of them),
 * with the time at which it was taken. */
#ifndef JM_NVML_SAMPLES_H
#define JM_NVML_SAMPLES_H

#include "nvml_state.h"

extern const struct jm_nvml_probe jm_nvml_sample_probe;
struct jm_signal jm_nvml_sample_signal(const struct jm_nvml_sensor *sensor);
bool jm_nvml_has_samples(const struct jm_nvml *nvml, jm_nvml_device device);
/* Gives those that are new. The library's code. */
int jm_nvml_samples_read(
	const struct jm_nvml_state *s, struct jm_nvml_board *g, struct jm_sink *sink);

#endif
