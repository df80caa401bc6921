/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A decoder-only transformer as LLaMA has it (Touvron et al., arXiv 2302.13971; Llama 3, arXiv
 * 2407.21783): RMS norm, rotary positions, grouped heads, SwiGLU, no biases, its own output matrix.
 * Start values: normal, 0.02, as in Hugging Face transformers (LlamaConfig.initializer_range).
 */
#include "engine/graph/model.h"
#include "transformer.h"
#include "engine/graph/layer.h"
#include "engine/graph/pages.h"

#define EPS 1e-5

static const struct jm_option options[] = {
	JM_MODEL_INT("layers", 4000, "blocks of the network"),
	JM_MODEL_INT("hidden", 10000000, "width of the residual stream"),
	JM_MODEL_INT("heads", 100000, "attention heads"),
	JM_MODEL_INT("kv-heads", 100000, "key and value heads, each shared by several heads"),
	JM_MODEL_INT("ffn", 100000000, "inner width of the feed-forward part"),
	JM_MODEL_INT("vocab", 100000000, "tokens in the vocabulary"),
	JM_MODEL_INT("context", 100000000, "longest sequence the model is made for"),
	JM_MODEL_INT("theta", 1000000000, "base of the rotary angles"),
	{0},
};

static const struct jm_preset presets[] = {
	{"llama3-8b", "Llama 3 8B",
		"layers=32 hidden=4096 heads=32 kv-heads=8 ffn=14336 vocab=128256 context=8192 "
		"theta=500000",
		8030261248, "arXiv 2407.21783", "train"},
	{"llama2-7b", "Llama 2 7B",
		"layers=32 hidden=4096 heads=32 kv-heads=32 ffn=11008 vocab=32000 context=4096 "
		"theta=10000",
		6738415616, "arXiv 2307.09288", "train"},
	{"llama2-13b", "Llama 2 13B",
		"layers=40 hidden=5120 heads=40 kv-heads=40 ffn=13824 vocab=32000 context=4096 "
		"theta=10000",
		13015864320, "arXiv 2307.09288", "train"},
	{0},
};

struct dims {
	int64_t layers, hidden, ffn, vocab, context, head;
	int heads, kv_heads;
	double theta;
};

static struct dims dims_of(const struct jm_values *v)
{
	struct dims d = {
		.layers = jm_dim(v, "layers"),
		.hidden = jm_dim(v, "hidden"),
		.heads = (int)jm_dim(v, "heads"),
		.kv_heads = (int)jm_dim(v, "kv-heads"),
		.ffn = jm_dim(v, "ffn"),
		.vocab = jm_dim(v, "vocab"),
		.context = jm_dim(v, "context"),
		.theta = jm_values_number(v, "theta"),
	};

	d.head = d.hidden / d.heads;
	return d;
}

/* The feed-forward width that has the parameters of 4 hidden without a gate, up to a multiple of 64. */
static int64_t usual_ffn(int64_t hidden)
{
	return (8 * hidden / 3 + 63) / 64 * 64;
}

static int llama_complete(struct jm_values *v, int64_t seq, struct jm_err *err)
{
	int code = jm_dim_default(v, "vocab", 256, err); /* bytes */

	if (!code)
		code = jm_dim_default(v, "theta", 10000, err);
	if (!code && jm_values_text(v, "heads"))
		code = jm_dim_default(v, "kv-heads", jm_dim(v, "heads"), err);
	if (!code && jm_values_text(v, "hidden"))
		code = jm_dim_default(v, "ffn", usual_ffn(jm_dim(v, "hidden")), err);
	if (!code && seq)
		code = jm_dim_default(v, "context", seq, err);
	return code;
}

static int llama_default_seq(const struct jm_values *v, int64_t *ret, struct jm_err *err)
{
	struct dims d = dims_of(v);
	int code = jm_transformer_check(d.hidden, d.heads, true, err);

	if (code)
		return code;
	if (d.heads % d.kv_heads)
		return jm_err_set(err, JM_ERANGE,
			"%d key and value heads do not divide %d heads; change --kv-heads.",
			d.kv_heads, d.heads);
	*ret = d.context;
	return 0;
}

static struct jm_tensor *norm(
	struct jm_graph *g, struct jm_tensor *x, const struct dims *d, const char *name)
{
	return jm_graph_rmsnorm(g, x, jm_graph_vector(g, name, JM_INIT_ONE, d->hidden), EPS);
}

static struct jm_tensor *linear(
	struct jm_graph *g, struct jm_tensor *x, int64_t from, int64_t to, const char *name)
{
	return jm_graph_linear(g, x, jm_graph_matrix(g, name, JM_INIT_NORMAL, to, from), NULL);
}

/* Back into the residual stream. */
static struct jm_tensor *ending(
	struct jm_graph *g, struct jm_tensor *x, int64_t from, int64_t to, const char *name)
{
	struct jm_tensor *w = jm_graph_matrix(g, name, JM_INIT_NORMAL, to, from);

	return jm_graph_linear(g, x, jm_graph_ends_block(g, w), NULL);
}

/* flat: NULL = whole sequences, whose positions count from 0 */
static struct jm_tensor *attention(
	struct jm_graph *g, struct jm_tensor *x, const struct dims *d, const struct jm_flat *flat)
{
	struct jm_tensor *h = norm(g, x, d, "attn_norm.weight");

