/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers, for models: dims are outermost first; names are prefixed by the graph's scope. Errors: as
 * graph.h says.
 */
#ifndef JM_LAYER_H
#define JM_LAYER_H

#include "graph.h"

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
struct jm_tensor *jm_graph_gelu_quick(struct jm_graph *g, struct jm_tensor *x); /* CLIP's */
struct jm_tensor *jm_graph_relu(struct jm_graph *g, struct jm_tensor *x);
struct jm_tensor *jm_graph_silu(struct jm_graph *g, struct jm_tensor *x);
/* x: gate and up side by side; the result has half its width */
struct jm_tensor *jm_graph_swiglu(struct jm_graph *g, struct jm_tensor *x);
/* x: values and gates side by side; the result has half its width */
struct jm_tensor *jm_graph_geglu(struct jm_graph *g, struct jm_tensor *x);
/* p = 0 returns x. The first dropout adds the input "random.now". */
struct jm_tensor *jm_graph_dropout(struct jm_graph *g, struct jm_tensor *x, double p);
struct jm_tensor *jm_graph_layernorm(struct jm_graph *g, struct jm_tensor *x,
	struct jm_tensor *gamma, struct jm_tensor *beta, double eps);
struct jm_tensor *jm_graph_rmsnorm(
	struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *gamma, double eps);
struct jm_tensor *jm_graph_rope(struct jm_graph *g, struct jm_tensor *qkv, int heads, int kv_heads,
	struct jm_rotary rotary);
struct jm_tensor *jm_graph_attention(
	struct jm_graph *g, struct jm_tensor *qkv, int heads, int kv_heads, bool causal);
/* q [B,S,width] sees k and v [B,T,width], each of `heads` heads. */
struct jm_tensor *jm_graph_attention_apart(struct jm_graph *g, struct jm_tensor *q,
	struct jm_tensor *k, struct jm_tensor *v, int heads);
/* x [B,S,C] with rows [B,P,C] in place of its own from position at[b] on, i32[B]; at[b] < 0:
 * sequence b keeps its own. */
struct jm_tensor *jm_graph_put_rows(
	struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *rows, struct jm_tensor *at);
/* The sequences x [B,S,C] without their first token, in the compute type. It has no gradient, so
 * nothing before it is trained. */
struct jm_tensor *jm_graph_behind_first(struct jm_graph *g, struct jm_tensor *x);
struct jm_tensor *jm_graph_add(struct jm_graph *g, struct jm_tensor *a, struct jm_tensor *b);
/* n different tensors, 2 to JM_PARTS, side by side along this dim; one that is NULL: NULL. */
struct jm_tensor *jm_graph_concat(
	struct jm_graph *g, int n, struct jm_tensor *const *part, int axis);
/* The mean loss of the rows; in training with a tensor for the gradient of the logits, in
 * evaluation with the scalar "top1" if wants_top1 is set. */
struct jm_tensor *jm_graph_softmax_xent(
	struct jm_graph *g, struct jm_tensor *logits, struct jm_tensor *target);

/* Adds `weight` times the mean loss of these rows to a loss; returns it. */
struct jm_tensor *jm_graph_softmax_xent_add(struct jm_graph *g, struct jm_tensor *loss,
	double weight, struct jm_tensor *logits, struct jm_tensor *target);

/* For a loss of softmax-xent whose targets may be below 0 (PyTorch's ignore_index is -100): such
 * rows do not count in it, nor in its gradient. Returns it. */
struct jm_tensor *jm_graph_ignore_targets(struct jm_graph *g, struct jm_tensor *loss);

/* The mean of the squared differences of all elements, in training with a tensor for its
 * gradient. */
struct jm_tensor *jm_graph_mse(struct jm_graph *g, struct jm_tensor *y, struct jm_tensor *target);

#endif
