/* SPDX-License-Identifier: Apache-2.0 */
/* Attention and its gradient as graphs for cuDNN, in a type of 16 bits. */
#ifndef JM_CUDA_DNN_ATTENTION_H
#define JM_CUDA_DNN_ATTENTION_H

#include "dnn_graph.h"

struct dnn_attention_shape {
	int64_t batch, seq, heads, groups, depth;
	cudnnDataType_t type; /* of all but lse, delta and sum */
	bool causal;
	bool repeatable; /* dq is not summed in memory by several blocks */
};

/* Operands; 0 where a graph has none. q, k, v and their gradients: views of the packed projection. */
struct dnn_attention_ids {
	int64_t q, k, v, y, lse;
	int64_t dy, dq, dk, dv;
	int64_t delta; /* f32 [B,H,S]: scratch */
	int64_t sum;   /* f32 [B,H,S,D]: scratch that is 0 before; 0 = not needed */
	int64_t scale, one,
		floor; /* given by value: the attention's scale, 1, and a very small number */
};

/* NULL = out of memory. */
struct dnn_graph *dnn_attention_forward(const struct cuda_dnn *dnn,
	const struct dnn_attention_shape *s, struct dnn_attention_ids *ret);
struct dnn_graph *dnn_attention_backward(const struct cuda_dnn *dnn,
	const struct dnn_attention_shape *s, struct dnn_attention_ids *ret);

#endif
