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
#include "math_calls.h"

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
	struct jm_err lost;  /* a fault that ended the context while a choice was timed */
	void *green;	     /* CUgreenCtx of `stream`; NULL = all multiprocessors (sm_share.c) */
	cudaStream_t sums;   /* the queue of the exchange between ranks; made by its first user */
	struct cuda_block *blocks;
	struct cuda_block *workspace; /* the largest one requested so far */
	unsigned *arrived;	      /* of struct cuda_meeting; made by its first user */
	struct cuda_angles *angles;   /* of rotary positions, by shape (ops_rope.c) */
	struct cuda_plan *plans;      /* plan_cache.h */
	long plans_read;	      /* bytes of the file that were read */
	size_t logits_bytes; /* upper limit of the logits of a chunk; 0 = by the cost of chunks */
	bool rough;	     /* plans are estimates, for which nothing is timed */
	bool fast;	     /* results may differ in their bits from run to run */
	struct cuda_lt lt;   /* cuBLASLt; opened by its first user */
	struct cuda_dnn dnn; /* cuDNN; likewise */
	struct cuda_conv_plan *conv_plans;	     /* conv_plan.h */
	struct cuda_attention_plan *attention_plans; /* attention_plans.c */
};

/* Compute capability 9.0: kernels compiled for sm_90a run there alone. */
static inline bool cuda_is_hopper(const struct cuda_dev *dev)
{
	return dev->prop.major == 9 && dev->prop.minor == 0;
}

#define CUDA_NODES 8

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
 *	choices	 as jm_backend.select, only with tag below 2^32; NULL: one choice, all operands
 *		plain
 *	scratch	 bytes of scratch where choices is NULL
 *	build	 addresses are final; may time things on the device and allocate
 *	run	 starts work on dev->stream and returns; may be under capture: no allocation, no
 *		waiting
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

/* Time on the device in seconds between start and stop in a stream; stop waits. NAN = unknown. */
struct cuda_stopwatch {
	cudaEvent_t from, to;
};

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

#endif
