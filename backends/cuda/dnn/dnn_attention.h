/* SPDX-License-Identifier: Apache-2.0 */
/* Attention and its gradient as graphs for cuDNN, in a type of 16 bits. */
#ifndef JM_CUDA_DNN_ATTENTION_H
#define JM_CUDA_DNN_ATTENTION_H

#include "dnn_graph.h"

/* Where the heads of an operand are: elements from one sequence, position or head to the next. */
struct dnn_heads {
	int64_t batch, row, head;
};

struct dnn_attention_shape {
	int64_t batch, seq, keys, heads, groups, depth;
	struct dnn_heads q, k, v; /* their gradients, too */
	cudnnDataType_t type;	  /* of all operands except lse, delta and sum */
	bool causal;
	bool repeatable; /* true: several blocks do not add to dq in memory in varying order */
};

/* The ids of the operands; 0 = the graph has none. */
struct dnn_attention_ids {
	int64_t q, k, v, y, lse;
	int64_t dy, dq, dk, dv;
	int64_t delta; /* f32 [B,H,S]: scratch */
	int64_t sum;   /* f32 [B,H,S,D]: scratch, cleared before a run; id 0 = not needed */
	int64_t scale, one,
		floor; /* given by value: the scale of attention, 1, and a very negative score */
};

/* NULL = out of memory. */
struct dnn_graph *dnn_attention_forward(const struct cuda_dnn *dnn,
	const struct dnn_attention_shape *s, struct dnn_attention_ids *ret);
struct dnn_graph *dnn_attention_backward(const struct cuda_dnn *dnn,
	const struct dnn_attention_shape *s, struct dnn_attention_ids *ret);

#endif
