/* SPDX-License-Identifier: Apache-2.0 */
/* What the three kinds of convolutions have in common: the operands of the forward direction. */
#ifndef JM_CUDA_CONV_OPERANDS_H
#define JM_CUDA_CONV_OPERANDS_H

#include "engine/device/backend.h"

#define CUDA_FEW_CHANNELS 8 /* images with fewer channels are folded */

/* The image, filter, result and bias (NULL = none) of the forward direction, or their gradients. */
struct cuda_operands {
	const struct jm_tensor *x, *w, *y, *bias;
};

static inline struct cuda_operands cuda_operands_of(const struct jm_node *n)
{
	if (n->op == JM_OP_CONV)
		return (struct cuda_operands){n->in[0], n->in[1], n->out[0], n->in[2]};
	if (n->op == JM_OP_CONV_DGRAD)
		return (struct cuda_operands){n->out[0], n->in[1], n->in[0], NULL};
	return (struct cuda_operands){n->in[1], n->out[0], n->in[0], n->out[1]};
}

#endif
