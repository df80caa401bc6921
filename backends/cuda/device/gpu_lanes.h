/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes between GPUs through memory of the host that processes share (comm/lanes.h): streams that
 * wait for words in that memory and write them, by functions of the driver. */
#ifndef JM_GPU_LANES_H
#define JM_GPU_LANES_H

#include "queue.h"

extern const struct jm_lanes cuda_lanes; /* gpu_lanes.c */

#endif
