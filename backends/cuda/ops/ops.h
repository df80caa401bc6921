/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the row of an op among all, in the order in which they are tried. */
#ifndef JM_OPS_H
#define JM_OPS_H

#include "backends/cuda/device/cuda.h"

/* The row for the group, and its number; NULL = none supports the group, err holds the reason. */
const struct cuda_op *cuda_op_find(
	struct cuda_dev *dev, const struct jm_group *group, uint32_t *ret_row, struct jm_err *err);
/* The row with the number that cuda_op_find returned. */
const struct cuda_op *cuda_op_row(uint32_t row);

#endif
