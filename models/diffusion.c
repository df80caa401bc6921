/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stable Diffusion 2 from pictures and the tokens of their captions: the U-Net of unet.c is
 * trained, the encoders of pictures and captions are frozen. A latent is a sample of the moments
 * that the encoder gives, times the factor 0.18215, by which its variance is about 1 (Rombach et
 * al., arXiv 2112.10752, section G.1).
 */
#include "clip_text.h"
#include "transformer.h"
#include "unet.h"
#include "vae.h"
#include "engine/graph/layer.h"
#include "engine/graph/layer_noise.h"

#define FFN_TIMES 4
#define FACTOR	  0.18215
#define SD2                                                                                        \
	"arXiv 2112.10752, Stability-AI/stablediffusion "                                          \
	"configs/stable-diffusion/v2-inference.yaml"

struct dims {
	int64_t image; /* pixels of a side */
	int64_t vae_hidden, vae_layers, text_layers, text_heads, vocab;
};
_Static_assert(sizeof(struct dims) != sizeof(struct jm_unet), "rows of two structs");

static const struct jm_option options[] = {
	JM_UNET_OPTIONS,
	JM_MODEL_INT(
		struct dims, image, "image", 100000, "height and width of an image, in pixels"),
	JM_MODEL_INT(struct dims, vae_hidden, "vae-hidden", 1000000,
		"channels of the image encoder's first level"),
	JM_MODEL_INT(struct dims, vae_layers, "vae-layers", 100,
		"residual blocks of a level of the image encoder"),
	JM_MODEL_INT(struct dims, text_layers, "text-layers", 4000, "blocks of the text encoder"),
	JM_MODEL_INT(struct dims, text_heads, "text-heads", 100000,
		"attention heads of the text encoder"),
	JM_MODEL_INT(struct dims, vocab, "vocab", 100000000, "tokens in the vocabulary"),
	{0},
};

static const struct jm_preset presets[] = {
	{"sd2", "Stable Diffusion 2 from pixels, 512 x 512",
		"hidden=320 layers=2 head-width=64 norm-groups=32 latent-channels=4 caption=77 "
		"caption-width=1024 noise-steps=1000 predict=epsilon image=512 vae-hidden=128 "
		"vae-layers=2 text-layers=23 text-heads=16 vocab=49408",
		865910724 + 34163664 + 340387840, SD2, "train"},
	{0},
};

static struct dims dims_of(const struct jm_values *v)
{
	struct dims d = {0};

	JM_FILL(v, &d);
	return d;
}

static int diffusion_complete(struct jm_values *v, int64_t seq, struct jm_err *err)
{
	static const struct {
		const char *name;
		int64_t value;
	} dims[] = {{"image", 512}, {"vae-hidden", 128}, {"vae-layers", 2}, {"text-layers", 23},
		{"text-heads", 16}, {"vocab", 49408}};
	int code = jm_unet_complete(v, err);

	(void)seq;
	for (size_t i = 0; i < sizeof(dims) / sizeof(*dims) && !code; i++)
		code = jm_dim_default(v, dims[i].name, dims[i].value, err);
	return code;
}

static int diffusion_default_seq(const struct jm_values *v, int64_t *ret, struct jm_err *err)
{
	const struct jm_unet unet = jm_unet_dims(v);
	const struct dims d = dims_of(v);
	int64_t image = d.image, unit = (int64_t)8 * JM_VAE_SHRINKS;
	int code;

	if (image % unit)
		return jm_err_set(err, JM_ERANGE,
			"An image of %lld x %lld has no latent that can be halved three times; "
			"give "
			"an --image that is a multiple of %lld.",
			(long long)image, (long long)image, (long long)unit);
	if (d.vae_hidden % unet.groups)
		return jm_err_set(err, JM_ERANGE,
			"%lld channels of the image encoder are not a multiple of --norm-groups "
			"%lld; change --vae-hidden.",
			(long long)d.vae_hidden, (long long)unet.groups);
	code = jm_transformer_check(unet.caption_width, d.text_heads, false, err);
	if (!code)
		code = jm_unet_check(v, image / JM_VAE_SHRINKS, err);
	if (!code)
		*ret = 1;
	return code;
}

