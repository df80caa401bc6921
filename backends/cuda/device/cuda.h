/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal interfaces of the cuda backend. Host code is C; a *.cu file holds kernels and the
 * functions of kernels.h that start them. A group is run by the first row of the tables that has
 * its cover and whose `takes` returns 0.
 */
#ifndef JM_CUDA_H
#define JM_CUDA_H

#include <cuda_runtime_api.h>

#include "engine/device/backend.h"
#include "engine/graph/tensor.h"
#include "backends/cuda/kernels/kernels.h"
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
	cudaStream_t stream; /* the compute queue; its work runs in order */
	cudaStream_t copies; /* the copy queue */
	const char *queued;  /* the latest work since the host last waited for all of it */
	long n_queued;	     /* pieces of work since then */
	void *green;	     /* CUgreenCtx of `stream`; NULL = all multiprocessors (green.c) */
	cudaStream_t sums;   /* the queue of the exchange between ranks; made by its first user */
	struct cuda_block *blocks;
	struct cuda_block *workspace; /* the largest one requested so far */
	struct cuda_angles *angles;   /* of rotary positions, by shape (ops_rope.c) */
	struct cuda_plan *plans;      /* plan_cache.h */
	long plans_read;	      /* bytes of the file that were read */
	size_t logits_bytes; /* upper limit of the logits of a chunk; 0 = by the cost of chunks */
	bool rough;	     /* plans are estimates, for which nothing is timed */
	bool fast;	     /* results may differ in their bits from run to run */
	struct cuda_lt lt;   /* cuBLASLt; opened by its first user */
	struct cuda_dnn dnn; /* cuDNN; likewise */
	struct cuda_conv_plan *conv_plans;	     /* conv_plan.h */
	struct cuda_attention_plan *attention_plans; /* ops_dnn_attention.c */
};

#define CUDA_NODES 4

/* A built group. node[] are copies; the engine owns the tensors that they point to. */
struct cuda_exec {
	const struct cuda_op *op; /* NULL: a captured graph */
	struct jm_node node[CUDA_NODES];
	int n_nodes;
	void *scratch, *saved;
	void *fwd_saved; /* the saved bytes of the forward group; NULL = none */
	size_t scratch_bytes;
	uint32_t tag; /* of the choice that was taken; the row defines its meaning */
	void *own;    /* made by the op's build, freed by its drop */
	cudaGraphExec_t graph;
};

/*
 * How a cover of a few nodes runs. All members but run may be NULL.
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

/* Tables of rows, each of which ends with a row without nodes; ops.c lists them. */
extern const struct cuda_op cuda_ops_attention[], cuda_ops_conv[], cuda_ops_conv_norm[],
	cuda_ops_conv_product[], cuda_ops_dnn_attention[], cuda_ops_head[], cuda_ops_image[],
	cuda_ops_linear[], cuda_ops_norm[], cuda_ops_pointwise[], cuda_ops_quantize[],
	cuda_ops_rope[], cuda_ops_tokens[], cuda_ops_update[];

/* The layout of [B,C,Y,X] with the channels last in memory. */
extern const struct jm_layout cuda_layout_last;

/* The row for the group, and its number; NULL = none supports the group, err holds the reason. */
const struct cuda_op *cuda_op_find(
	struct cuda_dev *dev, const struct jm_group *group, uint32_t *ret_row, struct jm_err *err);
/* The row with the number that cuda_op_find returned. */
const struct cuda_op *cuda_op_row(uint32_t row);
/*
 * ops_linear.c: a linear-wgrad at the end of a group whose other nodes compute the gradient of the bias. takes:
 * 0 if dy, which the node reads, is in memory and neither operand needs padded rows.
 */
int cuda_wgrad_takes(struct cuda_dev *dev, const struct jm_node *n, const struct jm_tensor *dy,
	struct jm_err *err);
int cuda_wgrad_new(
	struct cuda_dev *dev, const struct jm_node *n, struct cuda_exec **ret, struct jm_err *err);
