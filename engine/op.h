/* SPDX-License-Identifier: Apache-2.0 */
/* What the passes need to know of each op, beyond its meaning (engine/backend.h). */
#ifndef JM_OP_H
#define JM_OP_H

#include "backend.h"

struct jm_op_row {
	int n_in, n_out; /* optional ones included */
	/* out[place_out] may have the address of in[0]; -1 = never */
	int place_out;
	/* FLOPs of matrix products; a multiply-add is 2, elementwise work counts 0. */
	void (*flops)(const struct jm_node *n, double *ret_model, double *ret_executed);
};

const struct jm_op_row *jm_op_row(enum jm_op op);
/* Can a backend that lacks the type of the first result write it in that of the operands? True
 * for gradients of weights, which are f32 for operands of any type. */
bool jm_node_narrows(const struct jm_node *n);
/* Fills the node's flops_model, flops_executed and bytes. */
void jm_node_cost(struct jm_node *n);

#endif
