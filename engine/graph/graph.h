/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The canonical graph: tensors, and nodes in an order in which they may run. Models build it with
 * the functions of layer.h and layer_*.h; passes (gradient, optimizer, select) append to it.
 *
 * The first error is kept in graph->err; from then on every function returns NULL and does nothing,
 * so a model declares its layers without checks and the caller checks graph->err once. An absent
 * optional operand is NULL, too. Tensors and nodes live as long as their graph.
 */
#ifndef JM_GRAPH_H
#define JM_GRAPH_H

#include "node.h"

/* Start values of a parameter; see init_rule.h. */
enum jm_init {
	JM_INIT_OWN, /* in requests only: the rule that the model sets */
	JM_INIT_ZERO,
	JM_INIT_ONE,
	JM_INIT_NORMAL,
	/* normal, smaller for layers whose result is added to the residual stream */
	JM_INIT_GPT2,
	JM_INIT_HE_NORMAL,	/* variance 2 / fan-out */
	JM_INIT_LECUN_NORMAL,	/* variance 1 / fan-in */
	JM_INIT_TRUNC_NORMAL,	/* normal, cut at two standard deviations */
	JM_INIT_XAVIER_UNIFORM, /* variance 2 / (fan-in + fan-out) */
	JM_INIT_UNIFORM,	/* from 0 to 1 */
	JM_INIT_COUNT
};

/* Which part of a parameter a rank has, of those that share the model (tensor_parallel.h). */
struct jm_cut {
	int dim, n;	 /* n parts side by side along this dim; 0 = it is not cut */
	int64_t size[3]; /* of the whole parts */
};

/* A tensor and the engine's data about it. */
struct jm_cell {
	struct jm_tensor t; /* the first member, so that a cell and its tensor have one address */
	/* PARAM, STATE */
	enum jm_init init;
	double init_std;   /* of NORMAL, TRUNC_NORMAL (before the cut) and GPT2; 0 = 0.02 */
	bool table;	   /* rows are looked up; it is not the weight of a layer */
	int64_t used;	   /* rows in use; the rows after them are padding. 0 = all */
	struct jm_cut cut; /* PARAM */
	bool summed;	   /* PARAM: its gradient is the sum over the ranks that share the model */
	bool tied;	   /* PARAM: the first and the last of several stages train it */
	bool ends_block;   /* its result is added to the residual stream */
	struct jm_tensor *grad;
	/* for a gradient: the tensor that it was made for, and the last tensor that shares it
	 * unchanged */
	struct jm_tensor *made_for, *passed_to;
	struct jm_tensor *copy;	  /* PARAM: first of its copies; COPY: the next one */
	struct jm_tensor *origin; /* COPY, factors of a parameter in 8 bits: the parameter */
	struct jm_tensor *scale;  /* PARAM in 8 bits: the factors of its rows, f32[rows] */
	struct jm_tensor *slab;	  /* PARAM, GRAD: the flat tensor it is a view of */
	size_t slab_offset;	  /* bytes */
	bool own_life;		  /* GRAD: it is in the arena and begins with its first unit */
	struct jm_node *producer; /* the node that writes it first; NULL = the host */
	bool needs_grad;	  /* a parameter that is trained, or computed from one */
	bool frozen;		  /* PARAM, STATE: it keeps its value (freeze.h) */
	bool read;		  /* a group that is already selected reads it */
	int block;		  /* the block of the network that declares it; 0 = none */
	/* it is recomputed later, so it is never virtual and both results have the same bits */
	bool kept;
	/* liveness, arena */
	struct jm_tensor *alias; /* the tensor whose memory it shares; NULL = none */
	int first, last;	 /* positions of the units that use it; -1 = none */
	size_t offset;		 /* in the program's memory, bytes */
};

/* What an update keeps of each parameter. */
enum jm_kept {
	JM_KEPT_NONE,
	JM_KEPT_M,
	JM_KEPT_V, /* not of SGD */
	JM_KEPT_MEAN,
	JM_KEPT_COUNT
};

/* An interval of the slabs whose gradients are summed at once; each rank updates an equal share of
 * it. */
struct jm_segment {
	int64_t from, n;	     /* elements of the slabs, of all ranks */
	struct jm_tensor *grads;     /* all of the interval */
	struct jm_tensor *own_grads; /* this rank's share of their sum */
	struct jm_tensor *updated,
		*whole; /* gathered after the update: this rank's share, the interval */
	struct jm_tensor *masters, *params; /* the same in the type of the masters */
	/* of this rank's share, with is_whole of all; NULL = not kept */
	struct jm_tensor *kept[JM_KEPT_COUNT];
	const struct jm_node *last; /* of the update; completes `updated` */
	int reader;   /* the first unit that reads `whole`, before transfers are placed */
	bool vectors; /* it has no matrices */
	/* every rank updates all of it: its summed gradients are gathered instead of parameters */
	bool is_whole;
};

/* A sharded update: the ranks divide it among themselves. */
struct jm_shard {
	struct jm_segment *segment;
	int n, cap;
	/* elements of matrices, where the gradients of vectors have a slab of their own; else 0 */
	int64_t n_matrices;
	struct jm_tensor *own_norm, *norms; /* of this rank's share [1], of all ranks [ranks] */
};

/* Pictures that the host writes as bytes, and what becomes of them. */
struct jm_byte_input {
	const char *name; /* of the input [B,3,Y,X]; NULL = there is none */
	struct jm_colour_scale scale;
};

struct jm_weight_names;

