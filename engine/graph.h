/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The canonical graph: tensors, and nodes in an order in which they may run. Models build it with
 * the functions below; passes (gradient, optimizer, select) append to it.
 *
 * The first error is kept in graph->err; from then on every function returns NULL and does nothing,
 * so a model declares its layers without checks and the caller checks graph->err once. An absent
 * optional operand is NULL, too. Tensors and nodes live as long as their graph.
 */
#ifndef JM_GRAPH_H
#define JM_GRAPH_H

#include "backend.h"

/* Start values of a parameter; see init.h. */
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
	JM_INIT_COUNT
};

/* A tensor and the engine's data about it. */
struct jm_cell {
	struct jm_tensor t; /* the first member, so that a cell and its tensor have one address */
	/* PARAM, STATE */
	enum jm_init init;
	double init_std; /* of NORMAL, TRUNC_NORMAL (before the cut) and GPT2; 0 = 0.02 */
	bool table;	 /* rows are looked up; it is not the weight of a layer */
	int64_t used;	 /* rows in use; the rows after them are padding. 0 = all */
	bool ends_block; /* its result is added to the residual stream */
	struct jm_tensor *grad;
	/* for a gradient: the tensor that it was made for, and the last tensor that shares it
	 * unchanged */
	struct jm_tensor *made_for, *passed_to;
	struct jm_tensor *copy;	  /* PARAM: first of its copies; COPY: the next one */
	struct jm_tensor *origin; /* COPY: the parameter */
	struct jm_tensor *slab;	  /* PARAM, GRAD: the flat tensor it is a view of */
	size_t slab_offset;	  /* bytes */
	bool own_life;		  /* GRAD: it is in the arena and begins with its first unit */
	struct jm_node *producer; /* the node that writes it first; NULL = the host */
	bool needs_grad;	  /* a parameter, or computed from one */
	bool read;		  /* a group that is already selected reads it */
	int block;		  /* the block of the network that declares it; 0 = none */
	/* it is recomputed later, so it is never virtual and both results have the same bits */
	bool kept;
	/* liveness, arena */
	struct jm_tensor *alias; /* the tensor whose memory it shares; NULL = none */
	int first, last;	 /* positions of the units that use it; -1 = none */
	size_t offset;		 /* in the program's memory, bytes */
};

/* An interval of the slabs whose gradients are summed at once; each rank updates an equal share of it. */
struct jm_segment {
	int64_t from, n;	     /* elements of the slabs, of all ranks */
	struct jm_tensor *grads;     /* all of the interval */
	struct jm_tensor *own_grads; /* this rank's share of their sum */
	struct jm_tensor *updated,
		*whole; /* gathered after the update: this rank's share, the interval */
	struct jm_tensor *masters, *params; /* the same in the type of the masters */
	const struct jm_node *last;	    /* of the update; completes `updated` */
	int reader;   /* the first unit that reads `whole`, before transfers are placed */
	bool vectors; /* it has no matrices */
	bool is_whole; /* every rank updates all of it: its summed gradients are gathered instead of parameters */
};

/* A sharded update: the ranks divide it among themselves. */
struct jm_shard {
	struct jm_segment *segment;
	int n, cap;
	struct jm_tensor *own_norm, *norms; /* of this rank's share [1], of all ranks [ranks] */
};

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
	int64_t row_multiple; /* rows of vocabularies are padded to a multiple of this; 0 = no padding */
	enum jm_math math; /* of products of f32 */
	/* without gradients: no dropout, and batch norms use running statistics */
	bool evaluate;
	bool wants_top1;     /* an evaluation also computes the share of correct answers */
	double dropout;	     /* for models with dropout */
	char scope[24];	     /* prefix of names */
	int block, n_blocks; /* the block being declared; a named scope begins the next */
	int n_forward;	     /* nodes before the gradients; 0 = there are none yet */
	int n_update;	     /* nodes of the update, at the end */
	/* micro-steps whose gradients are summed before an update; 0 means 1 */
	int micro_steps;
	int ranks;	     /* ranks that train together, each on different samples; 0 means 1 */
	int rank;	     /* the own one of these, from 0 */
	size_t bucket_bytes; /* smallest sum of gradients over ranks; 0 means JM_BUCKET_BYTES */
	bool by_host;	  /* ranks exchange data through the memory of the host (transport host) */
	bool rounds_sums; /* gradients travel between ranks in bf16 */
	struct jm_shard *shard; /* NULL = every rank updates all parameters */
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

