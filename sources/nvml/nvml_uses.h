/* SPDX-License-Identifier: Apache-2.0 */
/* Who uses an NVIDIA GPU: processes by the driver's samples, instances (MIG) by its performance
 * monitoring. */
#ifndef JM_NVML_USES_H
#define JM_NVML_USES_H

#include "meter/source.h"
#include "vendor/nvml.h"

#define JM_NVML_INSTANCES 8 /* a GPU has seven at most */

/* A GPU instance: one or more MIG devices, which share its multiprocessors. */
struct jm_nvml_instance {
	unsigned int id, multiprocessors;
	char name[JM_NVML_UUID]; /* UUID of its first MIG device */
	jm_nvml_device device[JM_NVML_INSTANCES];
	int n_devices;
	jm_nvml_sample sample[2]; /* of its activity: before, now */
};

/* Of one GPU; all zero before the first reading. */
struct jm_nvml_uses {
	bool divided;
	long long last_us; /* wall time of the reading before; 0 = none */
	struct jm_nvml_instance instance[JM_NVML_INSTANCES];
	int n;
};

/* As `uses` of struct jm_source; now_us: wall time. */
int jm_nvml_uses_read(struct jm_nvml_uses *u, const struct jm_nvml *nvml, jm_nvml_device gpu,
	long long now_us, jm_use_fn *give, void *arg, struct jm_err *err);
void jm_nvml_uses_done(struct jm_nvml_uses *u, const struct jm_nvml *nvml);

#endif
