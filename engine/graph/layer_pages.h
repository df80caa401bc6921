/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers of serving: a step over T rows, flat, of up to R requests whose keys and values are in
 * pages. Inference only, but for rows by number. Errors: as graph.h says.
 */
#ifndef JM_LAYER_PAGES_H
#define JM_LAYER_PAGES_H

#include "graph.h"

#define JM_PAGE_TOKENS 16

/* The size of a step. Programs of different `tokens` and equal other members share a cache. */
struct jm_step_shape {
	int64_t tokens, requests; /* T, R */
	int64_t pages;		  /* of the cache */
	int64_t pages_each;	  /* of a request, at most */
	bool samples;		  /* tokens are drawn by rules: inputs "rule" and "draw" */
	bool narrow_cache;	  /* keys and values are kept in e4m3; else in the compute type */
	bool keeps_logits;	  /* the host can read them: the scalar "logits" */
};

/* The operands that vary from step to step, which the host writes, and the shape. */
struct jm_flat {
	struct jm_step_shape shape;
	struct jm_tensor *ids;		      /* i32[1,T]: of what the host wrote or a step made */
	struct jm_tensor *position, *request; /* i32[T]; position below 0: the row is padding */
	struct jm_tensor *page;		      /* i32[R,pages_each] */
	struct jm_tensor
		*last; /* i32[R]: the row whose logits a request wants; any if it wants none */
};

/*
 * Declares the inputs "ids", "position", "request" and "last", and what programs that share a cache
 * have in common: the table "page", which the host writes, and the running state "token" i32[R],
 * which a step makes. In the input, an id below 0 is the token that the step before made of request
 * -1 - id.
 */
struct jm_flat jm_graph_flat(struct jm_graph *g, const struct jm_step_shape *shape);
/*
 * qkv c[1,T,(H+2G)D] -> c[1,T,H D]: rotates queries and keys, stores keys and values in the running
 * state "cache.keys" and "cache.values" (in the graph's scope), and attends causally to all that is
 * stored of the row's request. wanted_alone: -> c[R,H D], of the rows in "last".
 */
struct jm_tensor *jm_graph_attention_pages(struct jm_graph *g, struct jm_tensor *qkv,
	const struct jm_flat *flat, int heads, int kv_heads, struct jm_rotary rotary,
	bool wanted_alone);
/* x[..,C] -> y[R,C], the rows of x whose numbers `at` i32[R] has; of a vector, whose rows are its
 * elements, y[R]. In training no two numbers are equal. */
struct jm_tensor *jm_graph_rows(struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *at);
/* The numbers i32[most] of the rows of target i32[..] that are 0 or more, at most so many, filled
 * up with others; *target becomes the target of each. */
struct jm_tensor *jm_graph_wanted_rows(struct jm_graph *g, struct jm_tensor **target, int64_t most);
/*
 * logits[R,V] -> the state "token" of jm_graph_flat: the largest of the first `classes` (0: all),
 * or, with draws, one by the inputs "rule" f32[R,3] and "draw" i32[R,2] of op sample, which it
 * declares.
 */
struct jm_tensor *jm_graph_sample(
	struct jm_graph *g, struct jm_tensor *logits, int64_t classes, bool draws);

#endif
