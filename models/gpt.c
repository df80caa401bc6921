/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A decoder-only transformer as GPT-2 (Radford et al. 2019) and Megatron-LM (arXiv 1909.08053) have
 * it: layer norm before each part, biases everywhere, tanh GELU, embedding and output share one
 * table. Start values as in GPT-2.
 */
#include "engine/graph/model.h"
#include "gpt_config.h"
#include "transformer.h"
#include "engine/graph/layer.h"
#include "engine/graph/tensor_parallel.h"

#define THETA 10000.0

#define CARAML "arXiv 2409.12994, github.com/FZJ-JSC/CARAML"

static const char *const position_kinds[] = {"learned", "rotary", NULL};

struct dims {
	int64_t layers, hidden, ffn, vocab, context, batch, seq;
	int heads;
	double eps;
	enum { LEARNED, ROTARY } positions; /* in the order of position_kinds */
};

static const struct jm_option options[] = {
	JM_MODEL_INT(struct dims, layers, "layers", 4000, "blocks of the network"),
	JM_MODEL_INT(struct dims, hidden, "hidden", 10000000, "width of the residual stream"),
	JM_MODEL_INT(struct dims, heads, "heads", 100000, "attention heads"),
	JM_MODEL_INT(struct dims, ffn, "ffn", 100000000, "inner width of the feed-forward part"),
	JM_MODEL_INT(struct dims, vocab, "vocab", 100000000, "tokens in the vocabulary"),
	JM_MODEL_INT(struct dims, context, "context", 100000000,
		"longest sequence the model is made for"),
	{.name = "positions",
		JM_BIND(JM_CHOICE, struct dims, positions),
		.choices = position_kinds,
		.help = "learned (a table) or rotary"},
	JM_MODEL_REAL(struct dims, eps, "norm-eps", 1e-12, 1, "what the norms add to the variance"),
	{0},
};

static const struct jm_preset presets[] = {
	{"gpt-117m", "GPT-2 small",
		"layers=12 hidden=768 heads=12 ffn=3072 context=1024 vocab=50257 positions=learned",
		124439808, CARAML ", openai/gpt-2", "train"},
	{"gpt-800m", "CARAML's GPT for one GPU",
		"layers=16 hidden=2048 heads=8 ffn=8192 context=2048 vocab=50304 positions=rotary",
		908759040, CARAML, "train"},
	{"gpt-13b", "CARAML's GPT for several GPUs",
		"layers=40 hidden=5120 heads=32 ffn=20480 context=2048 vocab=50432 "
		"positions=rotary",
		12843796480, CARAML, "train"},
	{"gpt-175b", "CARAML's GPT of GPT-3's size",
		"layers=96 hidden=12288 heads=96 ffn=49152 context=2048 vocab=51200 "
		"positions=rotary",
		174590681088, CARAML, "train"},
	{0},
};

static struct dims dims_of(const struct jm_values *v)
{
	struct dims d = {0};

	JM_FILL(v, &d);
	return d;
}

static int check(const struct dims *d, struct jm_err *err)
{
	int code = jm_transformer_check(d->hidden, d->heads, d->positions == ROTARY, err);

	if (code)
		return code;
	if (d->positions != ROTARY && d->seq > d->context)
		return jm_err_set(err, JM_ERANGE,
			"A sequence of %lld is longer than the table of %lld learned positions; "
			"give a smaller --seq or a larger --context.",
			(long long)d->seq, (long long)d->context);
	return 0;
}

static int gpt_complete(struct jm_values *v, int64_t seq, struct jm_err *err)
{
	int code = jm_dim_default(v, "vocab", 256, err); /* bytes */

	if (!code && !jm_values_text(v, "positions"))
		code = jm_values_set(v, "positions", "learned", err);
	if (!code && !jm_values_text(v, "norm-eps"))
		code = jm_values_set(v, "norm-eps", "1e-5", err);
	if (!code && jm_values_text(v, "hidden"))
		code = jm_dim_default(v, "ffn", 4 * jm_dim(v, "hidden"), err);
	if (!code && seq)
		code = jm_dim_default(v, "context", seq, err);
	return code;
}

