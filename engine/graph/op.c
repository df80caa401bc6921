/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ops: operands, aliasing, FLOPs and bytes. */
#include "op.h"
#include "tensor.h"

#include <math.h>

static double matmul(double m, double n, double k)
{
	return 2 * m * n * k;
}

static void flops_none(const struct jm_node *n, double *ret_model, double *ret_executed)
{
	(void)n;
	*ret_model = *ret_executed = 0;
}

/* The rows that the model uses; padding rows are executed, but are not part of the model. */
static double used(const struct jm_node *n, int64_t rows)
{
	return n->attr.linear.used > 0 ? (double)n->attr.linear.used / (double)rows : 1;
}

/* y = x w^T and dx = dy w: rows of the first operand times the weight. */
static void flops_linear(const struct jm_node *n, double *ret_model, double *ret_executed)
{
	const struct jm_tensor *w = n->in[1];

	*ret_executed =
		matmul((double)jm_tensor_rows(n->in[0]), (double)w->dim[0], (double)w->dim[1]);
	*ret_model = *ret_executed * used(n, w->dim[0]);
}

static void flops_wgrad(const struct jm_node *n, double *ret_model, double *ret_executed)
{
	*ret_executed = matmul((double)jm_tensor_rows(n->in[0]), (double)jm_tensor_width(n->in[0]),
		(double)jm_tensor_width(n->in[1]));
	*ret_model = *ret_executed * used(n, jm_tensor_width(n->in[0]));
}

/* One product of attention over all heads: S x T x D, or half of it where a causal mask leaves
 * half. */
static double attention_product(const struct jm_node *n, const struct jm_tensor *y)
{
	double batch = (double)y->dim[0], seq = (double)y->dim[1], width = (double)y->dim[2];
	double keys = (double)n->attr.attention.keys, most = matmul(batch * seq, keys, width);

	return most * (n->attr.attention.causal && keys >= seq ? 1 - 0.5 * seq / keys : 1);
}

static void flops_attention(const struct jm_node *n, double *ret_model, double *ret_executed)
{
	*ret_model = *ret_executed = 2 * attention_product(n, n->out[0]);
}

/* Four products in the model; a fifth is executed, because the scores are recomputed. */
static void flops_attention_grad(const struct jm_node *n, double *ret_model, double *ret_executed)
{
	double product = attention_product(n, n->in[0]);

	*ret_model = 4 * product;
	*ret_executed = 5 * product;
}

/* Every element of y needs a window of the channels of its group. */
static double conv_product(const struct jm_tensor *y, const struct jm_tensor *w)
{
	double window = (double)(w->dim[1] * w->dim[2] * w->dim[3]);

	return matmul((double)jm_tensor_count(y), 1, window);
}

static void flops_conv(const struct jm_node *n, double *ret_model, double *ret_executed)
{
	*ret_model = *ret_executed = conv_product(n->out[0], n->in[1]);
}

static void flops_conv_dgrad(const struct jm_node *n, double *ret_model, double *ret_executed)
{
	*ret_model = *ret_executed = conv_product(n->in[0], n->in[1]);
}

/* Published figures count three products for each convolution, including the first one. */
static void flops_conv_wgrad(const struct jm_node *n, double *ret_model, double *ret_executed)
{
	*ret_executed = conv_product(n->in[0], n->out[0]);
	*ret_model = *ret_executed * (n->attr.conv.stem ? 2 : 1);
}

/* Products along one axis after the other, the last one first, which is real. */
static void flops_dft(const struct jm_node *n, double *ret_model, double *ret_executed)
{
	const struct jm_tensor *x = n->op == JM_OP_DFT ? n->in[0] : n->out[0];
	int last = x->rank - 3;
	double left = (double)jm_tensor_count(x), sum = 0;

	for (int a = last; a >= 0; a--) {
		double kept = (double)n->attr.dft.modes[a] * (a < last ? 2 : 1);

		sum += left * kept * (a < last ? 8 : 4);
		left *= kept / (double)x->dim[1 + a];
	}
	*ret_model = *ret_executed = sum;
}

/* The same for the gradients: each term of two widths is a complex multiply-add. */
static void flops_mix(const struct jm_node *n, double *ret_model, double *ret_executed)
{
	const struct jm_tensor *other = n->op == JM_OP_MIX_MODES_WGRAD ? n->in[1] : n->out[0];

	*ret_model = *ret_executed =
		4 * (double)jm_tensor_count(n->in[0]) * (double)jm_tensor_width(other);
}

