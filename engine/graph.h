/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The canonical graph: tensors, and nodes in an order in which they may run. Models write it with the
 * functions below; passes (gradient, optimizer, select) append to it.
 *
 * The first error sticks in graph->err; from then on every function returns NULL and does nothing, so a
 * model declares its layers without checking and the caller asks once. A missing optional operand is
 * NULL as well. Tensors and nodes live as long as their graph.
 */
#ifndef JM_GRAPH_H
#define JM_GRAPH_H

#include "backend.h"

/* Start values of a parameter; see init.h. */
enum jm_init {
	JM_INIT_OWN, /* only as a request: the rule that the model sets */
	JM_INIT_ZERO,
	JM_INIT_ONE,
	JM_INIT_NORMAL,
	JM_INIT_GPT2,	   /* normal, smaller where a part of a block joins the residual stream */
	JM_INIT_HE_NORMAL, /* variance 2 / fan-out */
	JM_INIT_LECUN_NORMAL,	/* variance 1 / fan-in */
	JM_INIT_TRUNC_NORMAL,	/* nothing beyond two standard deviations */
	JM_INIT_XAVIER_UNIFORM, /* variance 2 / (fan-in + fan-out) */
	JM_INIT_COUNT
};

/* A tensor with what the engine itself knows of it. */
struct jm_cell {
	struct jm_tensor t; /* first: a cell's tensor and the cell have one address */
	/* PARAM, STATE */
	enum jm_init init;
	double init_std; /* of NORMAL, TRUNC_NORMAL (before the cut) and GPT2; 0 = 0.02 */
	bool table;	 /* rows are looked up: no weight of a layer */
	int64_t used;	 /* rows in use; the rows behind them are padding. 0 = all */
	bool ends_block; /* its result joins the residual stream */
	struct jm_tensor *grad;
	/* of a gradient: the tensor that it was made for, and the last tensor that shares it unchanged */
	struct jm_tensor *made_for, *passed_to;
	struct jm_tensor *copy;	  /* PARAM: first of its copies; COPY: the next one */
	struct jm_tensor *origin; /* COPY: the parameter */
	struct jm_tensor *slab;	  /* PARAM, GRAD: the flat tensor it is a view of */
	size_t slab_offset;	  /* bytes */
	bool own_life;		  /* GRAD: it is in the arena, from its first unit on */
	struct jm_node *producer; /* the node that writes it first; NULL = the host */
	bool needs_grad;	  /* a parameter, or computed from one */
	bool read;		  /* by a group that is selected already */
	int block;		  /* of the network it was declared in; 0 = in none */
	bool kept; /* it is computed again later: never virtual, so that both rounds give the same bits */
	/* liveness, arena */
	struct jm_tensor *alias; /* shares the memory of that one; NULL = has its own */
	int first, last;	 /* positions of the units that touch it; -1 = none */
	size_t offset;		 /* in the program's memory, bytes */
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
	enum jm_dtype gradient; /* of the gradients of these: likewise */
	int64_t row_multiple; /* rows of vocabularies are padded to a multiple of this; 0 = no padding */
	enum jm_math math;   /* of products of f32 */
	bool evaluate;	     /* no gradients follow: no dropout, and norms use running statistics */
	bool wants_top1;     /* of an evaluation: the share of right answers is computed too */
	double dropout;	     /* for models that drop out */
	char scope[24];	     /* prefix of names */
	int block, n_blocks; /* the one being declared; a named scope begins the next */
	int n_forward;	     /* nodes before the gradients; 0 = there are none yet */
	int n_update;	     /* nodes from the end that are the update */
	int micro_steps;     /* whose gradients add up before an update; 0 is 1 */
	int ranks;	     /* that train together, each on samples of its own; 0 is 1 */
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
/* A name that is not empty also begins a new block, the unit of recomputation. */
void jm_graph_scope(struct jm_graph *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- for models: dims are outermost first; names get the scope in front ----------------------------- */

struct jm_tensor *jm_graph_input(
	struct jm_graph *g, const char *name, enum jm_dtype type, int rank, const int64_t *dim);
struct jm_tensor *jm_graph_vector(
	struct jm_graph *g, const char *name, enum jm_init init, int64_t n);
/* The weight of a layer. */
struct jm_tensor *jm_graph_matrix(
	struct jm_graph *g, const char *name, enum jm_init init, int64_t rows, int64_t width);
/* Rows to be looked up or added: tokens, positions. Normal, 0.02. */
struct jm_tensor *jm_graph_table(struct jm_graph *g, const char *name, int64_t rows, int64_t width);
/*
 * A vocabulary of `rows`, in as many rows as the graph's row_multiple asks for: table or matrix. jm_graph_classify is the
 * loss of the classifier that multiplies by it: the rows behind have no part in it, so no gradient reaches them.
 */
struct jm_tensor *jm_graph_vocabulary(struct jm_graph *g, const char *name, bool table,
	enum jm_init init, int64_t rows, int64_t width);
struct jm_tensor *jm_graph_classify(
	struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *w, struct jm_tensor *target);
/* Says that what the parameter makes joins the residual stream; returns it. */
struct jm_tensor *jm_graph_ends_block(struct jm_graph *g, struct jm_tensor *t);
struct jm_tensor *jm_graph_embed(struct jm_graph *g, struct jm_tensor *ids, struct jm_tensor *table,
	struct jm_tensor *positions);
/* w: a parameter, whose compute copy is made where precision asks for one; or an activation, as in the
 * similarities of a contrastive loss: each row of x with each of w. */
struct jm_tensor *jm_graph_linear(
	struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *w, struct jm_tensor *bias);
struct jm_tensor *jm_graph_gelu(struct jm_graph *g, struct jm_tensor *x); /* by tanh */
struct jm_tensor *jm_graph_gelu_erf(struct jm_graph *g, struct jm_tensor *x);
struct jm_tensor *jm_graph_relu(struct jm_graph *g, struct jm_tensor *x);
struct jm_tensor *jm_graph_silu(struct jm_graph *g, struct jm_tensor *x);
/* x: gate and up side by side; half as wide a result */
struct jm_tensor *jm_graph_swiglu(struct jm_graph *g, struct jm_tensor *x);
/* p = 0 gives x back. Adds the input "random.now" when it is the first. */
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
/* The mean loss of the rows; with a place for the gradient of the logits where gradients follow, else with
 * the scalar "top1" where that is wanted. */
struct jm_tensor *jm_graph_softmax_xent(
	struct jm_graph *g, struct jm_tensor *logits, struct jm_tensor *target);

/* Adds the mean loss of these rows to a loss; returns it. */
struct jm_tensor *jm_graph_softmax_xent_add(struct jm_graph *g, struct jm_tensor *loss,
	struct jm_tensor *logits, struct jm_tensor *target);

/* The mean of squared differences, of all elements; likewise. */
struct jm_tensor *jm_graph_mse(struct jm_graph *g, struct jm_tensor *y, struct jm_tensor *target);

/* Images [B, C, Y, X]. Zero means the default: stride, dilation and groups 1, no padding. */
struct jm_window {
	int stride, pad, dilation, groups;
};
struct jm_tensor *jm_graph_filter(struct jm_graph *g, const char *name, enum jm_init init,
	int64_t to, int64_t from, int64_t rows, int64_t columns);
struct jm_tensor *jm_graph_conv(struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *w,
	struct jm_tensor *bias, const struct jm_window *how);
/* By the batch's statistics (the running ones where no gradients follow), then + add (may be NULL), then ReLU if wanted. Makes the parameters
 * NAME.weight and .bias and the state NAME.running_mean and .running_var. */
struct jm_tensor *jm_graph_batchnorm(struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *add,
	bool relu, double eps, const char *name);
struct jm_tensor *jm_graph_maxpool(
	struct jm_graph *g, struct jm_tensor *x, int kernel, int stride, int pad);
struct jm_tensor *jm_graph_avgpool(
	struct jm_graph *g, struct jm_tensor *x, int kernel, int stride, int pad, bool count_pad);
struct jm_tensor *jm_graph_gap(struct jm_graph *g, struct jm_tensor *x); /* [B, C] */
/* An image's places as a sequence, behind a token `first` and plus positions (may be NULL). */
struct jm_tensor *jm_graph_tokens(struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *first,
	struct jm_tensor *positions);
struct jm_tensor *jm_graph_first(struct jm_graph *g, struct jm_tensor *x); /* [B, C] of [B, S, C] */

/* ---- for passes ------------------------------------------------------------------------------------- */

struct jm_tensor *jm_graph_tensor(struct jm_graph *g, enum jm_class class, enum jm_dtype type,
	int rank, const int64_t *dim, const char *name);
/* A node of the op with these operands (as many as the op has), appended. */
struct jm_node *jm_graph_node(struct jm_graph *g, enum jm_op op, struct jm_tensor *const *in,
	struct jm_tensor *const *out);
struct jm_cell *jm_graph_cell(const struct jm_graph *g, const struct jm_tensor *t);
/* By full name; NULL when there is none. */
struct jm_tensor *jm_graph_find(const struct jm_graph *g, const char *name);
int64_t jm_graph_parameters(const struct jm_graph *g); /* elements, without padding */
int64_t jm_cell_parameters(const struct jm_cell *c);   /* of one, likewise */

/* gradient.c: appends the backward nodes of `loss`, which must come from softmax-xent or mse. */
int jm_graph_gradients(struct jm_graph *g, struct jm_tensor *loss, struct jm_err *err);

/* A device's peaks, per second (flops_f8: of products in 8 bits), and the share of a step's time by them that may be
 * spent on values made again; share 0: all that it takes. */
struct jm_remake {
	double flops, flops_f8, bytes, share;
};
/* rematerialize.c: norms, activations and compute copies are made again for gradients instead of kept, those that
 * free most memory for their time first. After jm_graph_gradients, before the update. Appends; jm_graph_schedule
 * puts in order. */
int jm_graph_rematerialize(struct jm_graph *g, const struct jm_remake *how, struct jm_err *err);

/* recompute.c: blocks keep only what other blocks read; the rest is computed again before it is needed
 * for gradients. As jm_graph_rematerialize, and instead of it. */
int jm_graph_recompute(struct jm_graph *g, struct jm_err *err);

/* fp8.c: linear layers inside blocks multiply in 8 bits by scales from the largest values of the last steps, which
 * are the state "fp8.ranges". After jm_graph_gradients if there are any, before all other passes. JM_EUSAGE: no
 * layer can, or the rows of one cannot. jm_graph_rescale, after the update, makes the scales of the next step. */
int jm_graph_fp8(struct jm_graph *g, struct jm_err *err);
int jm_graph_rescale(struct jm_graph *g, struct jm_err *err);

/* AdamW (arXiv 1711.05101), Adam with decay in the gradient (1412.6980), SGD with momentum. */
enum jm_update { JM_UPDATE_ADAMW, JM_UPDATE_ADAM, JM_UPDATE_SGD };
extern const char *const jm_update_names[]; /* "adamw"..., NULL-terminated */

struct jm_adamw {
	double beta1, beta2, eps, weight_decay;
	double clip; /* largest global norm of the gradient; 0 = none */
	enum jm_update kind;
	double momentum; /* SGD */
	bool nesterov;	 /* SGD */
};
/* optimizer.c: lays parameters and gradients out in flat slabs and appends norm and update over them.
 * Matrices decay, vectors do not. Where there is an input "loss.scale", its 1/S takes the scale out of the
 * gradients again ("grad.norm" keeps it). Adds the input "adamw.now" (or adam, sgd; {lr, 1 - beta1^t, 1 - beta2^t},
 * of SGD only the first) and the scalar "grad.norm". */
int jm_graph_adamw(struct jm_graph *g, const struct jm_adamw *how, struct jm_err *err);

#endif
