/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in bf16 or f16 by cuDNN: finds, times and runs plans, which the device keeps by
 * shape. */
#ifndef JM_OPS_DNN_ATTENTION_H
#define JM_OPS_DNN_ATTENTION_H

#include "backends/cuda/device/cuda.h"

void cuda_attention_plans_free(struct cuda_dev *dev);

#endif