static const struct jm_op_row rows[JM_OP_COUNT] = {
	[JM_OP_EMBED] = {3, 1, -1, flops_none, 0},
	[JM_OP_EMBED_GRAD] = {2, 2, -1, flops_none, 0},
	[JM_OP_LINEAR] = {5, 1, -1, flops_linear, 0},
	[JM_OP_LINEAR_DGRAD] = {4, 1, -1, flops_linear, 0},
	[JM_OP_LINEAR_WGRAD] = {4, 2, -1, flops_wgrad, 0},
	[JM_OP_GELU] = {1, 1, -1, flops_none, 0},
	[JM_OP_GELU_GRAD] = {2, 1, 0, flops_none, 0},
	[JM_OP_LAYERNORM] = {3, 3, -1, flops_none, 0},
	[JM_OP_LAYERNORM_GRAD] = {5, 3, -1, flops_none, 0},
	[JM_OP_ROPE] = {2, 1, 0, flops_none, 0},
	[JM_OP_ROPE_GRAD] = {2, 1, 0, flops_none, 0},
	[JM_OP_ATTENTION] = {4, 2, -1, flops_attention, 0},
	[JM_OP_ATTENTION_GRAD] = {7, 3, -1, flops_attention_grad, 0},
	[JM_OP_ADD] = {2, 1, 0, flops_none, 0},
	[JM_OP_SOFTMAX_XENT] = {3, 2, 1, flops_none, 0},
	[JM_OP_CAST] = {1, 1, -1, flops_none, 0},
	[JM_OP_NORM] = {2, 1, -1, flops_none, 0},
	[JM_OP_ADAMW] = {4, 4, -1, flops_none, 0},
	[JM_OP_CONV] = {3, 1, -1, flops_conv, 0},
	[JM_OP_CONV_DGRAD] = {2, 1, -1, flops_conv_dgrad, 0},
	[JM_OP_CONV_WGRAD] = {2, 2, -1, flops_conv_wgrad, 0},
	[JM_OP_BN_STATS] = {1, 2, -1, flops_none, 0},
	[JM_OP_BN_FINALIZE] = {2, 3, -1, flops_none, 0},
	[JM_OP_BN_APPLY] = {6, 1, 0, flops_none, 0},
	[JM_OP_BN_GRAD] = {7, 4, 0, flops_none, 0},
	[JM_OP_RMSNORM] = {2, 2, -1, flops_none, 0},
	[JM_OP_RMSNORM_GRAD] = {4, 2, -1, flops_none, 0},
	[JM_OP_MAXPOOL] = {1, 1, -1, flops_none, 0},
	[JM_OP_MAXPOOL_GRAD] = {2, 1, -1, flops_none, 0},
	[JM_OP_AVGPOOL] = {1, 1, -1, flops_none, 0},
	[JM_OP_AVGPOOL_GRAD] = {1, 1, -1, flops_none, 0},
	[JM_OP_GAP] = {1, 1, -1, flops_none, 0},
	[JM_OP_GAP_GRAD] = {1, 1, -1, flops_none, 0},
	[JM_OP_UPSAMPLE] = {1, 1, -1, flops_none, 0},
	[JM_OP_UPSAMPLE_GRAD] = {1, 1, -1, flops_none, 0},
	[JM_OP_GROUPNORM] = {3, 3, -1, flops_none, 0},
	[JM_OP_GROUPNORM_GRAD] = {6, 3, -1, flops_none, 0},
	[JM_OP_RELU] = {1, 1, 0, flops_none, 0},
	[JM_OP_RELU_GRAD] = {2, 1, 0, flops_none, 0},
	[JM_OP_GELU_ERF] = {1, 1, -1, flops_none, 0},
	[JM_OP_GELU_ERF_GRAD] = {2, 1, 0, flops_none, 0},
	[JM_OP_GELU_QUICK] = {1, 1, -1, flops_none, 0},
	[JM_OP_GELU_QUICK_GRAD] = {2, 1, 0, flops_none, 0},
	[JM_OP_SILU] = {1, 1, -1, flops_none, 0},
	[JM_OP_SILU_GRAD] = {2, 1, 0, flops_none, 0},
	[JM_OP_SWIGLU] = {1, 1, -1, flops_none, 0},
	[JM_OP_SWIGLU_GRAD] = {2, 1, 0, flops_none, 1},
	[JM_OP_GEGLU] = {1, 1, -1, flops_none, 0},
	[JM_OP_GEGLU_GRAD] = {2, 1, 0, flops_none, 1},
	[JM_OP_TOKENS] = {3, 1, 0, flops_none, 0},
	[JM_OP_TOKENS_GRAD] = {1, 3, 0, flops_none, 0},
	[JM_OP_FIRST] = {1, 1, -1, flops_none, 0},
	[JM_OP_FIRST_GRAD] = {1, 1, -1, flops_none, 0},
	[JM_OP_PUT_ROWS] = {3, 1, 0, flops_none, 0},
	[JM_OP_PUT_ROWS_GRAD] = {2, 2, 0, flops_none, 0},
	[JM_OP_CONCAT] = {JM_PARTS, 1, -1, flops_none, 0},
	[JM_OP_SPLIT] = {1, JM_PARTS, -1, flops_none, 0},
	[JM_OP_DROPOUT] = {2, 1, 0, flops_none, 0},
	[JM_OP_ADAM] = {4, 4, -1, flops_none, 0},
	[JM_OP_SGD] = {4, 2, -1, flops_none, 0},
	[JM_OP_AVERAGE] = {3, 1, -1, flops_none, 0},
	[JM_OP_QUANTIZE] = {2, 4, -1, flops_none, 0},
	[JM_OP_RESCALE] = {1, 1, -1, flops_none, 0},
	[JM_OP_TOP1] = {2, 1, -1, flops_none, 0},
	[JM_OP_MSE] = {3, 2, -1, flops_none, 0},
	[JM_OP_ADD_NOISE] = {3, 2, -1, flops_none, 0},
	[JM_OP_DRAW_MOMENTS] = {2, 1, -1, flops_none, 0},
	[JM_OP_STEP_WAVES] = {1, 1, -1, flops_none, 0},
	[JM_OP_COLOURS] = {1, 1, -1, flops_none, 0},
	[JM_OP_DFT] = {1, 1, -1, flops_dft, 0},
	[JM_OP_IDFT] = {1, 1, -1, flops_dft, 0},
	[JM_OP_MIX_MODES] = {2, 1, -1, flops_mix, 0},
	[JM_OP_MIX_MODES_DGRAD] = {2, 1, -1, flops_mix, 0},
	[JM_OP_MIX_MODES_WGRAD] = {2, 1, -1, flops_mix, 0},
	[JM_OP_RELATIVE_L2] = {3, 2, -1, flops_none, 0},
	/* products of attention depend on lengths, which are known during the run only */
	[JM_OP_CACHE_WRITE] = {6, 3, -1, flops_none, 0},
	[JM_OP_ATTENTION_PAGES] = {6, 1, -1, flops_none, 0},
	[JM_OP_ROWS] = {2, 1, -1, flops_none, 0},
	[JM_OP_ROWS_GRAD] = {2, 1, -1, flops_none, 0},
	[JM_OP_WANTED_ROWS] = {1, 2, -1, flops_none, 0},
	[JM_OP_MADE_IDS] = {2, 1, -1, flops_none, 0},
	[JM_OP_SAMPLE] = {3, 1, -1, flops_none, 0},
	[JM_OP_ALL_REDUCE_START] = {1, 1, -1, flops_none, 0},
	[JM_OP_ALL_REDUCE_WAIT] = {1, 1, -1, flops_none, 0},
	[JM_OP_REDUCE_SCATTER_START] = {1, 1, -1, flops_none, 0},
	[JM_OP_ALL_GATHER_START] = {1, 1, -1, flops_none, 0},
	[JM_OP_SUM_RANKS] = {1, 1, 0, flops_none, 0},
	[JM_OP_OWN_ROWS] = {1, 1, -1, flops_none, 0},
	[JM_OP_WHOLE_ROWS] = {1, 1, -1, flops_none, 0},
	[JM_OP_GATHER_ROWS] = {1, 1, -1, flops_none, 0},
	[JM_OP_FROM_FIRST] = {1, 1, -1, flops_none, 0},
	[JM_OP_SUM_ROWS] = {1, 1, -1, flops_none, 0},
	[JM_OP_STAGE_IN] = {0, 1, -1, flops_none, 0},
	[JM_OP_STAGE_OUT] = {1, 0, -1, flops_none, 0},
	[JM_OP_STAGE_NORMS] = {1, 1, -1, flops_none, 0},
	[JM_OP_STAGE_SWAP] = {1, 1, -1, flops_none, 0},
};

