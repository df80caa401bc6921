/* SPDX-License-Identifier: Apache-2.0 */
/* The dimensions of a LLaMA, and the options that they are. */
#ifndef JM_LLAMA_DIMS_H
#define JM_LLAMA_DIMS_H

#include "engine/graph/model.h"

struct jm_llama {
	int64_t layers, hidden, ffn, vocab, context, head;
	int heads, kv_heads;
	struct jm_rotary rotary;
	double eps;
	enum { JM_LLAMA_TIED, JM_LLAMA_UNTIED } tied; /* in the order of jm_llama_yes_no */
};

/* Bound to a struct jm_llama. */
#define JM_LLAMA_OPTIONS                                                                           \
	JM_MODEL_INT(struct jm_llama, layers, "layers", 4000, "blocks of the network"),            \
		JM_MODEL_INT(struct jm_llama, hidden, "hidden", 10000000,                          \
			"width of the residual stream"),                                           \
		JM_MODEL_INT(struct jm_llama, heads, "heads", 100000, "attention heads"),          \
		JM_MODEL_INT(struct jm_llama, kv_heads, "kv-heads", 100000,                        \
			"key and value heads, each shared by several heads"),                      \
		JM_MODEL_INT(struct jm_llama, ffn, "ffn", 100000000,                               \
			"inner width of the feed-forward part"),                                   \
		JM_MODEL_INT(                                                                      \
			struct jm_llama, vocab, "vocab", 100000000, "tokens in the vocabulary"),   \
		JM_MODEL_INT(struct jm_llama, context, "context", 100000000,                       \
			"longest sequence the model is made for"),                                 \
		JM_MODEL_INT(struct jm_llama, head, "head-width", 100000,                          \
			"width of a head; without it hidden / heads"),                             \
		JM_MODEL_REAL(struct jm_llama, rotary.theta, "theta", 1, 1e9,                      \
			"base of the rotary angles"),                                              \
		JM_MODEL_REAL(struct jm_llama, rotary.factor, "rope-factor", 1, 1e6,               \
			"how many times slower the slow rotary angles turn (Llama 3.1); 1 = not "  \
			"slower"),                                                                 \
		JM_MODEL_REAL(struct jm_llama, rotary.low, "rope-low", 1e-6, 1e6,                  \
			"angles that turn less often than this in --rope-context are the slow "    \
			"ones"),                                                                   \
		JM_MODEL_REAL(struct jm_llama, rotary.high, "rope-high", 1e-6, 1e6,                \
			"angles that turn more often than this in --rope-context keep their "      \
			"speed"),                                                                  \
		JM_MODEL_INT(struct jm_llama, rotary.context, "rope-context", 100000000,           \
			"the context before the angles were made slower, in tokens"),              \
		JM_MODEL_REAL(struct jm_llama, eps, "norm-eps", 1e-12, 1,                          \
			"what the norms add to the mean of the squares"),                          \
	{                                                                                          \
		.name = "tied", JM_BIND(JM_CHOICE, struct jm_llama, tied),                         \
		.choices = jm_llama_yes_no,                                                        \
		.help = "yes: the output has the table of the tokens, no: a table of its own"      \
	}

static inline struct jm_llama jm_llama_dims(const struct jm_values *v)
{
	struct jm_llama d = {0};

	JM_FILL(v, &d);
	return d;
}

#endif
