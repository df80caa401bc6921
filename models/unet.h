/* SPDX-License-Identifier: Apache-2.0 */
/* The U-Net of Stable Diffusion, for models that begin with something else than latents. */
#ifndef JM_UNET_H
#define JM_UNET_H

#include "engine/graph/model.h"

extern const char *const jm_unet_goals[];

struct jm_unet {
	int64_t hidden, layers, head, groups, latent_channels, caption, caption_width, noise_steps;
	int64_t latent;				     /* height and width, of unet alone */
	enum { JM_UNET_EPSILON, JM_UNET_V } predict; /* in the order of jm_unet_goals */
};
struct jm_unet jm_unet_dims(const struct jm_values *v);

/* The options of the network, but for the size of its latents. */
#define JM_UNET_OPTIONS                                                                            \
	JM_MODEL_INT(struct jm_unet, hidden, "hidden", 1000000, "channels of the first level"),    \
		JM_MODEL_INT(struct jm_unet, layers, "layers", 16,                                 \
			"residual blocks of a level on the way down"),                             \
		JM_MODEL_INT(                                                                      \
			struct jm_unet, head, "head-width", 100000, "width of an attention head"), \
		JM_MODEL_INT(struct jm_unet, groups, "norm-groups", 1000000,                       \
			"groups of channels that are normalised together"),                        \
		JM_MODEL_INT(struct jm_unet, latent_channels, "latent-channels", 10000,            \
			"channels of a latent"),                                                   \
		JM_MODEL_INT(struct jm_unet, caption, "caption", 1000000, "tokens of a caption"),  \
		JM_MODEL_INT(struct jm_unet, caption_width, "caption-width", 1000000,              \
			"width of a token's state in the text encoder"),                           \
		JM_MODEL_INT(struct jm_unet, noise_steps, "noise-steps", 1000000,                  \
			"steps from a sample to noise"),                                           \
	{                                                                                          \
		.name = "predict", JM_BIND(JM_CHOICE, struct jm_unet, predict),                    \
		.choices = jm_unet_goals,                                                          \
		.help = "what the network learns: epsilon (the noise) or v"                        \
	}

/* What each micro-step draws: noise [B,C,Y,X] and a step of noise i32[B] for each latent. */
struct jm_unet_chance {
	struct jm_tensor *noise, *step;
};
/* The inputs "noise" and "step" for latents of this height and width. */
struct jm_unet_chance jm_unet_inputs(
	struct jm_graph *g, const struct jm_values *v, int64_t batch, int64_t latent);

/* Sets the options that are not set, but for "hidden". */
int jm_unet_complete(struct jm_values *v, struct jm_err *err);
/* JM_ERANGE: the dimensions do not fit each other. */
int jm_unet_check(const struct jm_values *v, int64_t latent, struct jm_err *err);
/* The loss of the network for latents x [B,C,Y,X] and states of captions [B,T,W]. Behind the prefix
 * parameters have the names of diffusers' UNet2DConditionModel, but for rows of jm_unet_names. */
struct jm_tensor *jm_unet_loss(struct jm_graph *g, const char *prefix, const struct jm_values *v,
	struct jm_tensor *x, struct jm_tensor *caption, const struct jm_unet_chance *chance);
extern const struct jm_weight_name jm_unet_names[];

#endif
