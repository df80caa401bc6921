/* SPDX-License-Identifier: Apache-2.0 */
/* Rough time of a node, to compare choices with each other. */
#ifndef JM_SECONDS_H
#define JM_SECONDS_H

#include "layout.h"

/* The estimated time of a node by its FLOPs or bytes; never NaN. */
double cpu_seconds(const struct cpu_dev *dev, const struct jm_node *node, enum cpu_how how);
/* That of a copy of the tensor in another layout. */
double cpu_copy_seconds(const struct cpu_dev *dev, const struct jm_tensor *t);

#endif
