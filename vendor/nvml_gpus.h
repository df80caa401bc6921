/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs there are and which of them belong to this job: CUDA_VISIBLE_DEVICES, else Slurm's
 * list, else a container's. */
#ifndef JM_NVML_GPUS_H
#define JM_NVML_GPUS_H

#include "nvml.h"

/* All GPUs the driver shows, with those of this job marked. JM_ENOENT when it shows none. */
int jm_nvml_gpus_open(struct jm_nvml *nvml, struct jm_nvml_gpus *ret, struct jm_err *err);
/* Of those of this job only these stay ours: "1", "0+2", numbers as CUDA counts them. JM_EUSAGE,
 * JM_ENOENT. */
int jm_nvml_gpus_keep(struct jm_nvml_gpus *gpus, const char *numbers, struct jm_err *err);
void jm_nvml_gpus_done(struct jm_nvml_gpus *gpus);

#endif
