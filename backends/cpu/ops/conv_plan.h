/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a convolution, or of a gradient of one, in oneDNN: the layouts, which oneDNN chooses, scratch, and images per call. */
#ifndef JM_CONV_PLAN_H
#define JM_CONV_PLAN_H

#include "layout.h"

/* The layouts that oneDNN prefers for a convolution or a gradient of it. */
int cpu_conv_offer(const struct cpu_dev *dev, const struct jm_node *node, struct jm_choice *choice,
	struct jm_err *err);

#endif
