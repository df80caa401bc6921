/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal interfaces of the cuda backend. Host code is C; a *.cu file holds kernels and the
 * functions of kernels.h that start them. A group runs by the first row of the tables whose cover
 * fits and whose `takes` agrees.
 */
#ifndef JM_CUDA_H
#define JM_CUDA_H

#include <cuda_runtime_api.h>

#include "engine/tensor.h"
#include "kernels.h"
#include "library.h"

/* Memory that a device keeps until it is closed: library workspaces, tables of angles. */
struct cuda_block {
	struct cuda_block *next;
	void *data;
	size_t bytes;
};

struct cuda_dev {
	int index;
	struct cudaDeviceProp prop;
	char uuid[48];	     /* "GPU-...", as NVML reports it */
	cudaStream_t stream; /* all work of the compute queue, in order */
	cudaStream_t copies; /* the copy queue */
	void *green;	     /* CUgreenCtx of `stream`; NULL = all multiprocessors (green.c) */
	cudaStream_t sums;   /* the queue of what ranks exchange; made by its first user */
	struct cuda_block *blocks;
	struct cuda_block *workspace; /* the largest one that was asked for */
	struct cuda_angles *angles;   /* of rotary positions, by shape: ops_tokens.c */
	struct cuda_plan *plans;      /* plan_cache.h; read from disk by its first user */
	bool plans_read;
	size_t logits_bytes; /* most that logits may take at a time; 0 = as the cost of chunks allows */
	bool fast;	     /* results may differ in their bits from run to run */
	struct cuda_lt lt;			     /* cuBLASLt; opened by its first user */
	struct cuda_dnn dnn;			     /* cuDNN; likewise */
	struct cuda_conv_plan *conv_plans;	     /* conv_plan.h */
	struct cuda_attention_plan *attention_plans; /* ops_dnn_attention.c */
};

#define CUDA_NODES 4

/* A built group. node: copies; their tensors are the engine's. */
struct cuda_exec {
	const struct cuda_op *op; /* NULL: a captured graph */
	struct jm_node node[CUDA_NODES];
	int n_nodes;
	void *scratch, *saved;
	void *fwd_saved; /* that of the forward group; NULL = none */
	size_t scratch_bytes;
	uint32_t tag; /* of the choice that was taken: the row's own */
	void *own;    /* from the op's build, to its drop */
	cudaGraphExec_t graph;
};

/*
 * How a cover of a few nodes runs. All but run may be NULL.
 *	takes	 0, or a reason in err, for what the general check of types cannot see
 *	choices	 as jm_backend.select, only with tag below 2^32; NULL: one choice, all operands plain
 *	scratch	 bytes of scratch where choices is NULL
 *	build	 addresses are final; may time things on the device and allocate
 *	run	 starts work on dev->stream and returns; may be under capture: no allocation, no waiting
 */
struct cuda_op {
	enum jm_op cover[CUDA_NODES];
	int n_nodes;
	int (*takes)(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err);
	int (*choices)(struct cuda_dev *dev, const struct jm_group *group, struct jm_choice *choice,
		struct jm_err *err);
	size_t (*scratch)(struct cuda_dev *dev, const struct jm_group *group);
	int (*build)(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err);
	int (*run)(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err);
	void (*drop)(struct cuda_dev *dev, struct cuda_exec *exec);
};

/* Tables of rows, each ending with a row of no nodes; listed in ops.c. */
extern const struct cuda_op cuda_ops_attention[], cuda_ops_conv[], cuda_ops_conv_product[],
	cuda_ops_dnn_attention[], cuda_ops_head[], cuda_ops_image[], cuda_ops_linear[],
	cuda_ops_norm[], cuda_ops_pointwise[], cuda_ops_quantize[], cuda_ops_tokens[],
	cuda_ops_update[];

/* [B,C,Y,X] with the channels last in memory. */
extern const struct jm_layout cuda_layout_last;

/* The row for the group and its number; NULL and the reason: there is none. */
const struct cuda_op *cuda_op_find(
	struct cuda_dev *dev, const struct jm_group *group, uint32_t *ret_row, struct jm_err *err);
/* By its number. */
const struct cuda_op *cuda_op_row(uint32_t row);
/*
 * For `choices` of ops that work element by element: one choice per dense layout that an operand has,
 * given to all operands whose bits are set in `in` and `out` of node 0. Returns how many.
 */
