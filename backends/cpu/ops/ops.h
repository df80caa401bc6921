/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of all ops. */
#ifndef JM_CPU_OPS_H
#define JM_CPU_OPS_H

#include "backends/cpu/device/cpu.h"

/* The row for these nodes; NULL = the backend has none. */
const struct cpu_op *cpu_op_find(const struct jm_node *const *node, int n);

#endif
