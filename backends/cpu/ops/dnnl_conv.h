/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a convolution, or of a gradient of one, in oneDNN: the layouts, which oneDNN chooses,
 * scratch, and images per call. */
#ifndef JM_DNNL_CONV_H
#define JM_DNNL_CONV_H

#include "layout.h"

/* The three tensors of a convolution, each of which can be the result. */
enum role { SRC, WEI, DST, ROLES };

struct cpu_conv {
	const struct jm_tensor *t[ROLES], *bias;
	enum role result;
	dnnl_data_type_t type; /* of oneDNN's arithmetic */
	int64_t piece, pieces; /* images per call */
	int groups;
	dnnl_dims_t stride, pad, pad_end, dilation;
	bool accumulate;
	/* For one piece. outer: the engine's layout; inner: oneDNN's layout, in scratch if it
	 * differs. */
	dnnl_memory_desc_t outer[ROLES], inner[ROLES];
	bool apart[ROLES];
	size_t offset[ROLES], scratchpad, bytes; /* in scratch */
	dnnl_primitive_desc_t pd;
	dnnl_primitive_t primitive, reorder;
	dnnl_exec_arg_t arg[6];
	int n_args;
	dnnl_memory_t reorder_arg[2]; /* from, to */
	char *scratch;
};

/* A gradient of images that is added to its result: oneDNN cannot add it, so it is written to
 * scratch first. */
static inline bool cpu_conv_adds(const struct cpu_conv *c)
{
	return c->result == SRC && c->accumulate;
}

/* A gradient of weights that is the sum of several pieces. */
static inline bool cpu_conv_sums(const struct cpu_conv *c)
{
	return c->result == WEI && (c->accumulate || c->pieces > 1);
}

/* True if oneDNN computes or reads a gradient in this role: of images or weights as the result,
 * else of y. */
static inline bool cpu_conv_is_gradient(const struct cpu_conv *c, enum role role)
{
	return (role == c->result) == (role != DST);
}

/* The layouts that oneDNN prefers for a convolution or a gradient of it. */
int cpu_conv_offer(const struct cpu_dev *dev, const struct jm_node *node, struct jm_choice *choice,
	struct jm_err *err);
/* Sets all members except scratch, primitives and arguments. layout: by role; NULL:
 * the layouts of the tensors. */
dnnl_status_t cpu_conv_plan(const struct cpu_dev *dev, const struct jm_node *node,
	const struct jm_layout *layout, struct cpu_conv *ret);
int cpu_conv_fail(struct jm_err *err, const struct jm_node *node, dnnl_status_t status);

#endif
