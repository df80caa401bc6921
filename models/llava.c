/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LLaVA 1.5 (Liu et al., arXiv 2310.03744): a projector of two layers makes rows of a LLaMA's
 * embeddings of the patches of a picture, as CLIP sees them before its last block. CLIP is frozen;
 * what else is trained is the user's choice (--freeze).
 */
#include "clip_vision.h"
#include "llama.h"
#include "transformer.h"
#include "engine/graph/layer.h"

#define FFN_TIMES 4
#define SOURCE	  "arXiv 2310.03744, haotian-liu/LLaVA scripts/v1_5/finetune.sh"
#define CLIP_L336                                                                                  \
	" image=336 patch=14 vision-layers=23 vision-hidden=1024 vision-heads=16 vision-ffn=4096"
#define CLIP_L336_PARAMETERS 290909184 /* of 23 blocks of 24 */

_Static_assert(sizeof(struct jm_llama) != sizeof(struct jm_clip_vision), "rows of two structs");
static const struct jm_option options[] = {
	JM_LLAMA_OPTIONS,
	JM_MODEL_INT(struct jm_clip_vision, image, "image", 100000,
		"height and width of an image, in pixels"),
	JM_MODEL_INT(struct jm_clip_vision, patch, "patch", 100000,
		"height and width of a patch, in pixels"),
	JM_MODEL_INT(struct jm_clip_vision, layers, "vision-layers", 4000,
		"blocks of the image encoder that are computed: those before its last one"),
	JM_MODEL_INT(struct jm_clip_vision, hidden, "vision-hidden", 10000000,
		"width of the image encoder's residual stream"),
	JM_MODEL_INT(struct jm_clip_vision, heads, "vision-heads", 100000,
		"attention heads of the image encoder"),
	JM_MODEL_INT(struct jm_clip_vision, ffn, "vision-ffn", 100000000,
		"inner width of the feed-forward part of the image encoder"),
	{0},
};

static const struct jm_preset presets[] = {
	{"llava-7b", "LLaVA 1.5 7B: CLIP L/14 at 336 pixels, projector, Llama 2",
		"layers=32 hidden=4096 heads=32 kv-heads=32 ffn=11008 vocab=32000 context=2048 "
		"theta=10000" CLIP_L336,
		CLIP_L336_PARAMETERS + 20979712 + 6738415616, SOURCE, "train"},
	{"llava-13b", "LLaVA 1.5 13B: CLIP L/14 at 336 pixels, projector, Llama 2",
		"layers=40 hidden=5120 heads=40 kv-heads=40 ffn=13824 vocab=32000 context=2048 "
		"theta=10000" CLIP_L336,
		CLIP_L336_PARAMETERS + 31467520 + 13015864320, SOURCE, "train"},
	{0},
};

static struct jm_clip_vision vision_of(const struct jm_values *v)
{
	struct jm_clip_vision vision = {0};

	JM_FILL(v, &vision);
	return vision;
}

static int llava_complete(struct jm_values *v, int64_t seq, struct jm_err *err)
{
	static const struct {
		const char *name;
		int64_t value;
	} dims[] = {{"image", 336}, {"patch", 14}, {"vision-layers", 23}, {"vision-hidden", 1024},
		{"vision-heads", 16}};
	int code = jm_llama_complete(v, seq, err);

	for (size_t i = 0; i < sizeof(dims) / sizeof(*dims) && !code; i++)
		code = jm_dim_default(v, dims[i].name, dims[i].value, err);
	return code ? code
		    : jm_dim_default(v, "vision-ffn", FFN_TIMES * jm_dim(v, "vision-hidden"), err);
}

static int llava_default_seq(const struct jm_values *v, int64_t *ret, struct jm_err *err)
{
	struct jm_clip_vision vision = vision_of(v);
	int code = jm_clip_vision_check(&vision, err);

	return code ? code : jm_llama_default_seq(v, ret, err);
}

