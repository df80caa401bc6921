/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of all ops, in the order in which they are tried. */
#include "backends/cuda/device/cuda.h"
#include "ops.h"

#include "op_rows.h"
#include "ops_quantize.h"

/* The first row that has the cover and accepts the group runs it. */
static const struct cuda_op *const tables[] = {
	cuda_ops_conv_norm,
	cuda_ops_depthwise,
	cuda_ops_conv_add,
	cuda_ops_conv_grown,
	cuda_ops_conv_product,
	cuda_ops_conv,
	cuda_ops_head,
	cuda_ops_image,
	cuda_ops_pool,
	cuda_ops_pages,
	cuda_ops_narrow_linear,
	cuda_ops_linear,
	cuda_ops_dnn_attention,
	cuda_ops_attention_512,
	cuda_ops_attention_wide,
	cuda_ops_attention,
	cuda_ops_noise,
	cuda_ops_norm,
	cuda_ops_groupnorm,
	cuda_ops_pointwise,
	cuda_ops_concat,
	cuda_ops_quantize,
	cuda_ops_rope,
	cuda_ops_spectral,
	cuda_ops_tokens,
	cuda_ops_update,
};

const struct cuda_op *cuda_op_row(uint32_t row)
{
	for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
		for (const struct cuda_op *op = tables[i]; op->n_nodes; op++)
			if (!row--)
				return op;
	return NULL;
}

static bool covers(const struct cuda_op *op, const struct jm_group *group)
{
	if (op->n_nodes != group->n_nodes)
		return false;
	for (int i = 0; i < op->n_nodes; i++)
		if (op->cover[i] != group->node[i]->op)
			return false;
	return true;
}

/* Types of 8 bits are supported for factors of products, for the ops that make or copy them, and
 * for keys and values in pages. */
static bool knows_f8(enum jm_op op)
{
	return op == JM_OP_LINEAR || op == JM_OP_LINEAR_DGRAD || op == JM_OP_LINEAR_WGRAD ||
	       op == JM_OP_QUANTIZE || op == JM_OP_CAST || op == JM_OP_CACHE_WRITE ||
	       op == JM_OP_ATTENTION_PAGES;
}

static bool knows_type(const struct jm_node *n, const struct jm_tensor *t)
{
	return t->type == JM_F32 || t->type == JM_BF16 || t->type == JM_F16 || t->type == JM_I32 ||
	       (t->type == JM_U8 && n->op == JM_OP_COLOURS) || (cuda_is_f8(t) && knows_f8(n->op));
}

/* Only the backend ref computes in f64. tf32 permits rounding: attention then computes in f32. */
static int check_types(const struct jm_node *n, struct jm_err *err)
{
	const struct jm_tensor *t[JM_NODE_IN + JM_NODE_OUT];
	int count = 0;

	for (int i = 0; i < n->n_in; i++)
		t[count++] = n->in[i];
	for (int i = 0; i < n->n_out; i++)
		t[count++] = n->out[i];
	for (int i = 0; i < count; i++)
		if (t[i] && !knows_type(n, t[i]))
			return jm_err_set(err, JM_ENOSUP,
				"Backend cuda cannot use %s of %s as %s; it supports f32, bf16 and "
				"f16.",
				t[i]->name, jm_op_name(n->op), jm_dtype_name(t[i]->type));
	return 0;
}

static int takes(const struct cuda_op *op, struct cuda_dev *dev, const struct jm_group *group,
	struct jm_err *err)
{
	int code = 0;

	for (int i = 0; i < group->n_nodes && !code; i++)
		code = check_types(group->node[i], err);
	return !code && op->takes ? op->takes(dev, group, err) : code;
}

const struct cuda_op *cuda_op_find(
	struct cuda_dev *dev, const struct jm_group *group, uint32_t *ret_row, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	uint32_t row = 0;

	for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
		for (const struct cuda_op *op = tables[i]; op->n_nodes; op++, row++) {
			struct jm_err no = JM_ERR_INIT;

			if (!covers(op, group))
				continue;
			if (!takes(op, dev, group, &no)) {
				*ret_row = row;
				return op;
			}
			/* the last row has the fewest conditions, so its reason is reported */
			why = no;
		}
	if (why.code)
		jm_err_set(err, why.code, "%s", why.text);
	else
		jm_err_set(err, JM_ENOSUP, "Backend cuda has no kernel for %s%s%s.",
			jm_op_name(group->node[0]->op), group->n_nodes > 1 ? " + " : "",
			group->n_nodes > 1 ? jm_op_name(group->node[1]->op) : "");
	return NULL;
}
