/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interfaces of the cpu backend. */
#ifndef JM_CPU_H
#define JM_CPU_H

#include <oneapi/dnnl/dnnl.h>

#include "engine/device/backend.h"
#include "engine/graph/tensor.h"
#include "backends/cpu/kernels/kernels.h"

/* Operands or results of a node, as bits. */
#define FIRST(n) ((1U << (n)) - 1)
#define NTH(i)	 (1U << (i)) /* from 0 */

struct cpu_dev {
	int threads;
	const struct cpu_kernels *kernels;
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	bool has_bf16; /* the processor has bf16 instructions */
	/* and they are faster than f32 arithmetic on widened operands */
	bool fast_bf16;
	double peak_f32, peak_bf16; /* FLOP/s of all threads, measured; NAN = unknown */
};

#define CPU_NODES 3

/* Tags of choices. */
enum { CPU_CONV_MATRIX = 1 };

/* A built group. node[] are copies; the engine owns the tensors that they point to. */
struct cpu_exec {
	const struct cpu_op *op;
	struct jm_node node[CPU_NODES];
	void *scratch;
	size_t scratch_bytes; /* as requested by the choice */
	uint64_t tag;	      /* of the choice that was taken */
	void *own;	      /* made by the op's build, freed by its drop */
};

/*
 * How a cover of a few nodes runs. takes: 0, or an error with the reason, for conditions that the
 * general check of types and layouts does not cover. All members but run may be NULL.
 */
struct cpu_op {
	enum jm_op cover[CPU_NODES];
	int n_nodes;
	int (*takes)(const struct cpu_dev *dev, const struct jm_node *node, struct jm_err *err);
	size_t (*scratch)(const struct cpu_dev *dev, const struct jm_node *node);
	int (*build)(const struct cpu_dev *dev, struct cpu_exec *exec, struct jm_err *err);
	int (*run)(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err);
	void (*drop)(struct cpu_exec *exec);
};

extern const struct cpu_op cpu_op_linear, cpu_op_linear_dgrad, cpu_op_linear_wgrad, cpu_op_conv,
	cpu_op_conv_dgrad, cpu_op_conv_wgrad, cpu_op_conv_matrix, cpu_op_cast;
/* Tables that end with a row without nodes. */
extern const struct cpu_op cpu_ops_act[], cpu_ops_concat[], cpu_ops_image[], cpu_ops_norm[],
	cpu_ops_quantize[], cpu_ops_tokens[], cpu_ops_update[], cpu_ops_embed[],
	cpu_ops_attention[], cpu_ops_loss[], cpu_ops_pages[], cpu_ops_spectral[], cpu_ops_noise[];

/* An operand as the kernels take it; t may be NULL (an absent optional one). */
static inline struct cpu_vec cpu_vec(const struct jm_tensor *t)
{
	return (struct cpu_vec){t ? t->data : NULL, t && t->type == JM_BF16};
}

static inline void *cpu_data(const struct jm_tensor *t)
{
	return t ? t->data : NULL;
}

/* The current value of element i of the loss scale {S, 1/S}; 1 without a loss scale. */
static inline double cpu_scale(const struct jm_tensor *t, int i)
{
	return t ? (double)((const float *)t->data)[i] : 1;
}

#endif
