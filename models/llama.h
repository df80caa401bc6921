/* SPDX-License-Identifier: Apache-2.0 */
/* The network of LLaMA, for models that begin with something else than tokens alone. */
#ifndef JM_LLAMA_H
#define JM_LLAMA_H

#include "engine/graph/model.h"
#include "llama_dims.h"

extern const char *const jm_llama_yes_no[];

/* As `complete` and `default_seq` of a model. */
int jm_llama_complete(struct jm_values *v, int64_t seq, struct jm_err *err);
int jm_llama_default_seq(const struct jm_values *v, int64_t *ret, struct jm_err *err);

/* The table of the tokens, for embeddings. */
struct jm_tensor *jm_llama_table(
	struct jm_graph *g, const char *prefix, const struct jm_llama *how);
/* The loss of the tokens target i32[B,S] behind embeddings x [B,S,hidden]. table: that of the same
 * prefix. most: at most so many of all targets are 0 or more, and the loss ignores the others; 0:
 * all are. */
struct jm_tensor *jm_llama_loss(struct jm_graph *g, const char *prefix, const struct jm_llama *how,
	struct jm_tensor *x, struct jm_tensor *table, struct jm_tensor *target, int64_t most);
extern const struct jm_weight_name jm_llama_names[]; /* of transformers' LlamaForCausalLM */

#endif
