/* SPDX-License-Identifier: Apache-2.0 */
/* What transformers calls the blocks of CLIP's two encoders. */
#ifndef JM_CLIP_NAMES_H
#define JM_CLIP_NAMES_H

#include "engine/graph/model.h"

/* Rows of jm_weight_name; model: the text before "encoder.". */
#define JM_CLIP_BLOCK(model, own_name, name)                                                       \
	{                                                                                          \
		.own = "h*." own_name, .file = model "encoder.layers.*." name                      \
	}
#define JM_CLIP_BLOCKS(model)                                                                      \
	JM_CLIP_BLOCK(model, "ln_1.*", "layer_norm1.*"),                                           \
		JM_CLIP_BLOCK(model, "attn.qkv.*", "self_attn.q_proj.*"),                          \
		JM_CLIP_BLOCK(model, "attn.qkv.*", "self_attn.k_proj.*"),                          \
		JM_CLIP_BLOCK(model, "attn.qkv.*", "self_attn.v_proj.*"),                          \
		JM_CLIP_BLOCK(model, "attn.out.*", "self_attn.out_proj.*"),                        \
		JM_CLIP_BLOCK(model, "ln_2.*", "layer_norm2.*"),                                   \
		JM_CLIP_BLOCK(model, "mlp.in.*", "mlp.fc1.*"),                                     \
		JM_CLIP_BLOCK(model, "mlp.out.*", "mlp.fc2.*")

#endif