const struct jm_op_row *jm_op_row(enum jm_op op)
{
	return &rows[op];
}

bool jm_op_is_exchange(enum jm_op op)
{
	return op >= JM_OP_ALL_REDUCE_START && op <= JM_OP_STAGE_SWAP;
}

bool jm_op_is_border(enum jm_op op)
{
	return op == JM_OP_STAGE_IN || op == JM_OP_STAGE_OUT;
}

bool jm_node_reads(const struct jm_node *n, const struct jm_tensor *t)
{
	for (int i = 0; i < n->n_in; i++)
		if (n->in[i] == t)
			return true;
	return false;
}

bool jm_node_narrows(const struct jm_node *n)
{
	bool weights = n->op == JM_OP_LINEAR_WGRAD || n->op == JM_OP_CONV_WGRAD ||
		       n->op == JM_OP_MIX_MODES_WGRAD;

	return weights && n->out[0]->type == JM_F32 &&
	       (n->in[0]->type == JM_BF16 || n->in[0]->type == JM_F16);
}

/* The bytes of a tensor in memory; a tensor inside a group has none. */
static double moved(const struct jm_tensor *t)
{
	return t && !t->is_virtual ? (double)t->bytes : 0;
}

/* True for optimizers, which also read what they write. */
static bool updates(const struct jm_node *n)
{
	return n->op == JM_OP_ADAMW || n->op == JM_OP_ADAM || n->op == JM_OP_SGD ||
	       n->op == JM_OP_AVERAGE;
}

