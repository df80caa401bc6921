/* SPDX-License-Identifier: Apache-2.0 */
/* One number of a GPU by a call of its own, in SI units; NAN where the driver has none. */
#ifndef JM_NVML_GET_H
#define JM_NVML_GET_H

#include "nvml_probe.h"

double jm_nvml_get_energy(const struct jm_nvml *nvml, jm_nvml_device device);
double jm_nvml_get_clock(const struct jm_nvml *nvml, jm_nvml_device device);
double jm_nvml_get_memory_clock(const struct jm_nvml *nvml, jm_nvml_device device);
double jm_nvml_get_temperature(const struct jm_nvml *nvml, jm_nvml_device device);
double jm_nvml_get_utilisation(const struct jm_nvml *nvml, jm_nvml_device device);
double jm_nvml_get_power_state(const struct jm_nvml *nvml, jm_nvml_device device);
double jm_nvml_get_throttle(const struct jm_nvml *nvml, jm_nvml_device device);

#endif