struct jm_graph *jm_graph_new(enum jm_dtype precision); /* NULL = out of memory */
void jm_graph_free(struct jm_graph *g);			/* takes NULL */
/* A name that is not empty also begins a new block, which is the unit of recomputation. */
void jm_graph_scope(struct jm_graph *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- for models: dims are outermost first; names are prefixed by the scope ------------------- */

struct jm_tensor *jm_graph_input(
	struct jm_graph *g, const char *name, enum jm_dtype type, int rank, const int64_t *dim);
struct jm_tensor *jm_graph_vector(
	struct jm_graph *g, const char *name, enum jm_init init, int64_t n);
/* The weight of a layer. */
struct jm_tensor *jm_graph_matrix(
	struct jm_graph *g, const char *name, enum jm_init init, int64_t rows, int64_t width);
/* A table whose rows are looked up or added: tokens, positions. Its start values are normal,
 * 0.02. */
struct jm_tensor *jm_graph_table(struct jm_graph *g, const char *name, int64_t rows, int64_t width);
/*
 * A vocabulary of `rows` rows, padded to a multiple of the graph's row_multiple, as a table or a
 * matrix. jm_graph_classify is the loss of the classifier that multiplies by it; it ignores the
 * padding rows, so they get no gradient.
 */
struct jm_tensor *jm_graph_vocabulary(struct jm_graph *g, const char *name, bool table,
	enum jm_init init, int64_t rows, int64_t width);
struct jm_tensor *jm_graph_classify(
	struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *w, struct jm_tensor *target);
/* Marks the parameter as one whose result is added to the residual stream; returns it. */
struct jm_tensor *jm_graph_ends_block(struct jm_graph *g, struct jm_tensor *t);
struct jm_tensor *jm_graph_embed(struct jm_graph *g, struct jm_tensor *ids, struct jm_tensor *table,
	struct jm_tensor *positions);
/* w: a parameter, of which a compute copy is made if the precision needs one; or an activation, as
 * in the similarities of a contrastive loss: each row of x with each row of w. */
struct jm_tensor *jm_graph_linear(
	struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *w, struct jm_tensor *bias);
struct jm_tensor *jm_graph_gelu(struct jm_graph *g, struct jm_tensor *x); /* tanh form */
struct jm_tensor *jm_graph_gelu_erf(struct jm_graph *g, struct jm_tensor *x);
struct jm_tensor *jm_graph_relu(struct jm_graph *g, struct jm_tensor *x);
struct jm_tensor *jm_graph_silu(struct jm_graph *g, struct jm_tensor *x);
/* x: gate and up side by side; the result has half its width */
struct jm_tensor *jm_graph_swiglu(struct jm_graph *g, struct jm_tensor *x);
/* p = 0 returns x. The first dropout adds the input "random.now". */
struct jm_tensor *jm_graph_dropout(struct jm_graph *g, struct jm_tensor *x, double p);
struct jm_tensor *jm_graph_layernorm(struct jm_graph *g, struct jm_tensor *x,
	struct jm_tensor *gamma, struct jm_tensor *beta, double eps);
struct jm_tensor *jm_graph_rmsnorm(
	struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *gamma, double eps);
struct jm_tensor *jm_graph_rope(
	struct jm_graph *g, struct jm_tensor *qkv, int heads, int kv_heads, double theta);
struct jm_tensor *jm_graph_attention(
	struct jm_graph *g, struct jm_tensor *qkv, int heads, int kv_heads, bool causal);
struct jm_tensor *jm_graph_add(struct jm_graph *g, struct jm_tensor *a, struct jm_tensor *b);
/* The mean loss of the rows; in training with a tensor for the gradient of the logits, in
 * evaluation with the scalar "top1" if wants_top1 is set. */
struct jm_tensor *jm_graph_softmax_xent(
	struct jm_graph *g, struct jm_tensor *logits, struct jm_tensor *target);

/* Adds the mean loss of these rows to a loss; returns it. */
struct jm_tensor *jm_graph_softmax_xent_add(struct jm_graph *g, struct jm_tensor *loss,
	struct jm_tensor *logits, struct jm_tensor *target);

/* The mean of the squared differences of all elements, in training with a tensor for its
 * gradient. */
struct jm_tensor *jm_graph_mse(struct jm_graph *g, struct jm_tensor *y, struct jm_tensor *target);

/* Windows over images [B, C, Y, X]. Zero means the default: stride, dilation and groups 1, no
 * padding. */
struct jm_window {
	int stride, pad, dilation, groups;
};
struct jm_tensor *jm_graph_filter(struct jm_graph *g, const char *name, enum jm_init init,
	int64_t to, int64_t from, int64_t rows, int64_t columns);
struct jm_tensor *jm_graph_conv(struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *w,
	struct jm_tensor *bias, const struct jm_window *how);
/*
 * Normalises by the batch's statistics (in evaluation by the running ones), then adds `add` (may be
 * NULL), then applies ReLU if requested. Makes the parameters NAME.weight and .bias and the state
 * NAME.running_mean and .running_var.
 */
struct jm_tensor *jm_graph_batchnorm(struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *add,
	bool relu, double eps, const char *name);
struct jm_tensor *jm_graph_maxpool(
	struct jm_graph *g, struct jm_tensor *x, int kernel, int stride, int pad);
struct jm_tensor *jm_graph_avgpool(
	struct jm_graph *g, struct jm_tensor *x, int kernel, int stride, int pad, bool count_pad);
struct jm_tensor *jm_graph_gap(struct jm_graph *g, struct jm_tensor *x); /* [B, C] */
/* The pixels of an image as a sequence after a token `first`, plus positions (both may be NULL). */
struct jm_tensor *jm_graph_tokens(struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *first,
	struct jm_tensor *positions);
struct jm_tensor *jm_graph_first(struct jm_graph *g, struct jm_tensor *x); /* [B, C] of [B, S, C] */

/* ---- for passes ------------------------------------------------------------------------------------- */

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
int64_t jm_graph_parameters(const struct jm_graph *g); /* elements, without padding */
int64_t jm_cell_parameters(const struct jm_cell *c);   /* the same for one tensor */

/* gradient.c: appends the backward nodes of `loss`, which must come from softmax-xent or mse. */
int jm_graph_gradients(struct jm_graph *g, struct jm_tensor *loss, struct jm_err *err);

/* group.c: the op of the gradient of an activation, for activations that a backend may recompute in
 * the kernel of their gradient; JM_OP_COUNT = not one of them */
enum jm_op jm_group_gradient(enum jm_op activation);

/* A device's peaks per second (flops_f8: products in 8 bits), and the share of a step's time,
 * computed from them, that may be spent on recomputation; share 0: no limit, NAN: jm_remake_usual. positions: max pooling
 * saves positions (backend.h, saved), so nothing is recomputed for its gradient. copies: the update
 * keeps copies of parameters (keep_copies.c), so they are not recomputed. */
struct jm_remake {
	double flops, flops_f8, bytes, share;
	bool positions, copies;
	/* activations are recomputed by the kernels of their gradients (group.c), which read their
	 * operands anyway: always, as it costs one writing of a result; at most half of the share
	 * counts as spent on them */
	bool beside;
};
/* The share that is worth its time where memory suffices: 1/16 % for transformers, 1 % for others. */
double jm_remake_usual(const struct jm_graph *g);
/*
 * rematerialize.c: recomputes norms, activations and compute copies for gradients instead of
 * keeping them, beginning with those that free most memory for their time. To be called after
 * jm_graph_gradients and before the update. The nodes are appended; jm_graph_schedule moves them to
 * their place.
 */
int jm_graph_rematerialize(struct jm_graph *g, const struct jm_remake *how, struct jm_err *err);

/* recompute.c: blocks keep only what other blocks read; the rest is computed again before it is
 * needed for gradients. To be called instead of jm_graph_rematerialize. */
int jm_graph_recompute(struct jm_graph *g, struct jm_err *err);

/*
 * fp8.c: linear layers inside blocks multiply in 8 bits with scales from the maxima of the last
 * steps, which are kept in the state "fp8.ranges". To be called after jm_graph_gradients, if it is
 * called, and before all other passes. JM_EUSAGE: no layer has suitable widths, or the rows of one
 * are unsuitable. jm_graph_rescale, after the update, computes the scales of the next step.
 */
int jm_graph_fp8(struct jm_graph *g, struct jm_err *err);
int jm_graph_rescale(struct jm_graph *g, struct jm_err *err);

/* AdamW (arXiv 1711.05101), Adam with weight decay in the gradient (1412.6980), SGD with
 * momentum. */
enum jm_update { JM_UPDATE_ADAMW, JM_UPDATE_ADAM, JM_UPDATE_SGD };
extern const char *const jm_update_names[]; /* "adamw"..., NULL-terminated */

struct jm_adamw {
	double beta1, beta2, eps, weight_decay;
	double clip; /* largest global norm of the gradient; 0 = none */
	enum jm_update kind;
	double momentum; /* SGD */
	bool nesterov;	 /* SGD */
};
/*
 * optimizer.c: lays parameters and gradients out in flat slabs and appends norm and update over
 * them. Weight decay applies to matrices, not to vectors. If there is an input "loss.scale", the
 * gradients are multiplied by its 1/S ("grad.norm" is not). Adds the input "adamw.now" (or adam,
 * sgd; {lr, 1 - beta1^t, 1 - beta2^t}, for SGD only lr) and the scalar "grad.norm".
 */
int jm_graph_adamw(struct jm_graph *g, const struct jm_adamw *how, struct jm_err *err);
/* shard_update.c: the same for several ranks, each of which updates a share of the parameters; not with
 * g->matrix of another type than g->vector. */
int jm_graph_shard_update(struct jm_graph *g, const struct jm_adamw *how, struct jm_err *err);

#endif
