/* SPDX-License-Identifier: Apache-2.0 */
/* The image encoder of CLIP (Radford et al., arXiv 2103.00020), as transformers' CLIPVisionModel
 * has it. */
#ifndef JM_CLIP_VISION_H
#define JM_CLIP_VISION_H

#include "engine/graph/model.h"

struct jm_clip_vision {
	int64_t layers, hidden, ffn;
	int64_t image, patch; /* pixels; patch divides image */
	int heads;	      /* divide hidden */
};

/* JM_ERANGE: the dimensions do not fit each other. */
int jm_clip_vision_check(const struct jm_clip_vision *how, struct jm_err *err);
/* image [B,3,N,N] -> the states of its patches after the last block [B,P,hidden], P = (N /
 * patch)^2, in the compute type. The encoder cannot be trained. */
struct jm_tensor *jm_clip_vision(struct jm_graph *g, const char *prefix,
	const struct jm_clip_vision *how, struct jm_tensor *image);
extern const struct jm_weight_name jm_clip_vision_names[]; /* of transformers */

#endif
