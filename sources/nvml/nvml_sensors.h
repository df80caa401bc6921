/* SPDX-License-Identifier: Apache-2.0 */
/* Timing of NVIDIA's power sensors, by chip. */
#ifndef JM_NVML_SENSORS_H
#define JM_NVML_SENSORS_H

#include "nvml_probe.h"

/* Never NULL: of a GPU that was not characterised, everything is unknown. */
const struct jm_nvml_sensor *jm_nvml_sensor_of(const struct jm_nvml_gpu *gpu);

#endif