/* The states of patches [B,P,from] -> rows of embeddings [B,P,to]. */
static struct jm_tensor *project(struct jm_graph *g, struct jm_tensor *x, int64_t from, int64_t to)
{
	jm_graph_part(g, "projector.");
	x = jm_transformer_linear(g, x, from, to, JM_INIT_NORMAL, "linear_1");
	x = jm_graph_gelu_erf(g, x);
	x = jm_transformer_linear(g, x, to, to, JM_INIT_NORMAL, "linear_2");
	jm_graph_part(g, "");
	return x;
}

/* Of the places of a picture only the last one can have a target, the first token behind it. So a
 * batch has at most so many targets as if each of its sequences had a picture. */
static int llava_build(struct jm_graph *g, const struct jm_values *v, int64_t batch, int64_t seq,
	struct jm_tensor **ret_loss, struct jm_err *err)
{
	struct jm_llama llama = jm_llama_dims(v);
	struct jm_clip_vision vision = vision_of(v);
	const int64_t pixels[] = {batch, 3, vision.image, vision.image}, tokens[] = {batch, seq};
	int64_t side = vision.image / vision.patch;
	struct jm_tensor *image, *ids, *target, *picture, *table, *x;

	if (side * side >= seq)
		return jm_err_set(err, JM_ERANGE,
			"A sequence of %lld tokens has no room for a text behind the %lld patches "
			"of a picture; give a larger --seq.",
			(long long)seq, (long long)(side * side));
	image = jm_graph_input(g, "image", g->compute, 4, pixels);
	ids = jm_graph_input(g, "ids", JM_I32, 2, tokens);
	target = jm_graph_input(g, "target", JM_I32, 2, tokens);
	picture = jm_graph_input(g, "picture", JM_I32, 1, &batch);
	image = jm_clip_vision(g, "vision.", &vision, image);
	image = project(g, image, vision.hidden, llama.hidden);
	table = jm_llama_table(g, "llama.", &llama);
	x = jm_graph_put_rows(g, jm_graph_embed(g, ids, table, NULL), image, picture);
	*ret_loss = jm_graph_ignore_targets(g, jm_llama_loss(g, "llama.", &llama, x, table, target,
						       batch * (seq - side * side + 1)));
	return 0;
}

static const struct jm_input inputs[] = {
	{.name = "image", .fill = JM_FILL_NORMAL, .field = "image", .colours = JM_COLOURS_CLIP},
	{.name = "ids", .fill = JM_FILL_TEXT, .below = "vocab", .field = "ids"},
	{.name = "target", .fill = JM_FILL_TEXT, .below = "vocab", .shift = 1, .field = "target"},
	{.name = "picture", .fill = JM_FILL_ZERO, .field = "picture"},
	{0},
};

static const struct jm_weight_name same_names[] = {{0}};
static const struct jm_weight_group of_transformers[] = {
	{"vision.", "vision_tower.", jm_clip_vision_names},
	{"projector.", "multi_modal_projector.", same_names},
	{"llama.", "language_model.", jm_llama_names},
	{0},
};
/* What CLIP has behind the states of the patches is not computed. */
static const char *const unused[] = {"vision_tower.vision_model.embeddings.position_ids",
	"vision_tower.vision_model.encoder.layers.*", "vision_tower.vision_model.post_layernorm.*",
	"language_model.*.rotary_emb.inv_freq", NULL};

static const struct jm_weight_names weights[] = {
	{.of = "transformers", .group = of_transformers, .ignored = unused}, {0}};

const struct jm_model jm_model_llava = {
	.name = "llava",
	.summary = "answers about pictures: frozen CLIP, projector and LLaMA (LLaVA)",
	.item = "token",
	.inputs = inputs,
	.options = options,
	.presets = presets,
	.weights = weights,
	.frozen = "vision.*",
	.complete = llava_complete,
	.default_seq = llava_default_seq,
	.build = llava_build,
};
