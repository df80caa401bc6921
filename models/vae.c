/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Four levels of `hidden` times 1, 2, 4 and 4 channels, each but the last halved by a convolution
 * that pads below and to the right only; attention with one head in the middle (Rombach et al.,
 * arXiv 2112.10752, as diffusers' AutoencoderKL has its encoder and quant_conv).
 */
#include "vae.h"
#include "transformer.h"
#include "engine/graph/layer.h"
#include "engine/graph/layer_image.h"

#include <stdio.h>

#define LEVELS 4
#define EPS    1e-6
#define INIT   JM_INIT_LECUN_NORMAL

static const int times[LEVELS] = {1, 2, 4, 4};

struct vae {
	struct jm_graph *g;
	int groups;
};

/* NULL after an error of the graph, after which every function does nothing */
static int64_t channels(const struct jm_tensor *x)
{
	return x ? x->dim[1] : 1;
}

static struct jm_tensor *conv(const struct vae *a, struct jm_tensor *x, int64_t to, int size,
	const struct jm_window *how, const char *name)
{
	char weight[JM_NAME_BYTES], bias[JM_NAME_BYTES];
	struct jm_tensor *w;

	snprintf(weight, sizeof(weight), "%s.weight", name);
	snprintf(bias, sizeof(bias), "%s.bias", name);
	w = jm_graph_filter(a->g, weight, INIT, to, channels(x), size, size);
	return jm_graph_conv(a->g, x, w, jm_graph_vector(a->g, bias, JM_INIT_ZERO, to), how);
}

/* Keeps the size of the image. */
static struct jm_tensor *same(
	const struct vae *a, struct jm_tensor *x, int64_t to, int size, const char *name)
{
	return conv(a, x, to, size, &(struct jm_window){.same = true}, name);
}

static struct jm_tensor *norm(const struct vae *a, struct jm_tensor *x, bool silu, const char *name)
{
	return jm_graph_groupnorm(a->g, x, a->groups, silu, EPS, name);
}

/* A residual block of the current scope. */
static struct jm_tensor *resnet(const struct vae *a, struct jm_tensor *x, int64_t to)
{
	struct jm_tensor *h = same(a, norm(a, x, true, "norm1"), to, 3, "conv1");

	h = same(a, norm(a, h, true, "norm2"), to, 3, "conv2");
	if (channels(x) != to)
		x = same(a, x, to, 1, "conv_shortcut");
	return jm_graph_add(a->g, x, h);
}

/* Every pixel sees all others, as one head. */
static struct jm_tensor *attention(const struct vae *a, struct jm_tensor *x)
{
	struct jm_graph *g = a->g;
	int64_t width = channels(x);
	struct jm_tensor *h;

	if (!x)
		return NULL;
	h = jm_graph_rows_of_image(g, norm(a, x, false, "group_norm"));
	h = jm_transformer_linear(g, h, width, 3 * width, INIT, "qkv");
	h = jm_graph_attention(g, h, 1, 1, false);
	h = jm_transformer_linear(g, h, width, width, INIT, "to_out");
	return jm_graph_add(g, x, jm_graph_image_of_rows(g, h, x->dim[2], x->dim[3]));
}

static struct jm_tensor *down(const struct vae *a, const struct jm_vae *how, struct jm_tensor *x)
{
	const struct jm_window half = {.stride = 2, .more = 1};

	for (int i = 0; i < LEVELS; i++) {
		int64_t to = how->hidden * times[i];

		for (int64_t j = 0; j < how->layers; j++) {
			jm_graph_scope(
				a->g, "encoder.down_blocks.%d.resnets.%lld.", i, (long long)j);
			x = resnet(a, x, to);
		}
		if (i == LEVELS - 1)
			break;
		jm_graph_scope(a->g, "encoder.down_blocks.%d.downsamplers.0.", i);
		x = conv(a, x, to, 3, &half, "conv");
	}
	return x;
}

static struct jm_tensor *middle(const struct vae *a, struct jm_tensor *x)
{
	jm_graph_scope(a->g, "%s", "encoder.mid_block.resnets.0.");
	x = resnet(a, x, channels(x));
	jm_graph_scope(a->g, "%s", "encoder.mid_block.attentions.0.");
	x = attention(a, x);
	jm_graph_scope(a->g, "%s", "encoder.mid_block.resnets.1.");
	return resnet(a, x, channels(x));
}

struct jm_tensor *jm_vae_encode(
	struct jm_graph *g, const char *prefix, const struct jm_vae *how, struct jm_tensor *image)
{
	const struct vae a = {g, how->groups};
	struct jm_tensor *x;
	int64_t moments = 2 * how->latent_channels;

	jm_graph_part(g, prefix);
	x = same(&a, image, how->hidden, 3, "encoder.conv_in");
	x = middle(&a, down(&a, how, x));
	jm_graph_scope(g, "%s", "");
	x = norm(&a, x, true, "encoder.conv_norm_out");
	x = same(&a, x, moments, 3, "encoder.conv_out");
	x = same(&a, x, moments, 1, "quant_conv");
	jm_graph_part(g, "");
	return x;
}

const struct jm_weight_name jm_vae_names[] = {
	{.own = "*.qkv.*", .file = "*.to_q.*"},
	{.own = "*.qkv.*", .file = "*.to_k.*"},
	{.own = "*.qkv.*", .file = "*.to_v.*"},
	{.own = "*.to_out.*", .file = "*.to_out.0.*"},
	{0},
};
const struct jm_weight_name jm_vae_old_names[] = {
	{.own = "*.qkv.*", .file = "*.query.*"},
	{.own = "*.qkv.*", .file = "*.key.*"},
	{.own = "*.qkv.*", .file = "*.value.*"},
	{.own = "*.to_out.*", .file = "*.proj_attn.*"},
	{0},
};
