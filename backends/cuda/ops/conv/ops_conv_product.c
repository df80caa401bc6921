/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions as products by cuBLASLt: of single pixels, because with channels last x[B Y X, C] is
 * a matrix, and those whose window is the whole image, because x[B, Y X C] is one. For single
 * pixels in f32 this is the only way: cuDNN's engines without tensor cores first transpose such
 * images in memory and reach a third of the rate. Otherwise ops_conv.c times both.
 */
#include <math.h>

#include "ops_conv_product.h"
#include "backends/cuda/device/layouts.h"
#include "backends/cuda/ops/op_rows.h"

bool cuda_conv_is_whole(const struct jm_node *n)
{
	struct cuda_operands o = cuda_operands_of(n);
	bool whole = n->attr.conv.groups == 1 && o.x->dim[1] >= CUDA_FEW_CHANNELS;

	for (int i = 0; i < 2; i++)
		whole = whole && o.w->dim[2 + i] == o.x->dim[2 + i] && n->attr.conv.pad[i] == 0 &&
			n->attr.conv.more[i] == 0 && n->attr.conv.dilation[i] == 1;
	return whole;
}

/* x[pixels, channels], or x[images, pixels channels], as the column-major matrix that cuBLASLt
 * expects. */
static struct cuda_matrix matrix(
	const struct jm_node *n, const struct jm_tensor *t, bool transposed)
{
	int64_t pixels = t->dim[2] * t->dim[3],
		rows = t->dim[1] * (cuda_conv_is_whole(n) ? pixels : 1);

	return (struct cuda_matrix){
		.data = t->data,
		.type = t->type,
		.rows = rows,
		.columns = jm_tensor_count(t) / rows,
		.stride = rows,
		.transposed = transposed,
	};
}

struct cuda_gemm cuda_conv_product_of(const struct jm_node *n, void *compact)
{
	struct cuda_operands o = cuda_operands_of(n);
	bool weights = n->op == JM_OP_CONV_WGRAD, strided = cuda_conv_scatters(n);
	struct cuda_gemm g = {
		/* a filter w[K,C,Y,X] has the layout of K images */
		.a = weights ? matrix(n, o.x, false) : matrix(n, o.w, n->op == JM_OP_CONV),
		.b = n->op == JM_OP_CONV ? matrix(n, o.x, false) : matrix(n, o.y, weights),
		.d = matrix(n, n->out[0], false),
		.accumulate = jm_node_adds(n, 0) && !strided,
		.tf32 = n->math == JM_MATH_TF32,
	};

	g.k = weights ? g.a.columns : g.b.rows;
	if (strided) {
		g.d.data = compact;
		g.d.type = JM_F32; /* the sum with dx is rounded once */
		g.d.columns = g.b.columns;
	}
	return g;
}

/* True if all windows are single pixels, and strides are larger than 1 (strided) or 1. */
static bool is_single(const struct jm_node *n, bool strided)
{
	struct cuda_operands o = cuda_operands_of(n);
	bool one = n->attr.conv.groups == 1 && o.x->dim[1] >= CUDA_FEW_CHANNELS;

	for (int i = 0; i < 2; i++)
		one = one && o.w->dim[2 + i] == 1 && n->attr.conv.pad[i] == 0 &&
		      n->attr.conv.more[i] == 0 && (n->attr.conv.stride[i] > 1) == strided;
	return one;
}

/* Plain and channels last are the same order for windows of 1 x 1. */
bool cuda_conv_is_product(const struct jm_node *n)
{
	const struct jm_tensor *w = cuda_operands_of(n).w;

	return is_single(n, false) ||
	       (cuda_conv_is_whole(n) && jm_layout_equal(&w->layout, &cuda_layout_last));
}

bool cuda_conv_scatters(const struct jm_node *n)
{
	return n->op == JM_OP_CONV_DGRAD && jm_node_adds(n, 0) && is_single(n, true) &&
	       n->out[0]->dim[1] % 8 == 0;
}

size_t cuda_conv_compact(const struct jm_node *n)
{
	const struct jm_tensor *dy = n->in[0];

	return (size_t)(dy->dim[0] * n->out[0]->dim[1] * dy->dim[2] * dy->dim[3]) * sizeof(float);
}

/* ---- select ---------------------------------------------------------------------------------- */

static int takes(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	struct cuda_operands o = cuda_operands_of(n);
	bool exact = o.x->type == JM_F32 && o.w->type == JM_F32 && o.y->type == JM_F32 &&
		     n->math == JM_MATH_F32;

	(void)dev;
	if (exact && is_single(n, false) && !o.bias)
		return 0;
	return jm_err_set(
		err, JM_ENOSUP, "Backend cuda has no product for this %s.", jm_op_name(n->op));
}

static int choices(struct cuda_dev *dev, const struct jm_group *group, struct jm_choice *choice,
	struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	const struct jm_tensor *w = cuda_operands_of(n).w;
	struct jm_layout *filter =
		n->op == JM_OP_CONV_WGRAD ? &choice->out[0][0] : &choice->in[0][1];

	(void)dev;
	(void)err;
	choice->in[0][0] = cuda_layout_last;
	if (n->op == JM_OP_CONV_WGRAD)
		choice->in[0][1] = cuda_layout_last;
	else
		choice->out[0][0] = cuda_layout_last;
	/* plain and channels last are the same order for windows of 1 x 1 */
	if (w->layout.rank || w->class == JM_CLASS_ACT)
		*filter = cuda_layout_last;
	choice->seconds = choice->flops_executed = NAN;
	return 1;
}

/* ---- build and run --------------------------------------------------------------------------- */

static int build(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_gemm g = cuda_conv_product_of(&exec->node[0], NULL);
	struct cuda_product *product;
	int code = cuda_product_new(dev, &g, &product, err);

	if (!code)
		exec->own = product;
	return code;
}

static int run(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	return cuda_product_run(dev, exec->own, err);
}

static void drop(struct cuda_dev *dev, struct cuda_exec *exec)
{
	cuda_product_free(dev, exec->own);
}

const struct cuda_op cuda_ops_conv_product[] = {
	{{JM_OP_CONV}, 1, takes, choices, NULL, build, run, drop},
	{{JM_OP_CONV_DGRAD}, 1, takes, choices, NULL, build, run, drop},
	{{JM_OP_CONV_WGRAD}, 1, takes, choices, NULL, build, run, drop},
	{.n_nodes = 0},
};
