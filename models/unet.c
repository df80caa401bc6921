/* SPDX-License-Identifier: Apache-2.0 */
/*
 * U-Net that removes noise from latents of pictures, which a caption describes (Rombach et al.,
 * arXiv 2112.10752), as Stable Diffusion 2 and diffusers' UNet2DConditionModel have it, with the
 * names of the latter: four levels of `hidden` times 1, 2, 4 and 4 channels; attention to the own
 * pixels and to the caption on all but the last one, as linear layers on rows of pixels; one wave
 * embedding of the step of noise, added in every residual block. Trained from latents and states
 * of the text encoder; the loss is the mean squared difference to the noise or to v (arXiv
 * 2202.00512). Start values: LeCun et al.; no layer starts at zero, so that every gradient is alive
 * from the first step on.
 */
#include "unet.h"
#include "transformer.h"
#include "engine/graph/layer.h"
#include "engine/graph/layer_image.h"
#include "engine/graph/layer_noise.h"

#include <stdio.h>

#define LEVELS	     4
#define LAYERS_MOST  16
#define SKIPS	     (LEVELS * (LAYERS_MOST + 1))
#define WAVE_TIMES   4 /* the embedding of the step has so many times `hidden` channels */
#define FFN_TIMES    4
#define EPS	     1e-5
#define EPS_OF_IMAGE 1e-6 /* of the group norm before attention */
#define BETA_FIRST   0.00085
#define BETA_LAST    0.012
#define INIT	     JM_INIT_LECUN_NORMAL
#define SD2                                                                                        \
	"arXiv 2112.10752, Stability-AI/stablediffusion "                                          \
	"configs/stable-diffusion/v2-inference.yaml"

const char *const jm_unet_goals[] = {"epsilon", "v", NULL};
static const int times[LEVELS] = {1, 2, 4, 4};

static const struct jm_option options[] = {
	JM_UNET_OPTIONS,
	JM_MODEL_INT(struct jm_unet, latent, "latent", 100000,
		"height and width of a latent: an eighth of the picture's"),
	{0},
};

static const struct jm_preset presets[] = {
	{"unet-sd2", "U-Net of Stable Diffusion 2, 512 x 512 pixels",
		"hidden=320 layers=2 head-width=64 norm-groups=32 latent=64 latent-channels=4 "
		"caption=77 caption-width=1024 noise-steps=1000 predict=epsilon",
		865910724, SD2, "train"},
	{0},
};

struct unet {
	struct jm_graph *g;
	int64_t hidden, layers, head, latent_channels;
	int groups;
	struct jm_tensor *wave, *caption;
	/* what the way up reads again, last in first out; channels also after an error */
	struct jm_tensor *skip[SKIPS];
	int n_skips;
};

struct jm_unet jm_unet_dims(const struct jm_values *v)
{
	struct jm_unet d = {0};

	JM_FILL(v, &d);
	return d;
}

int jm_unet_complete(struct jm_values *v, struct jm_err *err)
{
	static const struct {
		const char *name;
		int64_t value;
	} dims[] = {{"layers", 2}, {"head-width", 64}, {"norm-groups", 32}, {"latent-channels", 4},
		{"caption", 77}, {"caption-width", 1024}, {"noise-steps", 1000}};
	int code = 0;

	for (size_t i = 0; i < sizeof(dims) / sizeof(*dims) && !code; i++)
		code = jm_dim_default(v, dims[i].name, dims[i].value, err);
	return code || jm_values_text(v, "predict")
		       ? code
		       : jm_values_set(v, "predict", jm_unet_goals[0], err);
}

static int unet_complete(struct jm_values *v, int64_t seq, struct jm_err *err)
{
	int code = jm_unet_complete(v, err);

	(void)seq;
	return code ? code : jm_dim_default(v, "latent", 64, err);
}

int jm_unet_check(const struct jm_values *v, int64_t latent, struct jm_err *err)
{
	const struct jm_unet d = jm_unet_dims(v);
	int64_t unit = (int64_t)1 << (LEVELS - 1);

	if (d.hidden % 2 || d.hidden % d.head || d.hidden % d.groups)
		return jm_err_set(err, JM_ERANGE,
			"%lld channels of the first level are not a multiple of 2, of --head-width "
			"%lld and of --norm-groups %lld; change one of them.",
			(long long)d.hidden, (long long)d.head, (long long)d.groups);
	if (latent % unit)
		return jm_err_set(err, JM_ERANGE,
			"A latent of %lld x %lld cannot be halved %d times; give a --latent that "
			"is "
			"a multiple of %lld.",
			(long long)latent, (long long)latent, LEVELS - 1, (long long)unit);
	return 0;
}