	h = linear(g, h, d->hidden, (d->heads + 2 * d->kv_heads) * d->head, "attn.qkv.weight");
	if (flat)
		h = jm_graph_attention_pages(g, h, flat, d->heads, d->kv_heads, d->theta);
	else
		h = jm_graph_attention(g, jm_graph_rope(g, h, d->heads, d->kv_heads, d->theta),
			d->heads, d->kv_heads, true);
	return ending(g, h, d->hidden, d->hidden, "attn.out.weight");
}

static struct jm_tensor *feed_forward(struct jm_graph *g, struct jm_tensor *x, const struct dims *d)
{
	struct jm_tensor *h = norm(g, x, d, "ffn_norm.weight");

	h = jm_graph_swiglu(g, linear(g, h, d->hidden, 2 * d->ffn, "ffn.gate_up.weight"));
	return ending(g, h, d->ffn, d->hidden, "ffn.down.weight");
}

/* ids i32[B,S] -> the residual stream after all blocks */
static struct jm_tensor *blocks(
	struct jm_graph *g, struct jm_tensor *ids, const struct dims *d, const struct jm_flat *flat)
{
	struct jm_tensor *x = jm_graph_embed(g, ids,
		jm_graph_vocabulary(g, "tokens.weight", true, JM_INIT_OWN, d->vocab, d->hidden),
		NULL);

	for (int64_t i = 0; i < d->layers; i++) {
		jm_graph_scope(g, "h%lld.", (long long)i);
		x = jm_graph_add(g, x, attention(g, x, d, flat));
		x = jm_graph_add(g, x, feed_forward(g, x, d));
	}
	jm_graph_scope(g, "%s", "");
	return x;
}

static struct jm_tensor *output(struct jm_graph *g, const struct dims *d)
{
	return jm_graph_vocabulary(g, "output.weight", false, JM_INIT_NORMAL, d->vocab, d->hidden);
}

static int llama_build(struct jm_graph *g, const struct jm_values *v, int64_t batch, int64_t seq,
	struct jm_tensor **ret_loss, struct jm_err *err)
{
	struct dims d = dims_of(v);
	const int64_t tokens[] = {batch, seq};
	struct jm_tensor *ids = jm_graph_input(g, "ids", JM_I32, 2, tokens);
	struct jm_tensor *target = jm_graph_input(g, "target", JM_I32, 2, tokens), *x;

	(void)err;
	x = norm(g, blocks(g, ids, &d, NULL), &d, "norm.weight");
	*ret_loss = jm_graph_classify(g, x, output(g, &d), target);
	return 0;
}

static int llama_step(struct jm_graph *g, const struct jm_values *v,
	const struct jm_step_shape *shape, struct jm_tensor **ret_logits, struct jm_err *err)
{
	struct dims d = dims_of(v);
	struct jm_flat flat = jm_graph_flat(g, shape);
	struct jm_tensor *x = jm_graph_rows(g, blocks(g, flat.ids, &d, &flat), flat.last);

	(void)err;
	x = norm(g, x, &d, "norm.weight");
	*ret_logits = jm_graph_linear(g, x, output(g, &d), NULL);
	return 0;
}

/* Rotary positions turn the same pairs there, (i, i + D/2). */
#define LAYER "model.layers.*."
static const struct jm_weight_name of_transformers[] = {
	{.own = "tokens.weight", .file = "model.embed_tokens.weight"},
	{.own = "h*.attn_norm.weight", .file = LAYER "input_layernorm.weight"},
	{.own = "h*.attn.qkv.weight", .file = LAYER "self_attn.q_proj.weight", .share = "heads"},
	{.own = "h*.attn.qkv.weight", .file = LAYER "self_attn.k_proj.weight", .share = "kv-heads"},
	{.own = "h*.attn.qkv.weight", .file = LAYER "self_attn.v_proj.weight", .share = "kv-heads"},
	{.own = "h*.attn.out.weight", .file = LAYER "self_attn.o_proj.weight"},
	{.own = "h*.ffn_norm.weight", .file = LAYER "post_attention_layernorm.weight"},
	{.own = "h*.ffn.gate_up.weight", .file = LAYER "mlp.gate_proj.weight"},
	{.own = "h*.ffn.gate_up.weight", .file = LAYER "mlp.up_proj.weight"},
	{.own = "h*.ffn.down.weight", .file = LAYER "mlp.down_proj.weight"},
	{.own = "norm.weight", .file = "model.norm.weight"},
	{.own = "output.weight", .file = "lm_head.weight"},
	{0},
};
static const char *const angles[] = {"*.rotary_emb.inv_freq", NULL};

static const struct jm_weight_names weights[] = {
	{.of = "transformers", .name = of_transformers, .ignored = angles}, {0}};

static const struct jm_input inputs[] = {
	{.name = "ids", .fill = JM_FILL_TEXT, .below = "vocab"},
	{.name = "target", .fill = JM_FILL_TEXT, .below = "vocab", .shift = 1},
	{0},
};

const struct jm_model jm_model_llama = {
	.name = "llama",
	.summary = "decoder-only transformer (LLaMA)",
	.item = "token",
	.inputs = inputs,
	.options = options,
	.presets = presets,
	.weights = weights,
	.complete = llama_complete,
	.default_seq = llama_default_seq,
	.build = llama_build,
	.step = llama_step,
};
