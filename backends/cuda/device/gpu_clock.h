/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the GPU's clock with the host's: a kernel answers the host through pinned memory, many
 * times, and the exchange with the shortest round trip is used. */
#ifndef JM_BACKENDS_GPU_CLOCK_H
#define JM_BACKENDS_GPU_CLOCK_H

#include "engine/device/backend_clock.h"
#include "queue.h"

int cuda_stamp(void *arg, uint64_t *to, struct jm_err *err);
int cuda_clock(void *arg, struct jm_device_time *ret, struct jm_err *err);

#endif
