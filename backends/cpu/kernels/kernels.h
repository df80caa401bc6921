/* SPDX-License-Identifier: Apache-2.0 */
/* Which set of kernels is the fastest one for this processor. */
#ifndef JM_CPU_KERNELS_H
#define JM_CPU_KERNELS_H

#include "kernel_set.h"

/* For tests: n = 0 is the best set, 1 the next one... NULL after the last one. */
const struct cpu_kernels *cpu_kernels_get(int n);
#define cpu_kernels_best() cpu_kernels_get(0)

#endif