int cuda_wgrad_run(struct cuda_dev *dev, const struct cuda_exec *product, struct jm_err *err);
void cuda_wgrad_free(struct cuda_dev *dev, struct cuda_exec *product); /* takes NULL */
/*
 * For `choices` of elementwise ops: makes one choice per dense layout that an operand has, and
 * gives this layout to all operands of node 0 whose bits are set in `in` and `out`. Returns the
 * number of choices.
 */
int cuda_choices_follow(
	const struct jm_node *node, unsigned in, unsigned out, struct jm_choice *choice);
/* True if the layout has each dim once and no blocks, so that the elements are contiguous. */
bool cuda_is_dense(const struct jm_layout *layout);

/*
 * The layout of matrices that products read or write: if the width is no multiple of 8, rows are
 * padded to a multiple of 64 elements (one block of the last dim); otherwise plain.
 */
void cuda_rows_layout(const struct jm_tensor *t, struct jm_layout *ret);
/* The same for the number of rows, after which rows of zeros follow. */
void cuda_tall_layout(const struct jm_tensor *t, struct jm_layout *ret);
bool cuda_is_tall(const struct jm_tensor *t);
int64_t cuda_tall_rows(const struct jm_tensor *t); /* includes the rows of zeros */
/* Elements from one row to the next; 0 = the layout is neither plain nor that of
 * cuda_rows_layout. */
int64_t cuda_row_stride(const struct jm_tensor *t);

bool cuda_is_f8(const struct jm_tensor *t); /* false for NULL */
/* The layout whose slowest dim is the last one, which transposes the matrix; products in 8 bits
 * read it. */
void cuda_turned_layout(const struct jm_tensor *t, struct jm_layout *ret);
bool cuda_is_turned(const struct jm_tensor *t);

/* Time on the device in seconds between start and stop in a stream; stop waits. NAN = unknown. */
struct cuda_stopwatch {
	cudaEvent_t from, to;
};
bool cuda_stopwatch_open(struct cuda_stopwatch *w);
void cuda_stopwatch_start(const struct cuda_stopwatch *w, cudaStream_t stream);
double cuda_stopwatch_stop(const struct cuda_stopwatch *w, cudaStream_t stream);
void cuda_stopwatch_close(const struct cuda_stopwatch *w);

/* Turns the status of a call of CUDA into an error: "What failed on cuda:0: reason." */
int cuda_check(const struct cuda_dev *dev, cudaError_t rc, const char *what, struct jm_err *err);
/* Checks for an error after a kernel was started. */
int cuda_started(const struct cuda_dev *dev, enum jm_op op, struct jm_err *err);
/* Work was queued; what: the beginning of a sentence, which stays valid. */
void cuda_queued(struct cuda_dev *dev, const char *what);
/* As cuda_check, of a call that waits for queued work: names the work where only one piece is queued, else the latest. */
int cuda_waited(const struct cuda_dev *dev, cudaError_t rc, struct jm_err *err);
/* Zeroed device memory that is kept until the device is closed; NULL = out of memory. */
void *cuda_keep(struct cuda_dev *dev, size_t bytes);
/* Memory that all groups share, one after the other; kept until the device is closed. NULL = out of
 * memory. */
void *cuda_workspace(struct cuda_dev *dev, size_t bytes);
/* The bytes that cuda_keep and cuda_workspace hold. */
size_t cuda_kept(const struct cuda_dev *dev);

/* ops_rope.c: 0 if the rope or its gradient can run; then its arguments, without sums. */
int cuda_rope_takes(const struct jm_node *n, struct jm_err *err);
int cuda_rope_of(
	struct cuda_dev *dev, const struct jm_node *n, struct cuda_rope *ret, struct jm_err *err);
void cuda_angles_free(struct cuda_dev *dev);
void cuda_attention_plans_free(struct cuda_dev *dev);

/* Peak operations of products in 16 bits divided by peak bytes of memory; NAN = unknown. */
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

/* The name that cuDNN has for the type. */
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

/* True if the node adds to its output i. */
static inline bool cuda_adds(const struct jm_node *node, int i)
{
	return node->accumulate >> i & 1;
}

#endif