/* Which parameters are frozen (freeze.h). */
struct jm_freeze {
	const char *patterns; /* of fnmatch, separated by commas; NULL = nothing is frozen */
	const char *always;   /* the same of the model, whatever the user asks for */
	/* the patterns fit these names or those of the graph; may be NULL */
	const struct jm_weight_names *names;
};

/* The padding of vocabularies in 16 bits, which products read without a copy: tensor cores are
 * fastest on whole blocks. */
#define JM_ROW_MULTIPLE 64

/* The smallest sum of gradients over ranks, by default as large as that of
 * torch.nn.parallel.DistributedDataParallel. */
#define JM_BUCKET_BYTES ((size_t)25 << 20)

struct jm_graph {
	struct jm_cell **cell; /* [id] */
	int n_cells, cap_cells;
	struct jm_node **node; /* [id] */
	int n_nodes, cap_nodes;
	enum jm_dtype compute;	/* of products and activations between them */
	enum jm_dtype stream;	/* of the residual stream */
	enum jm_dtype vector;	/* of parameters that are vectors, their gradients, statistics */
	enum jm_dtype matrix;	/* of other parameters and their moments: vector or compute */
	enum jm_dtype gradient; /* of the gradients of these: vector or compute */
	/* rows of vocabularies are padded to a multiple of this; 0 = no padding */
	int64_t row_multiple;
	enum jm_math math; /* of products of f32 */
	/* without gradients: no dropout, and batch norms use running statistics */
	bool evaluate;
	bool wants_top1; /* an evaluation also computes the share of correct answers */
	double dropout;	 /* for models with dropout */
	struct jm_byte_input pixels;
	struct jm_freeze freeze;
	char part[32];		   /* begins every scope: "vae." */
	char scope[JM_NAME_BYTES]; /* prefix of names */
	int block, n_blocks;	   /* the block being declared; a named scope begins the next */
	int n_forward;		   /* nodes before the gradients; 0 = there are none yet */
	int n_update;		   /* nodes of the update, at the end */
	/* micro-steps whose gradients are summed before an update; 0 means 1 */
	int micro_steps;
	int ranks;	 /* ranks that train together, each on different samples; 0 means 1 */
	int rank;	 /* the own one of these, from 0 */
	int tp;		 /* ranks that share the model (tensor_parallel.h); 0 means 1 */
	int tp_rank;	 /* the own one of these, from 0 */
	int n_sums;	 /* nodes so far in which these exchange data */
	bool sp;	 /* between products that are cut each of these has a part of the rows */
	int pp;		 /* ranks that have stages of the model (pipeline_parallel.h); 0 means 1 */
	int stage;	 /* the own one of these, from 0 */
	int chunks;	 /* parts of each stage; 0 means 1 */
	int last_blocks; /* of the last part of the last stage; 0 = to be chosen by FLOPs */
	int64_t batch, seq;  /* of all rows, with sp */
	size_t bucket_bytes; /* smallest sum of gradients over ranks; 0 means JM_BUCKET_BYTES */
	bool by_host;	  /* ranks exchange data through the memory of the host (transport host) */
	bool rounds_sums; /* gradients travel between ranks in bf16 */
	struct jm_shard *shard;	  /* NULL = every rank updates all parameters */
	const char *whole_update; /* why that is so with several ranks; NULL = it is not */
	struct jm_err err;
};

/* At least 1. */
static inline int jm_graph_micro_steps(const struct jm_graph *g)
{
	return g->micro_steps > 1 ? g->micro_steps : 1;
}

static inline int jm_graph_ranks(const struct jm_graph *g)
{
	return g->ranks > 1 ? g->ranks : 1;
}

/* At least 1. */
static inline int jm_graph_tp(const struct jm_graph *g)
{
	return g->tp > 1 ? g->tp : 1;
}

static inline int jm_graph_pp(const struct jm_graph *g)
{
	return g->pp > 1 ? g->pp : 1;
}

static inline int jm_graph_chunks(const struct jm_graph *g)
{
	return g->chunks > 1 ? g->chunks : 1;
}

struct jm_graph *jm_graph_new(enum jm_dtype precision); /* NULL = out of memory */
void jm_graph_free(struct jm_graph *g);			/* takes NULL */
/* Names from here on begin with this prefix, such as "vae."; "" ends the part. Ends the scope. */
void jm_graph_part(struct jm_graph *g, const char *prefix);
/* A name that is not empty also begins a new block, which is the unit of recomputation. */
void jm_graph_scope(struct jm_graph *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- for passes ------------------------------------------------------------------------------ */

struct jm_tensor *jm_graph_tensor(struct jm_graph *g, enum jm_class class, enum jm_dtype type,
	int rank, const int64_t *dim, const char *name);
/* Appends a node of the op with these operands (as many as the op has). */
struct jm_node *jm_graph_node(struct jm_graph *g, enum jm_op op, struct jm_tensor *const *in,
	struct jm_tensor *const *out);
struct jm_cell *jm_graph_cell(const struct jm_graph *g, const struct jm_tensor *t);
/* The tensor with this full name; NULL = none. */
struct jm_tensor *jm_graph_find(const struct jm_graph *g, const char *name);
/* The tensor that begins the residual stream of a transformer; NULL = the network has none. */
const struct jm_tensor *jm_graph_residual(const struct jm_graph *g);
/* Elements, without padding; of all ranks that share the model. */
int64_t jm_graph_parameters(const struct jm_graph *g);
int64_t jm_cell_parameters(const struct jm_graph *g, const struct jm_cell *c); /* of one tensor */

#endif