static int gpt_default_seq(const struct jm_values *v, int64_t *ret, struct jm_err *err)
{
	struct dims d = dims_of(v);
	int code = check(&d, err);

	if (!code)
		*ret = d.context;
	return code;
}

static struct jm_tensor *network(struct jm_graph *g, const struct dims *d)
{
	const int64_t tokens[] = {d->batch, d->seq};
	struct jm_tensor *ids = jm_graph_input(g, "ids", JM_I32, 2, tokens);
	struct jm_tensor *target = jm_graph_input(g, "target", JM_I32, 2, tokens);
	struct jm_tensor *table =
		jm_graph_vocabulary(g, "tokens.weight", true, JM_INIT_OWN, d->vocab, d->hidden);
	struct jm_tensor *positions = NULL, *x;

	if (d->positions != ROTARY)
		positions = jm_graph_table(g, "positions.weight", d->context, d->hidden);
	x = jm_graph_dropout(g, jm_graph_embed(g, ids, table, positions), g->dropout);
	x = jm_transformer_blocks(g, jm_graph_own_rows(g, x),
		&(struct jm_transformer){.layers = d->layers,
			.hidden = d->hidden,
			.ffn = d->ffn,
			.heads = d->heads,
			.causal = true,
			.theta = d->positions == ROTARY ? THETA : 0,
			.eps = d->eps,
			.init = JM_INIT_GPT2,
			.activation = jm_graph_gelu});
	x = jm_transformer_norm(g, x, d->hidden, d->eps, "ln_f");
	return jm_graph_classify(g, jm_graph_whole_rows(g, x), table, target);
}

static int gpt_build(struct jm_graph *g, const struct jm_values *v, int64_t batch, int64_t seq,
	struct jm_tensor **ret_loss, struct jm_err *err)
{
	struct dims d = dims_of(v);
	int code;

	d.batch = batch;
	d.seq = seq;
	code = check(&d, err);
	if (!code)
		*ret_loss = network(g, &d);
	return code;
}

/* The layers of a block are Conv1D there, whose matrices are [from, to]. */
static const struct jm_weight_name of_gpt2[] = {
	{.own = "tokens.weight", .file = "wte.weight", .tied = "lm_head.weight"},
	{.own = "positions.weight", .file = "wpe.weight"},
	{.own = "h*.ln_1.*", .file = "h.*.ln_1.*"},
	{.own = "h*.attn.qkv.*", .file = "h.*.attn.c_attn.*", .transposed = true},
	{.own = "h*.attn.out.*", .file = "h.*.attn.c_proj.*", .transposed = true},
	{.own = "h*.ln_2.*", .file = "h.*.ln_2.*"},
	{.own = "h*.mlp.in.*", .file = "h.*.mlp.c_fc.*", .transposed = true},
	{.own = "h*.mlp.out.*", .file = "h.*.mlp.c_proj.*", .transposed = true},
	{0},
};
static const char *const masks[] = {"*h.*.attn.bias", "*h.*.attn.masked_bias", NULL};

static const struct jm_weight_names weights[] = {
	{.of = "transformers", .name = of_gpt2, .prefix = "transformer.", .ignored = masks}, {0}};

static const struct jm_input inputs[] = {
	{.name = "ids", .fill = JM_FILL_TEXT, .below = "vocab"},
	{.name = "target", .fill = JM_FILL_TEXT, .below = "vocab", .shift = 1},
	{0},
};

const struct jm_model jm_model_gpt = {
	.name = "gpt",
	.summary = "decoder-only transformer (GPT-2, Megatron-LM)",
	.item = "token",
	.inputs = inputs,
	.options = options,
	.presets = presets,
	.weights = weights,
	.config = jm_gpt_config,
	.make_config = jm_gpt_make_config,
	.cuts = true,
	.complete = gpt_complete,
	.default_seq = gpt_default_seq,
	.build = gpt_build,
};
