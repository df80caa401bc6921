/* SPDX-License-Identifier: Apache-2.0 */
/* The update of parameters, and what that of one rank and the sharded one of several have in
 * common. */
#ifndef JM_OPTIMIZER_H
#define JM_OPTIMIZER_H

#include "graph.h"

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
	double average;	 /* share that an update keeps of the mean of parameters; 0 = no mean */
};
/*
 * Lays parameters and gradients out in flat slabs and appends norm and update over
 * them. Weight decay applies to matrices, not to vectors. If there is an input "loss.scale", the
 * gradients are multiplied by its 1/S ("grad.norm" is not). Adds the input "adamw.now" (or adam,
 * sgd; {lr, 1 - beta1^t, 1 - beta2^t}, for SGD only lr; behind them the weight of the parameters in
 * their mean, if there is one) and the scalar "grad.norm".
 */
int jm_graph_adamw(struct jm_graph *g, const struct jm_adamw *how, struct jm_err *err);

/* Does the graph's update keep this of each parameter? ret_name: "adamw.m", room for JM_NAME_BYTES;
 * untouched if not. */
bool jm_update_keeps(const struct jm_graph *g, enum jm_kept what, char *ret_name);
/* What it keeps of this one, in its shape and layout. data NULL: another stage has it, or each rank
 * a share (jm_shard_run). */
struct jm_tensor jm_update_kept(
	const struct jm_graph *g, const struct jm_cell *c, enum jm_kept what);

/* In a slab a matrix begins at a multiple of so many bytes, a line of a GPU's memory; a vector: */
#define JM_UPDATE_ALIGN	 128
#define JM_UPDATE_VECTOR 64

bool jm_update_trains(const struct jm_cell *c); /* a parameter with a gradient */
/* Elements of the input with the numbers of a step. */
int64_t jm_update_numbers(const struct jm_graph *g, const struct jm_adamw *how);
struct jm_tensor *jm_update_flat(
	struct jm_graph *g, enum jm_class class, enum jm_dtype type, int64_t n, const char *name);
/* A flat tensor "adamw.WHAT" (or adam, sgd). */
struct jm_tensor *jm_update_state(struct jm_graph *g, enum jm_class class, enum jm_dtype type,
	enum jm_update kind, const char *what, int64_t n);
/* Appends the node of the update; weight decay applies to the first n_decay elements. v: NULL for
 * SGD. first: the number of its element 0, for random rounding. */
struct jm_node *jm_update_node(struct jm_graph *g, const struct jm_adamw *how,
	struct jm_tensor *const in[4], struct jm_tensor *const out[4], int64_t n_decay,
	int64_t first);
/* Is this kept with these settings? */
bool jm_update_wants(const struct jm_adamw *how, enum jm_kept what);
/* Appends the node of the mean e of the parameters p; in: p, numbers of the step, norm. */
void jm_update_mean_node(struct jm_graph *g, const struct jm_adamw *how,
	struct jm_tensor *const in[3], struct jm_tensor *const out[1]);
/* Of ranks that share a model, before the norm; NULL = there are none: gradients of the own rows
 * are summed, and those of two stages (pipeline_parallel.h) added. */
void jm_update_sum_parts(struct jm_graph *g, struct jm_tensor *summed, struct jm_tensor *tied);
/*
 * After jm_update_sum_parts: gradients of whole parameters, or NULL, become those of the first of
 * the ranks that share the stage. Each of these has the sum over its own group of ranks, and groups
 * of three or more may add in different orders (NCCL).
 */
void jm_update_from_first(struct jm_graph *g, struct jm_tensor *grads);
/* The global norm from what each of these ranks counts. */
void jm_update_join_norms(struct jm_graph *g, struct jm_tensor *own, struct jm_tensor *norm);

#endif