static int unet_default_seq(const struct jm_values *v, int64_t *ret, struct jm_err *err)
{
	int code = jm_unet_check(v, jm_unet_dims(v).latent, err);

	if (!code)
		*ret = 1;
	return code;
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* NULL after an error of the graph, after which every function does nothing */
static int64_t channels(const struct jm_tensor *x)
{
	return x ? x->dim[1] : 1;
}

/* Windows of an odd size that keep the size of the image, but for the stride. */
static struct jm_tensor *conv(const struct unet *u, struct jm_tensor *x, int64_t to, int window,
	int stride, const char *name)
{
	char weight[JM_NAME_BYTES], bias[JM_NAME_BYTES];
	struct jm_tensor *w;

	snprintf(weight, sizeof(weight), "%s.weight", name);
	snprintf(bias, sizeof(bias), "%s.bias", name);
	w = jm_graph_filter(u->g, weight, INIT, to, channels(x), window, window);
	return jm_graph_conv(u->g, x, w, jm_graph_vector(u->g, bias, JM_INIT_ZERO, to),
		&(struct jm_window){.stride = stride, .pad = window / 2});
}

static struct jm_tensor *norm(
	const struct unet *u, struct jm_tensor *x, bool silu, double eps, const char *name)
{
	return jm_graph_groupnorm(u->g, x, u->groups, silu, eps, name);
}

/* A residual block of the current scope. */
static struct jm_tensor *resnet(const struct unet *u, struct jm_tensor *x, int64_t to)
{
	struct jm_graph *g = u->g;
	struct jm_tensor *h = conv(u, norm(u, x, true, EPS, "norm1"), to, 3, 1, "conv1");
	struct jm_tensor *wave = conv(u, u->wave, to, 1, 1, "time_emb_proj");

	if (!h)
		return NULL;
	h = jm_graph_add(g, h, jm_graph_upsample(g, wave, (int)h->dim[2]));
	h = conv(u, norm(u, h, true, EPS, "norm2"), to, 3, 1, "conv2");
	if (channels(x) != to)
		x = conv(u, x, to, 1, 1, "conv_shortcut");
	return jm_graph_add(g, x, h);
}

static struct jm_tensor *linear(
	const struct unet *u, struct jm_tensor *x, int64_t from, int64_t to, const char *name)
{
	return jm_graph_linear(u->g, x, jm_graph_matrix(u->g, name, INIT, to, from), NULL);
}

#define BLOCK "transformer_blocks.0."

static struct jm_tensor *see_pixels(const struct unet *u, struct jm_tensor *x, int64_t width)
{
	int heads = (int)(width / u->head);
	struct jm_tensor *h = jm_transformer_norm(u->g, x, width, EPS, BLOCK "norm1");

	h = linear(u, h, width, 3 * width, BLOCK "attn1.qkv.weight");
	h = jm_graph_attention(u->g, h, heads, heads, false);
	return jm_transformer_linear(u->g, h, width, width, INIT, BLOCK "attn1.to_out");
}

static struct jm_tensor *see_caption(const struct unet *u, struct jm_tensor *x, int64_t width)
{
	struct jm_tensor *h = jm_transformer_norm(u->g, x, width, EPS, BLOCK "norm2"), *k, *v;
	int64_t from = u->caption ? u->caption->dim[2] : 1;

	h = linear(u, h, width, width, BLOCK "attn2.to_q.weight");
	k = linear(u, u->caption, from, width, BLOCK "attn2.to_k.weight");
	v = linear(u, u->caption, from, width, BLOCK "attn2.to_v.weight");
	h = jm_graph_attention_apart(u->g, h, k, v, (int)(width / u->head));
	return jm_transformer_linear(u->g, h, width, width, INIT, BLOCK "attn2.to_out");
}

static struct jm_tensor *feed_forward(const struct unet *u, struct jm_tensor *x, int64_t width)
{
	struct jm_tensor *h = jm_transformer_norm(u->g, x, width, EPS, BLOCK "norm3");

	h = jm_transformer_linear(u->g, h, width, 2 * FFN_TIMES * width, INIT, BLOCK "ff.in");
	h = jm_graph_geglu(u->g, h);
	return jm_transformer_linear(u->g, h, FFN_TIMES * width, width, INIT, BLOCK "ff.out");
}

/* A transformer's block over the pixels, in the current scope. */
static struct jm_tensor *attention(const struct unet *u, struct jm_tensor *x)
{
	struct jm_graph *g = u->g;
	int64_t width = channels(x);
	struct jm_tensor *rows;

	if (!x)
		return NULL;
	rows = jm_graph_rows_of_image(g, norm(u, x, false, EPS_OF_IMAGE, "norm"));
	rows = jm_transformer_linear(g, rows, width, width, INIT, "proj_in");
	rows = jm_graph_add(g, rows, see_pixels(u, rows, width));
	rows = jm_graph_add(g, rows, see_caption(u, rows, width));
	rows = jm_graph_add(g, rows, feed_forward(u, rows, width));
	rows = jm_transformer_linear(g, rows, width, width, INIT, "proj_out");
	return jm_graph_add(g, x, jm_graph_image_of_rows(g, rows, x->dim[2], x->dim[3]));
}

/* ---- the network ----------------------------------------------------------------------------- */

/* Block j of a part of the network; the last level has no attention. */
static struct jm_tensor *block(const struct unet *u, struct jm_tensor *x, int64_t to, bool attends,
	const char *part, int64_t j)
{
	jm_graph_scope(u->g, "%s.resnets.%lld.", part, (long long)j);
	x = resnet(u, x, to);
	if (!attends)
		return x;
	jm_graph_scope(u->g, "%s.attentions.%lld.", part, (long long)j);
	return attention(u, x);
}

static struct jm_tensor *down(struct unet *u, struct jm_tensor *x)
{
	char part[32];

	u->skip[u->n_skips++] = x;
	for (int i = 0; i < LEVELS; i++) {
		int64_t to = u->hidden * times[i];

		snprintf(part, sizeof(part), "down_blocks.%d", i);
		for (int64_t j = 0; j < u->layers; j++) {
			x = block(u, x, to, i < LEVELS - 1, part, j);
			u->skip[u->n_skips++] = x;
		}
		if (i == LEVELS - 1)
			break;
		jm_graph_scope(u->g, "%s.downsamplers.0.", part);
		x = conv(u, x, to, 3, 2, "conv");
		u->skip[u->n_skips++] = x;
	}
	return x;
}

static struct jm_tensor *middle(const struct unet *u, struct jm_tensor *x)
{
	x = block(u, x, channels(x), true, "mid_block", 0);
	return block(u, x, channels(x), false, "mid_block", 1);
}

static struct jm_tensor *up(struct unet *u, struct jm_tensor *x)
{
	char part[32];

	for (int i = 0; i < LEVELS; i++) {
		int64_t to = u->hidden * times[LEVELS - 1 - i];

		snprintf(part, sizeof(part), "up_blocks.%d", i);
		for (int64_t j = 0; j <= u->layers; j++) {
			struct jm_tensor *both[] = {x, u->skip[--u->n_skips]};

			jm_graph_scope(u->g, "%s.resnets.%lld.", part, (long long)j);
			x = jm_graph_concat(u->g, 2, both, 1);
			x = block(u, x, to, i > 0, part, j);
		}
		if (i == LEVELS - 1)
			break;
		jm_graph_scope(u->g, "%s.upsamplers.0.", part);
		x = conv(u, jm_graph_upsample(u->g, x, 2), to, 3, 1, "conv");
	}
	return x;
}

/* The embedding of the step of noise, after the activation that each block applies to it. */
static struct jm_tensor *embed(const struct unet *u, struct jm_tensor *at)
{
	int64_t width = WAVE_TIMES * u->hidden;
	struct jm_tensor *x = jm_graph_step_waves(u->g, at, u->hidden);

	x = jm_graph_silu(u->g, conv(u, x, width, 1, 1, "time_embedding.linear_1"));
	return jm_graph_silu(u->g, conv(u, x, width, 1, 1, "time_embedding.linear_2"));
}

static struct jm_tensor *network(struct unet *u, struct jm_tensor *x, struct jm_tensor *at)
{
	x = conv(u, x, u->hidden, 3, 1, "conv_in");
	u->wave = embed(u, at);
	x = up(u, middle(u, down(u, x)));
	jm_graph_scope(u->g, "%s", "");
	return conv(
		u, norm(u, x, true, EPS, "conv_norm_out"), u->latent_channels, 3, 1, "conv_out");
}

struct jm_tensor *jm_unet_loss(struct jm_graph *g, const char *prefix, const struct jm_values *v,
	struct jm_tensor *x, struct jm_tensor *caption, const struct jm_unet_chance *chance)
{
	const struct jm_unet d = jm_unet_dims(v);
	struct unet u = {.g = g,
		.hidden = d.hidden,
		.layers = d.layers,
		.head = d.head,
		.groups = (int)d.groups,
		.latent_channels = d.latent_channels,
		.caption = caption};
	const struct jm_noise how = {.steps = d.noise_steps,
		.first = BETA_FIRST,
		.last = BETA_LAST,
		.velocity = d.predict == JM_UNET_V};
	struct jm_tensor *target = NULL;

	x = jm_graph_add_noise(g, x, chance->noise, chance->step, &how, &target);
	jm_graph_part(g, prefix);
	x = network(&u, x, chance->step);
	jm_graph_part(g, "");
	return jm_graph_mse(g, x, target);
}

struct jm_unet_chance jm_unet_inputs(
	struct jm_graph *g, const struct jm_values *v, int64_t batch, int64_t latent)
{
	const int64_t image[] = {batch, jm_unet_dims(v).latent_channels, latent, latent};
	struct jm_unet_chance c = {.noise = jm_graph_input(g, "noise", g->compute, 4, image)};

	c.step = jm_graph_input(g, "step", JM_I32, 1, &batch);
	return c;
}

static int unet_build(struct jm_graph *g, const struct jm_values *v, int64_t batch, int64_t seq,
	struct jm_tensor **ret_loss, struct jm_err *err)
{
	const struct jm_unet d = jm_unet_dims(v);
	int64_t side = d.latent;
	const int64_t image[] = {batch, d.latent_channels, side, side};
	const int64_t states[] = {batch, d.caption, d.caption_width};
	struct jm_tensor *x = jm_graph_input(g, "latent", g->compute, 4, image);
	struct jm_unet_chance chance = jm_unet_inputs(g, v, batch, side);
	struct jm_tensor *caption = jm_graph_input(g, "caption", g->compute, 3, states);

	(void)seq;
	(void)err;
	*ret_loss = jm_unet_loss(g, "", v, x, caption, &chance);
	return 0;
}

static const struct jm_input inputs[] = {
	/* with three channels it may be the picture itself */
	{.name = "latent", .fill = JM_FILL_NORMAL, .field = "image", .colours = JM_COLOURS_SIGNED},
	{.name = "noise", .fill = JM_FILL_NORMAL},
	{.name = "step", .fill = JM_FILL_CLASS, .below = "noise-steps"},
	{.name = "caption", .fill = JM_FILL_NORMAL},
	{0},
};

/* Linear layers on an image of one pixel are filters here and matrices there. */
const struct jm_weight_name jm_unet_names[] = {
	{.own = "time_embedding.linear_*", .file = "time_embedding.linear_*", .flat = true},
	{.own = "*.time_emb_proj.*", .file = "*.time_emb_proj.*", .flat = true},
	{.own = "*.attn1.qkv.weight", .file = "*.attn1.to_q.weight"},
	{.own = "*.attn1.qkv.weight", .file = "*.attn1.to_k.weight"},
	{.own = "*.attn1.qkv.weight", .file = "*.attn1.to_v.weight"},
	{.own = "*.to_out.*", .file = "*.to_out.0.*"},
	{.own = "*.ff.in.*", .file = "*.ff.net.0.proj.*"},
	{.own = "*.ff.out.*", .file = "*.ff.net.2.*"},
	{0},
};

static const struct jm_weight_names weights[] = {{.of = "diffusers", .name = jm_unet_names}, {0}};

const struct jm_model jm_model_unet = {
	.name = "unet",
	.summary =
		"U-Net of Stable Diffusion: removes noise from latents of pictures with captions",
	.item = "image",
	.inputs = inputs,
	.options = options,
	.presets = presets,
	.weights = weights,
	.complete = unet_complete,
	.default_seq = unet_default_seq,
	.build = unet_build,
};
