/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA GPUs: which of them are this job's, their meters, and the signals that each of them
 * reports. */
#ifndef JM_NVML_OPEN_H
#define JM_NVML_OPEN_H

#include "nvml_state.h"

/* Members of the source. */
int jm_nvml_state_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err);
void jm_nvml_state_close(void *state);

#endif
