/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of each op that the passes need, in addition to its definition (node.h). */
#ifndef JM_OP_H
#define JM_OP_H

#include "node.h"

struct jm_op_row {
	int n_in, n_out; /* including optional operands */
	/* out[place_out] may have the address of in[place_in]; -1 = never */
	int place_out;
	/* FLOPs of matrix products; a multiply-add is 2, elementwise work is not counted. */
	void (*flops)(const struct jm_node *n, double *ret_model, double *ret_executed);
	int place_in;
};

const struct jm_op_row *jm_op_row(enum jm_op op);
/* True if ranks exchange data in it: the engine runs it, not the backend. */
bool jm_op_is_exchange(enum jm_op op);
/* True for the ends of a part of a stage, across which no node is moved (pipeline_parallel.h). */
bool jm_op_is_border(enum jm_op op);
/* True if a backend that cannot write the type of the first result may write it in that of the
 * operands: for gradients of weights, which are f32 for operands of any type. */
bool jm_node_narrows(const struct jm_node *n);
/* True if t is an operand of the node. */
bool jm_node_reads(const struct jm_node *n, const struct jm_tensor *t);
/* Fills the node's flops_model, flops_executed and bytes. */
void jm_node_cost(struct jm_node *n);

#endif
