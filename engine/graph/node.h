/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors, attributes and nodes: what a program consists of; what each op does is in op_list.h.
 * Part of the contract of a backend (backend.h): any change of structs, enums or their meaning
 * increases JM_BACKEND_ABI.
 */
#ifndef JM_NODE_H
#define JM_NODE_H

#include "accumulate.h"
#include "joulemark.h"
#include "op_list.h"
#include "rotary.h"

/* ---- types ----------------------------------------------------------------------------------- */

/*
 * f64 exists only in `ref`, as the reference. A narrower operand is widened exactly; arithmetic and
 * sums are in f32 or f64; a narrower result is rounded once, to nearest even, when it is stored.
 * f16 (IEEE 754 binary16) overflows to infinity. The two types of 8 bits (Micikevicius et al.,
 * arXiv 2209.05433) saturate: a larger value becomes the largest finite one, 448 (e4m3) or 57344
 * (e5m2); e4m3 has no infinity.
 */
#define JM_DTYPES(X)                                                                               \
	X(F32, "f32", 4)                                                                           \
	X(BF16, "bf16", 2)                                                                         \
	X(F64, "f64", 8)                                                                           \
	X(I32, "i32", 4)                                                                           \
	X(F16, "f16", 2)                                                                           \
	X(F8E4M3, "f8e4m3", 1)                                                                     \
	X(F8E5M2, "f8e5m2", 1)                                                                     \
	X(U8, "u8", 1)
enum jm_dtype {
#define X(name, text, bytes) JM_##name,
	JM_DTYPES(X)
#undef X
		JM_DTYPE_COUNT
};

/*
 * How a node multiplies f32 operands: exactly, or after rounding them to 10 bits of mantissa
 * (tf32). This applies to products (linear, conv, attention and their gradients); sums are in f32
 * or f64. A backend without tf32 refuses nodes that need it.
 */
enum jm_math { JM_MATH_F32, JM_MATH_TF32 };

/* ---- tensors --------------------------------------------------------------------------------- */

#define JM_DIMS	  6
#define JM_BLOCKS 4

/*
 * The layout of a tensor in memory. All zero = plain: row-major and dense, no padding. Else order[]
 * lists the dims from slowest to fastest, and block[] the inner blocks, outermost first: block[i]
 * elements of dim block_dim[i]; a blocked dim is padded with zeros up to the product of its blocks.
 * ("BA16a64b2a" of a matrix: order {1,0}, blocks 16 of dim 0, 64 of dim 1, 2 of dim 0.) Compared
 * with memcmp: unused entries are zero.
 */
struct jm_layout {
	int16_t rank; /* 0 = plain */
	int16_t order[JM_DIMS];
	int16_t n_blocks;
	int16_t block_dim[JM_BLOCKS], block[JM_BLOCKS];
};

#define JM_CLASSES(X)                                                                              \
	X(PARAM, "parameters")	       /* master copy, in the slab of parameters */                \
	X(GRAD, "gradients")	       /* of a parameter, in the slab of gradients */              \
	X(OPT, "optimizer state")      /* slabs of the optimizer */                                \
	X(STATE, "running state")      /* of the network, kept between steps */                    \
	X(COPY, "compute copies")      /* a parameter in the compute type and layout */            \
	X(INPUT, "inputs")	       /* written by the host before a step */                     \
	X(SCALAR, "scalars")	       /* losses, norms: read by the host after a step */          \
	X(ACT, "activations")	       /* and their gradients; live from first to last use */      \
	X(SAVED, "saved for backward") /* data that a backend keeps for a gradient */              \
	X(SCRATCH, "scratch")	       /* lives for one group */
enum jm_class {
#define X(name, text) JM_CLASS_##name,
	JM_CLASSES(X)
#undef X
		JM_CLASS_COUNT
};

/*
 * OPT, STATE, INPUT and SCALAR are always plain. A PARAM and its GRAD have the same layout: plain,
 * or the dense layout that the backend offers for the gradient of a convolution's filter (select is
 * first called with dw as an ACT, then with the final PARAM and GRAD, whose layouts it must keep).
 * ACT and COPY have the layout that select chose. If a consumer chose another layout than the
 * producer, the engine inserts a `cast` node.
 */
#define JM_NAME_MOST 127 /* characters of a name that a model declares, with its scope */
#define JM_NAME_BYTES                                                                              \
	160 /* with what the engine puts before and behind it: "d.h0.ffn.up.weight.zero" */

struct jm_tensor {
	char name[JM_NAME_BYTES];
	enum jm_class class;
	enum jm_dtype type;
	int rank;
	int64_t dim[JM_DIMS];
	struct jm_layout layout;
	size_t bytes; /* in this layout, including padding */
	/* Aligned to 64 bytes; NULL until memory is allocated (always NULL in select). */
	void *data;
	/* Only nodes of its own group read the tensor, so it need not be written to memory. */
	bool is_virtual;
	/* A node of its own group adds to the tensor and the next one reads it; no later group uses
	 * it. */
	bool is_last;
	int id; /* number given by the engine */
};

/* ---- attributes ------------------------------------------------------------------------------ */

/* Heads within a tensor: the D adjacent elements of head h at position s of sequence b begin at
 * element offset + b batch + s row + h head. */
