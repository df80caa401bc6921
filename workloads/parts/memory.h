/* SPDX-License-Identifier: Apache-2.0 */
/* What this process may still take of the memory of this machine and of a device. */
#ifndef JM_MEMORY_H
#define JM_MEMORY_H

#include "engine/device/device.h"

/* Bytes that are available by /proc/meminfo, or what the control groups that this process is in
 * (both versions, and those around them) still allow, if that is less. 0 = unknown. */
size_t jm_memory_free(const struct jm_ctx *ctx);

/* Bytes that a program on the device may take now: what the device has and, where that is the
 * memory of this machine, what is free. 0 = unknown. */
size_t jm_fit_memory(const struct jm_ctx *ctx, const struct jm_device *device);

#endif