static struct jm_tensor *encode_image(
	struct jm_graph *g, const struct jm_values *v, struct jm_tensor *image)
{
	const struct jm_unet unet = jm_unet_dims(v);
	const struct dims d = dims_of(v);
	const struct jm_vae vae = {.hidden = d.vae_hidden,
		.layers = d.vae_layers,
		.latent_channels = unet.latent_channels,
		.groups = (int)unet.groups};

	return jm_vae_encode(g, "vae.", &vae, image);
}

static struct jm_tensor *encode_caption(
	struct jm_graph *g, const struct jm_values *v, struct jm_tensor *ids)
{
	const struct jm_unet unet = jm_unet_dims(v);
	const struct dims d = dims_of(v);
	int64_t width = unet.caption_width;
	const struct jm_clip_text text = {.layers = d.text_layers,
		.hidden = width,
		.ffn = FFN_TIMES * width,
		.vocab = d.vocab,
		.context = unet.caption,
		.heads = (int)d.text_heads,
		.activation = jm_graph_gelu_erf};

	return jm_clip_text(g, "text_encoder.", &text, ids);
}

static int diffusion_build(struct jm_graph *g, const struct jm_values *v, int64_t batch,
	int64_t seq, struct jm_tensor **ret_loss, struct jm_err *err)
{
	const struct jm_unet unet = jm_unet_dims(v);
	int64_t side = dims_of(v).image, latent = side / JM_VAE_SHRINKS;
	const int64_t pixels[] = {batch, 3, side, side}, words[] = {batch, unet.caption};
	const int64_t small[] = {batch, unet.latent_channels, latent, latent};
	struct jm_tensor *x = jm_graph_input(g, "image", g->compute, 4, pixels);
	struct jm_tensor *caption = jm_graph_input(g, "caption", JM_I32, 2, words);
	struct jm_tensor *drawn = jm_graph_input(g, "drawn", g->compute, 4, small);
	struct jm_unet_chance chance = jm_unet_inputs(g, v, batch, latent);

	(void)seq;
	(void)err;
	x = jm_graph_draw_moments(g, encode_image(g, v, x), drawn, FACTOR);
	caption = encode_caption(g, v, caption);
	*ret_loss = jm_unet_loss(g, "unet.", v, x, caption, &chance);
	return 0;
}

static const struct jm_input inputs[] = {
	{.name = "image", .fill = JM_FILL_NORMAL, .field = "image", .colours = JM_COLOURS_SIGNED},
	{.name = "caption", .fill = JM_FILL_CLASS, .below = "vocab", .field = "caption"},
	{.name = "drawn", .fill = JM_FILL_NORMAL},
	{.name = "noise", .fill = JM_FILL_NORMAL},
	{.name = "step", .fill = JM_FILL_CLASS, .below = "noise-steps"},
	{0},
};

static const struct jm_weight_group of_diffusers[] = {
	{"unet.", "unet/", jm_unet_names},
	{"vae.", "vae/", jm_vae_names},
	{"text_encoder.", "text_encoder/", jm_clip_text_names},
	{0},
};
static const struct jm_weight_group of_old_diffusers[] = {
	{"unet.", "unet/", jm_unet_names},
	{"vae.", "vae/", jm_vae_old_names},
	{"text_encoder.", "text_encoder/", jm_clip_text_names},
	{0},
};
/* The decoder makes pictures of latents, which training does not need. */
static const char *const unused[] = {"vae/decoder.*", "vae/post_quant_conv.*",
	"text_encoder/text_model.embeddings.position_ids", NULL};

static const struct jm_weight_names weights[] = {
	{.of = "diffusers", .group = of_diffusers, .ignored = unused},
	{.of = "diffusers before 0.18", .group = of_old_diffusers, .ignored = unused},
	{0},
};

const struct jm_model jm_model_diffusion = {
	.name = "diffusion",
	.summary = "Stable Diffusion from pixels: a U-Net behind frozen encoders",
	.item = "image",
	.inputs = inputs,
	.options = options,
	.presets = presets,
	.weights = weights,
	.frozen = "vae.*,text_encoder.*",
	.complete = diffusion_complete,
	.default_seq = diffusion_default_seq,
	.build = diffusion_build,
};