struct jm_view {
	int64_t offset, batch, row, head;
};

#define JM_PARTS 4 /* at most, of concat and split */
#define JM_AXES	 3 /* at most, of dft and idft */

/* Of each channel of a picture: value = factor pixel + shift. */
struct jm_colour_scale {
	float factor[3], shift[3];
};

union jm_attr {
	struct {
		double eps;
	} norm; /* layernorm, rmsnorm and their gradients */
	struct {
		int groups;
		int stride[2], pad[2], dilation[2];
		int more[2]; /* padding below and to the right in addition to pad */
		/* x needs no gradient; by convention the model's FLOPs include one */
		bool stem;
	} conv;
	struct {
		int kernel[2], stride[2], pad[2];
		bool count_pad;
	} pool;
	struct {
		double eps, momentum;
		int64_t count; /* n, elements of a channel */
		bool relu;
	} bn;
	struct {
		int groups;
		double eps;
		bool silu;
	} group; /* groupnorm and its gradient */
	struct {
		int64_t steps;
		double first, last; /* beta of the first and of the last step */
		bool velocity;
	} noise; /* add-noise */
	struct {
		double factor;
	} draw; /* draw-moments */
	struct jm_colour_scale colours;
	struct {
		int axis;
		int64_t size[JM_PARTS]; /* of each part along the axis; 0 = there is none */
	} concat;			/* and split */
	struct {
		int64_t places; /* P */
	} put;			/* put-rows and its gradient */
	struct {
		double p; /* probability that an element is dropped, below 1 */
		uint64_t seed;
	} dropout;
	struct {
		int heads, kv_heads;
		struct jm_rotary rotary;
	} rope;
	struct {
		int heads, kv_heads;
		bool causal;
		double scale;	     /* 1/sqrt(D) */
		int64_t depth, keys; /* D, T */
		struct jm_view q, k, v;
	} attention;
	struct {
		int heads, kv_heads;
		struct jm_rotary rotary; /* cache-write */
		double scale;		 /* 1/sqrt(D); attention-pages */
	} pages;
	struct {
		double scale;	 /* 1; 1/k for k micro-steps whose gradients are summed */
		double weight;	 /* of this loss in a sum of losses; 1 if it is the only one */
		int64_t classes; /* softmax-xent: of V; 0 = all */
		bool ignores;	 /* softmax-xent: targets may be below 0 */
		int axes;	 /* relative-l2: of a norm */
	} xent;			 /* softmax-xent, mse, relative-l2, sample */
	struct {
		int64_t modes
			[JM_AXES]; /* frequencies of each axis; each but the last has as many negative ones */
		bool twice;
	} dft; /* and idft */
	struct {
		int64_t used; /* columns of N that the model has; the others are padding. 0 = all */
	} linear;	      /* and its gradients; a hint for FLOPs */
	struct {
		double beta1, beta2, eps, weight_decay;
		double clip; /* largest global norm; 0 = no clipping */
		int64_t n_decay,
			copy_first; /* elements with weight decay; p[copy_first] = copy[0] */
		int64_t first;	    /* number of element 0 for random rounding; even */
	} adamw;		    /* adam too */
	struct {
		int64_t row; /* of ranges */
	} quantize;
	struct {
		int at; /* of now */
	} average;
	struct {
		double momentum, weight_decay;
		double clip; /* as adamw's */
		bool nesterov;
		int64_t n_decay, first; /* as adamw's */
	} sgd;
};

#define JM_NODE_IN  10
#define JM_NODE_OUT 4

struct jm_node {
	enum jm_op op;
	int n_in, n_out; /* of the op, including absent optional operands */
	struct jm_tensor *in[JM_NODE_IN], *out[JM_NODE_OUT];
	union jm_attr attr;
	enum jm_math math;
	unsigned accumulate; /* bit i: out[i] += (accumulate.h) */
	bool again;	     /* recomputes the result of an earlier node of the step */
	/* again, directly after the gradient of that node: both may be one kernel; or a norm that
	 * the next node may apply itself */
	bool beside;
	const struct jm_node *fwd; /* gradient ops: the forward node, as a hint; else NULL */
	int id;			   /* number given by the engine */
	/* FLOPs of the mathematics and of the op's definition; bytes of all operands. */
	double flops_model, flops_executed, bytes;
};

/* True if the node adds to its result i instead of writing it. */
static inline bool jm_node_adds(const struct jm_node *n, int i)
{
	return n->accumulate >> i & 1;
}

/* ---- groups: nodes that are offered, built and run together ---------------------------------- */

/*
 * One node, or several that may run as one. The engine offers the covers of a table
 * (engine/graph/group.c, which says of each what it leaves virtual); if one is refused, it is
 * shortened from its end. A backend must refuse covers that it does not know, because the table may
 * grow.
 */
#define JM_GROUP_MAX 8
struct jm_group {
	int n_nodes;
	const struct jm_node *node[JM_GROUP_MAX]; /* in program order */
	/* Gradient groups: the group of the first forward node that saves something, else of the
	 * first; others: NULL. */
	const struct jm_group *fwd;
	/* In build: the memory that the choice requested; NULL = none. */
	void *scratch;
	void *saved; /* of each step, for groups with this fwd */
};

#endif
