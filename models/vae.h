/* SPDX-License-Identifier: Apache-2.0 */
/* The encoder of an autoencoder that makes small latents of pictures (diffusers' AutoencoderKL). */
#ifndef JM_VAE_H
#define JM_VAE_H

#include "engine/graph/model.h"

#define JM_VAE_SHRINKS 8 /* a latent has this share of the picture's height and width */

struct jm_vae {
	int64_t hidden;		 /* channels of the first level */
	int64_t layers;		 /* residual blocks of a level */
	int64_t latent_channels; /* half of the channels of the moments */
	int groups;		 /* divide hidden */
};

/*
 * image [B,3,Y,X] -> the moments [B, 2 latent_channels, Y/8, X/8]: means, then logarithms of
 * variances. Parameters have the names of diffusers but for the rows of the tables below.
 */
struct jm_tensor *jm_vae_encode(
	struct jm_graph *g, const char *prefix, const struct jm_vae *how, struct jm_tensor *image);
/* Of diffusers, and as its files had them before version 0.18. */
extern const struct jm_weight_name jm_vae_names[], jm_vae_old_names[];

#endif