int cuda_choices_follow(
	const struct jm_node *node, unsigned in, unsigned out, struct jm_choice *choice);
/* Every dim once and no blocks: elements are contiguous. */
bool cuda_is_dense(const struct jm_layout *layout);

/*
 * Matrices whose width is no multiple of 8 have rows of a multiple of 64 elements where products read or
 * write them: the layout with one block of the last dim, else plain.
 */
void cuda_rows_layout(const struct jm_tensor *t, struct jm_layout *ret);
/* Likewise of matrices with such a number of rows, which then are followed by rows of zeros. */
void cuda_tall_layout(const struct jm_tensor *t, struct jm_layout *ret);
bool cuda_is_tall(const struct jm_tensor *t);
int64_t cuda_tall_rows(const struct jm_tensor *t); /* those of zeros included */
/* Elements from one row to the next; 0: the layout is neither plain nor that one. */
int64_t cuda_row_stride(const struct jm_tensor *t);

bool cuda_is_f8(const struct jm_tensor *t); /* NULL is not */
/* The last dim is the slowest: the transpose of the matrix of all rows. Products in 8 bits read it. */
void cuda_turned_layout(const struct jm_tensor *t, struct jm_layout *ret);
bool cuda_is_turned(const struct jm_tensor *t);

/* Time on the device between two places in a stream; stop waits for the second. Seconds; NAN = unknown. */
struct cuda_stopwatch {
	cudaEvent_t from, to;
};
bool cuda_stopwatch_open(struct cuda_stopwatch *w);
void cuda_stopwatch_start(const struct cuda_stopwatch *w, cudaStream_t stream);
double cuda_stopwatch_stop(const struct cuda_stopwatch *w, cudaStream_t stream);
void cuda_stopwatch_close(const struct cuda_stopwatch *w);

/* What a call of CUDA, cuBLASLt or cuDNN returned, as a sentence: "What failed on cuda:0: reason." */
int cuda_check(const struct cuda_dev *dev, cudaError_t rc, const char *what, struct jm_err *err);
/* After a kernel was started. */
int cuda_started(const struct cuda_dev *dev, enum jm_op op, struct jm_err *err);
/* Device memory, kept until the device is closed; NULL = there is none left. Zeroed. */
void *cuda_keep(struct cuda_dev *dev, size_t bytes);
/* Shared by all that runs, one after the other; kept until the device is closed. NULL = none left. */
void *cuda_workspace(struct cuda_dev *dev, size_t bytes);
/* Bytes that cuda_keep and cuda_workspace hold. */
size_t cuda_kept(const struct cuda_dev *dev);

void cuda_angles_free(struct cuda_dev *dev);
void cuda_attention_plans_free(struct cuda_dev *dev);

/* Products in 16 bits for each byte of memory at the peaks; NAN = unknown. */
double cuda_flops_per_byte(const struct cuda_dev *dev);
bool cuda_has_f8(const struct cuda_dev *dev); /* products in 8 bits: Ada, Hopper and later */
/* device.c: dense peaks by chip, from the vendor's data sheets; NAN where the chip is not listed. */
void cuda_props(void *arg, struct jm_device_props *ret);
/* As jm_backend.versions. */
void cuda_versions(void *arg, char *ret, size_t size);

static inline enum cuda_type cuda_type_of(enum jm_dtype type)
{
	return type == JM_BF16 ? CUDA_BF16 : type == JM_F16 ? CUDA_F16 : CUDA_F32;
}

/* An operand as kernels take it; t may be NULL (an absent optional one). */
static inline struct cuda_vec cuda_vec(const struct jm_tensor *t)
{
	return (struct cuda_vec){t ? t->data : NULL, t ? cuda_type_of(t->type) : CUDA_F32};
}

/* As cuDNN names it. */
static inline cudnnDataType_t cuda_dnn_type(enum jm_dtype type)
{
	return type == JM_BF16	? CUDNN_DATA_BFLOAT16
	       : type == JM_F16 ? CUDNN_DATA_HALF
				: CUDNN_DATA_FLOAT;
}

static inline void *cuda_data(const struct jm_tensor *t)
{
	return t ? t->data : NULL;
}

/* Output i is added to. */
static inline bool cuda_adds(const struct jm_node *node, int i)
{
	return node->accumulate >> i & 1;
}

#endif
