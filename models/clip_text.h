/* SPDX-License-Identifier: Apache-2.0 */
/* The text encoder of CLIP (Radford et al., arXiv 2103.00020), as transformers' CLIPTextModel has
 * it. */
#ifndef JM_CLIP_TEXT_H
#define JM_CLIP_TEXT_H

#include "engine/graph/model.h"

struct jm_clip_text {
	int64_t layers, hidden, ffn, vocab, context;
	int heads; /* divide hidden */
	/* of the feed-forward parts */
	struct jm_tensor *(*activation)(struct jm_graph *g, struct jm_tensor *x);
};

/* ids i32[B,T], T at most context -> the states after the last norm [B,T,hidden]; each token sees
 * those before it. */
struct jm_tensor *jm_clip_text(struct jm_graph *g, const char *prefix,
	const struct jm_clip_text *how, struct jm_tensor *ids);
extern const struct jm_weight_name jm_clip_text_names[]; /* of transformers */

#endif