/* True if an operand before operand i names the same tensor, as views of one tensor do. */
static bool is_view_again(const struct jm_node *n, struct jm_tensor *const *t, int i)
{
	bool views = n->op == JM_OP_ATTENTION || n->op == JM_OP_ATTENTION_GRAD;

	for (int j = 0; j < i && views; j++)
		if (t[j] == t[i])
			return true;
	return false;
}

static double bytes_moved(const struct jm_node *n)
{
	double bytes = 0;

	for (int i = 0; i < n->n_in; i++)
		bytes += is_view_again(n, n->in, i) ? 0 : moved(n->in[i]);
	for (int i = 0; i < n->n_out; i++) {
		bool read_too = (updates(n) && i < 3) || jm_node_adds(n, i);

		bytes += is_view_again(n, n->out, i) ? 0 : moved(n->out[i]) * (read_too ? 2 : 1);
	}
	return bytes;
}

/* The bytes of the rows that ids select from a table: at most one row per id, and at most all
 * rows. */
static double touched(const struct jm_tensor *table, double ids)
{
	double each = (double)jm_tensor_width(table) * (double)jm_dtype_bytes(table->type);

	return fmin(ids * each, moved(table));
}

static double bytes_embed(const struct jm_node *n)
{
	const struct jm_tensor *ids = n->in[0], *pos = n->in[2];
	double result = moved(n->out[0]) * (jm_node_adds(n, 0) ? 2 : 1);

	return moved(ids) + touched(n->in[1], (double)jm_tensor_count(ids)) + result +
	       (pos ? touched(pos, (double)jm_tensor_width(ids)) : 0);
}

/* A gradient that is added touches the rows of its ids only; one that is written writes all
 * rows. */
static double bytes_embed_grad(const struct jm_node *n)
{
	const struct jm_tensor *table = n->out[0];
	double spared = moved(table) - touched(table, (double)jm_tensor_count(n->in[0]));

	return bytes_moved(n) - (jm_node_adds(n, 0) ? 2 * spared : 0);
}

/* Ranges are not counted, because only two numbers of one row are read and written. */
static double bytes_quantize(const struct jm_node *n)
{
	double ranges = n->in[1] ? moved(n->in[1]) : 0, kept = n->out[2] ? moved(n->out[2]) : 0;

	return bytes_moved(n) - ranges - kept;
}

/* Queries, keys and values are read once and written once, keys and values in their own type. */
static double bytes_cache_write(const struct jm_node *n)
{
	double qkv = moved(n->in[0]), q = moved(n->out[0]);
	double width =
		(double)jm_dtype_bytes(n->in[4]->type) / (double)jm_dtype_bytes(n->in[0]->type);

	return qkv + q + (qkv - q) * width;
}

void jm_node_cost(struct jm_node *n)
{
	rows[n->op].flops(n, &n->flops_model, &n->flops_executed);
	if (n->again)
		n->flops_model = 0;
	if (n->op == JM_OP_EMBED)
		n->bytes = bytes_embed(n);
	else if (n->op == JM_OP_QUANTIZE)
		n->bytes = bytes_quantize(n);
	else if (n->op == JM_OP_CACHE_WRITE)
		n->bytes = bytes_cache_write(n);
	else if (n->op == JM_OP_ATTENTION_PAGES)
		n->bytes = moved(n->in[0]) + moved(n->out[0]); /* and the keys of requests */
	else
		n->bytes = n->op == JM_OP_EMBED_GRAD ? bytes_embed_grad(n) : bytes_moved(n);
}
