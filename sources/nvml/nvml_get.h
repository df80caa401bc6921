/* SPDX-License-Identifier: Apache-2.0 */
/* One number of a GPU by a call of its own, in SI units; NAN where the driver has none. power: as
 * nvidia-smi has it, the mean of the last second from Ampere on, except GA100. utilisation: 0..1.
 * power state: 0..15. throttle: enum jm_throttle. memory: bytes. */
#ifndef JM_NVML_GET_H
#define JM_NVML_GET_H

#include "vendor/nvml.h"

double jm_nvml_get_power(const struct jm_nvml *nvml, jm_nvml_device device);
double jm_nvml_get_limit(const struct jm_nvml *nvml, jm_nvml_device device);
double jm_nvml_get_limit_enforced(const struct jm_nvml *nvml, jm_nvml_device device);
double jm_nvml_get_energy(const struct jm_nvml *nvml, jm_nvml_device device);
double jm_nvml_get_clock(const struct jm_nvml *nvml, jm_nvml_device device);
double jm_nvml_get_memory_clock(const struct jm_nvml *nvml, jm_nvml_device device);
double jm_nvml_get_temperature(const struct jm_nvml *nvml, jm_nvml_device device);
double jm_nvml_get_utilisation(const struct jm_nvml *nvml, jm_nvml_device device);
double jm_nvml_get_power_state(const struct jm_nvml *nvml, jm_nvml_device device);
double jm_nvml_get_memory_used(const struct jm_nvml *nvml, jm_nvml_device device);
double jm_nvml_get_throttle(const struct jm_nvml *nvml, jm_nvml_device device);

#endif
