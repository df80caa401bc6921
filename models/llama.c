/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A decoder-only transformer as LLaMA has it (Touvron et al., arXiv 2302.13971; Llama 3, arXiv
 * 2407.21783): RMS norm, rotary positions, grouped heads, SwiGLU, no biases, its own output matrix.
 * Start values: normal, 0.02, as in Hugging Face transformers (LlamaConfig.initializer_range).
 */
#include "llama.h"
#include "llama_config.h"
#include "transformer.h"
#include "engine/graph/layer.h"
#include "engine/graph/layer_pages.h"
#include "engine/graph/tensor_parallel.h"

const char *const jm_llama_yes_no[] = {"yes", "no", NULL};

static const struct jm_option options[] = {JM_LLAMA_OPTIONS, {0}};

static const struct jm_preset presets[] = {
	{"llama3-8b", "Llama 3 8B",
		"layers=32 hidden=4096 heads=32 kv-heads=8 ffn=14336 vocab=128256 context=8192 "
		"theta=500000",
		8030261248, "arXiv 2407.21783", "train"},
	{"llama3.1-8b", "Llama 3.1 8B",
		"layers=32 hidden=4096 heads=32 kv-heads=8 ffn=14336 vocab=128256 context=131072 "
		"theta=500000 rope-factor=8 rope-low=1 rope-high=4 rope-context=8192",
		8030261248, "arXiv 2407.21783", "train"},
	{"llama3.2-1b", "Llama 3.2 1B",
		"layers=16 hidden=2048 heads=32 kv-heads=8 ffn=8192 vocab=128256 context=131072 "
		"theta=500000 rope-factor=32 rope-low=1 rope-high=4 rope-context=8192 tied=yes",
		1235814400, "github.com/meta-llama/llama-models, models/llama3_2", "train"},
	{"llama3.2-3b", "Llama 3.2 3B",
		"layers=28 hidden=3072 heads=24 kv-heads=8 ffn=8192 vocab=128256 context=131072 "
		"theta=500000 rope-factor=32 rope-low=1 rope-high=4 rope-context=8192 tied=yes",
		3212749824, "github.com/meta-llama/llama-models, models/llama3_2", "train"},
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

/* The feed-forward width that has the parameters of 4 hidden without a gate, up to a multiple of
 * 64. */
static int64_t usual_ffn(int64_t hidden)
{
	return (8 * hidden / 3 + 63) / 64 * 64;
}

static int set_usual(struct jm_values *v, struct jm_err *err)
{
	static const struct {
		const char *name, *text;
	} usual[] = {{"vocab", "256"}, /* bytes */
		{"theta", "10000"}, {"norm-eps", "1e-5"}, {"tied", "no"}, {"rope-factor", "1"},
		{"rope-low", "1"}, {"rope-high", "4"}, {"rope-context", "8192"}};
	int code = 0;

	for (size_t i = 0; i < sizeof(usual) / sizeof(*usual) && !code; i++)
		if (!jm_values_text(v, usual[i].name))
			code = jm_values_set(v, usual[i].name, usual[i].text, err);
	return code;
}

static int set_head_width(struct jm_values *v, int64_t hidden, int64_t heads, struct jm_err *err)
{
	int code;

	if (jm_values_text(v, "head-width"))
		return 0;
	code = jm_transformer_check(hidden, heads, true, err);
	return code ? code : jm_dim_default(v, "head-width", hidden / heads, err);
}

int jm_llama_complete(struct jm_values *v, int64_t seq, struct jm_err *err)
{
	bool has_width = jm_values_text(v, "hidden"), has_heads = jm_values_text(v, "heads");
	int code = set_usual(v, err);

	if (!code && has_width && has_heads)
		code = set_head_width(v, jm_dim(v, "hidden"), jm_dim(v, "heads"), err);
	if (!code && has_heads)
		code = jm_dim_default(v, "kv-heads", jm_dim(v, "heads"), err);
	if (!code && has_width)
		code = jm_dim_default(v, "ffn", usual_ffn(jm_dim(v, "hidden")), err);
	if (!code && seq)
		code = jm_dim_default(v, "context", seq, err);
	return code;
}

int jm_llama_default_seq(const struct jm_values *v, int64_t *ret, struct jm_err *err)
{
	struct jm_llama d = jm_llama_dims(v);

	if (d.head % 2)
		return jm_err_set(err, JM_ERANGE,
			"A head of width %lld has no pairs, which rotary positions need; give an "
			"even --head-width.",
			(long long)d.head);
	if (d.rotary.high <= d.rotary.low)
		return jm_err_set(err, JM_ERANGE,
			"--rope-high %g is not above --rope-low %g; give a larger one.",
			d.rotary.high, d.rotary.low);
	if (d.heads % d.kv_heads)
		return jm_err_set(err, JM_ERANGE,
			"%d key and value heads do not divide %d heads; change --kv-heads.",
			d.kv_heads, d.heads);
	*ret = d.context;
	return 0;
}

static struct jm_tensor *norm(
	struct jm_graph *g, struct jm_tensor *x, const struct jm_llama *d, const char *name)
{
	return jm_graph_rmsnorm(g, x, jm_graph_vector(g, name, JM_INIT_ONE, d->hidden), d->eps);
}

/* Its outputs are n parts side by side, of which each rank that shares the model has a part. */
static struct jm_tensor *linear(struct jm_graph *g, struct jm_tensor *x, int64_t from, int n,
	const int64_t *part, const char *name)
{
	int64_t to = 0;
	struct jm_tensor *w;

	for (int i = 0; i < n; i++)
		to += part[i];
	w = jm_graph_matrix(g, name, JM_INIT_NORMAL, to, from);
	return jm_graph_linear(g, x, jm_graph_cut(g, w, JM_CUT_ROWS, n, part), NULL);
}

/* Back into the residual stream. */
static struct jm_tensor *ending(
	struct jm_graph *g, struct jm_tensor *x, int64_t from, int64_t to, const char *name)
{
	struct jm_tensor *w = jm_graph_matrix(g, name, JM_INIT_NORMAL, to, from);

	w = jm_graph_cut(g, w, JM_CUT_COLUMNS, 1, &from);
	return jm_graph_linear(g, x, jm_graph_ends_block(g, w), NULL);
}

/* The rows of x with the numbers `at`; NULL = all */
static struct jm_tensor *rows(struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *at)
{
	return at ? jm_graph_rows(g, x, at) : x;
}

/* Before the output projection, of the rows `at`. flat: NULL = whole sequences, whose positions
 * count from 0 */
static struct jm_tensor *attention(struct jm_graph *g, struct jm_tensor *x,
	const struct jm_llama *d, const struct jm_flat *flat, struct jm_tensor *at)
{
	struct jm_tensor *h = norm(g, x, d, "attn_norm.weight");
	int heads = (int)jm_graph_share(g, d->heads, "heads");
	int kv_heads = (int)jm_graph_share(g, d->kv_heads, "key and value heads");
	const int64_t keys = d->kv_heads * d->head, part[] = {d->heads * d->head, keys, keys};

	h = linear(g, h, d->hidden, 3, part, "attn.qkv.weight");
	if (flat)
		return jm_graph_attention_pages(g, h, flat, heads, kv_heads, d->rotary, at != NULL);
	h = jm_graph_attention(
		g, jm_graph_rope(g, h, heads, kv_heads, d->rotary), heads, kv_heads, true);
	return rows(g, h, at);
}

static struct jm_tensor *feed_forward(
	struct jm_graph *g, struct jm_tensor *x, const struct jm_llama *d)
{
	struct jm_tensor *h = norm(g, x, d, "ffn_norm.weight");
	const int64_t part[] = {d->ffn, d->ffn};

	h = jm_graph_swiglu(g, linear(g, h, d->hidden, 2, part, "ffn.gate_up.weight"));
	return ending(g, h, d->ffn, d->hidden, "ffn.down.weight");
}

/* Targets of training, of which the loss ignores those below 0. */
struct learnt {
	struct jm_tensor *target;
	int64_t most; /* that are not below 0; 0 = all */
};

/* The rows that are needed behind the last block; NULL = all. Targets become those of the rows. */
static struct jm_tensor *needed(
	struct jm_graph *g, const struct jm_flat *flat, struct learnt *learnt)
{
	if (flat)
		return flat->shape.requests < flat->shape.tokens ? flat->last : NULL;
	return learnt->most ? jm_graph_wanted_rows(g, &learnt->target, learnt->most) : NULL;
}

static struct jm_tensor *tokens(struct jm_graph *g, const struct jm_llama *d)
{
	return jm_graph_vocabulary(g, "tokens.weight", true, JM_INIT_OWN, d->vocab, d->hidden);
}

/*
 * Embeddings x -> the residual stream after all blocks: of a step in which fewer rows than all make
 * a token, or of a training where not all have a target, these rows. Of the others, the last block
 * needs keys and values alone.
 */
static struct jm_tensor *blocks(struct jm_graph *g, struct jm_tensor *x, const struct jm_llama *d,
	const struct jm_flat *flat, struct learnt *learnt)
{
	struct jm_tensor *at, *h;

	for (int64_t i = 0; i < d->layers; i++) {
		jm_graph_scope(g, "h%lld.", (long long)i);
		at = i == d->layers - 1 ? needed(g, flat, learnt) : NULL;
		h = attention(g, x, d, flat, at);
		h = ending(g, h, d->heads * d->head, d->hidden, "attn.out.weight");
		x = jm_graph_add(g, rows(g, x, at), h);
		x = jm_graph_add(g, x, feed_forward(g, x, d));
	}
	jm_graph_scope(g, "%s", "");
	return x;
}

/* The matrix of the output, which may be the table of the tokens. */
static struct jm_tensor *output(
	struct jm_graph *g, struct jm_tensor *table, const struct jm_llama *d)
{
	if (d->tied == JM_LLAMA_TIED)
		return table;
	return jm_graph_vocabulary(g, "output.weight", false, JM_INIT_NORMAL, d->vocab, d->hidden);
}

struct jm_tensor *jm_llama_table(struct jm_graph *g, const char *prefix, const struct jm_llama *how)
{
	struct jm_tensor *table;

	jm_graph_part(g, prefix);
	table = tokens(g, how);
	jm_graph_part(g, "");
	return table;
}

struct jm_tensor *jm_llama_loss(struct jm_graph *g, const char *prefix, const struct jm_llama *how,
	struct jm_tensor *x, struct jm_tensor *table, struct jm_tensor *target, int64_t most)
{
	struct learnt learnt = {target, most};
	struct jm_tensor *w;

	jm_graph_part(g, prefix);
	x = blocks(g, jm_graph_own_rows(g, x), how, NULL, &learnt);
	x = norm(g, x, how, "norm.weight");
	w = output(g, table, how);
	jm_graph_part(g, "");
	return jm_graph_classify(g, jm_graph_whole_rows(g, x), w, learnt.target);
}

static int llama_build(struct jm_graph *g, const struct jm_values *v, int64_t batch, int64_t seq,
	struct jm_tensor **ret_loss, struct jm_err *err)
{
	struct jm_llama d = jm_llama_dims(v);
	const int64_t dim[] = {batch, seq};
	struct jm_tensor *ids = jm_graph_input(g, "ids", JM_I32, 2, dim);
	struct jm_tensor *target = jm_graph_input(g, "target", JM_I32, 2, dim);
	struct jm_tensor *table = jm_llama_table(g, "", &d);

	(void)err;
	*ret_loss = jm_llama_loss(g, "", &d, jm_graph_embed(g, ids, table, NULL), table, target, 0);
	return 0;
}

static int llama_step(struct jm_graph *g, const struct jm_values *v,
	const struct jm_step_shape *shape, struct jm_tensor **ret_logits, struct jm_err *err)
{
	struct jm_llama d = jm_llama_dims(v);
	struct jm_flat flat = jm_graph_flat(g, shape);
	struct jm_tensor *table = tokens(g, &d);
	struct jm_tensor *x = jm_graph_embed(g, flat.ids, table, NULL);

	(void)err;
	x = blocks(g, x, &d, &flat, NULL);
	if (shape->requests == shape->tokens)
		x = jm_graph_rows(g, x, flat.last);
	x = norm(g, x, &d, "norm.weight");
	*ret_logits = jm_graph_linear(g, x, output(g, table, &d), NULL);
	return 0;
}

/* Rotary positions turn the same pairs there, (i, i + D/2). */
#define LAYER "model.layers.*."
const struct jm_weight_name jm_llama_names[] = {
	{.own = "tokens.weight", .file = "model.embed_tokens.weight", .tied = "lm_head.weight"},
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
	{.of = "transformers", .name = jm_llama_names, .ignored = angles}, {0}};

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
	.cuts = true,
	.config = jm_llama_config,
	.make_config = jm_llama_make_config,
	.complete = jm_llama_complete,
	.default_seq = jm_llama_default_seq,
	.build = llama_build,
	.step = llama_step,
};
