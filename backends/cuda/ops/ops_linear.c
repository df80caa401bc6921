/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear and its gradients, each of which is one product by cuBLASLt. A row-major matrix of
 * joulemark is a transposed column-major matrix of cuBLASLt: y[T,N] = x[T,K] w[N,K]^T becomes
 * y'[N,T] = w'[K,N]^T x'[K,T].
 */
#include <math.h>
#include <stdlib.h>

#include "gemm.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/device/layouts.h"
#include "ops_linear.h"
#include "ops_quantize.h"
#include "op_rows.h"

/* tag */
enum { AS_ASKED };

struct linear {
	struct cuda_product *product;
	struct cuda_product *rest; /* of the columns beyond a multiple of 8; NULL = none */
	bool summed;		   /* the product also writes dbias */
	bool cast_bias;		   /* the bias is cast to the type of d before the product */
	bool then_gelu;		   /* a kernel applies gelu or its gradient afterwards */
	int parts;		   /* into which the sum over rows for dbias is split */
};

static struct cuda_matrix matrix(const struct jm_tensor *t, bool transposed)
{
	return (struct cuda_matrix){
		.data = t->data,
		.type = t->type,
		.rows = jm_tensor_width(t),
		.columns = jm_tensor_rows(t),
		.stride = cuda_row_stride(t),
		.transposed = transposed,
	};
}

/* The weights together with the rows of zeros that follow them. */
static struct cuda_matrix weights(const struct jm_tensor *t, bool transposed)
{
	struct cuda_matrix m = matrix(t, transposed);

	if (cuda_is_tall(t)) {
		m.stride = t->dim[1];
		m.columns = cuda_tall_rows(t);
	}
	return m;
}

/* A matrix in 8 bits: products need the dim that is summed over to be contiguous. turned: reads the
 * transpose of t. */
static struct cuda_matrix codes(const struct jm_tensor *t, bool turned, bool transposed)
{
	int64_t rows = jm_tensor_rows(t), width = jm_tensor_width(t);

	return (struct cuda_matrix){
		.data = t->data,
		.type = t->type,
		.rows = turned ? rows : width,
		.columns = turned ? width : rows,
		.stride = turned ? rows : width,
		.transposed = transposed,
	};
}

/*
 * cuBLASLt multiplies in 8 bits where the first matrix is transposed and the second is not. As in
 * NVIDIA's Transformer Engine, the forward product sums with fewer bits, and the gradients
 * accumulate in f32 at intervals.
 */
static struct cuda_gemm product_of_f8(const struct jm_node *n)
{
	bool forward = n->op == JM_OP_LINEAR, weights = n->op == JM_OP_LINEAR_WGRAD;
	int scales = forward ? 3 : 2;

	return (struct cuda_gemm){
		.a = codes(n->in[1], !forward, true),
		.b = codes(n->in[0], weights, false),
		.d = matrix(n->out[0], false),
		.k = weights ? jm_tensor_rows(n->in[0]) : jm_tensor_width(n->in[0]),
		.accumulate = jm_node_adds(n, 0),
		.a_scale = cuda_data(n->in[scales + 1]),
		.b_scale = cuda_data(n->in[scales]),
		.scales_rows = cuda_scales_rows(n),
		.fast_sums = forward,
		.bias = forward ? cuda_data(n->in[2]) : NULL,
	};
}

/* The rows of zeros after the rows of w make columns of zeros in the result, if its rows are
 * padded. */
static void widen(struct cuda_matrix *m, int64_t to)
{
	if (m->stride >= to)
		m->rows = to;
}

static struct cuda_gemm product_of(const struct jm_node *n)
{
	struct cuda_gemm g = {.d = matrix(n->out[0], false),
		.accumulate = jm_node_adds(n, 0),
		.tf32 = n->math == JM_MATH_TF32};

	if (cuda_is_f8(n->in[0]))
		return product_of_f8(n);
	switch (n->op) {
	case JM_OP_LINEAR:
		g.a = weights(n->in[1], true);
		g.b = matrix(n->in[0], false);
		g.k = jm_tensor_width(n->in[0]);
		g.bias = cuda_data(n->in[2]);
		widen(&g.d, g.a.columns);
		g.a.columns = g.d.rows;
		break;
	case JM_OP_LINEAR_DGRAD:
		g.a = weights(n->in[1], false);
		g.b = matrix(n->in[0], false);
		widen(&g.b, g.a.columns);
		g.a.columns = g.k = g.b.rows;
		break;
	default: /* dw[N,K] = dy[T,N]^T x[T,K] */
		g.a = matrix(n->in[1], false);
		g.b = matrix(n->in[0], true);
		g.k = jm_tensor_rows(n->in[0]);
		break;
	}
	return g;
}

#define F8_MULTIPLE 16 /* cuBLASLt needs all three dimensions to be multiples of this */

static int check_f8_shape(const struct jm_node *n, struct jm_err *err)
{
	int64_t rows = jm_tensor_rows(n->in[0]), from = jm_tensor_width(n->in[0]);
	int64_t to = jm_tensor_width(n->op == JM_OP_LINEAR_WGRAD ? n->in[1] : n->out[0]);

	if (rows % F8_MULTIPLE == 0 && from % F8_MULTIPLE == 0 && to % F8_MULTIPLE == 0)
		return 0;
	return jm_err_set(err, JM_ENOSUP,
		"Backend cuda multiplies in 8 bits where all dimensions are multiples of %d, and "
		"%s "
		"has %lld rows from %lld to %lld.",
		F8_MULTIPLE, jm_op_name(n->op), (long long)rows, (long long)from, (long long)to);
}

static int takes_f8(struct cuda_dev *dev, const struct jm_node *n, struct jm_err *err)
{
	bool bias = n->op == JM_OP_LINEAR && n->in[2],
	     sums = n->op == JM_OP_LINEAR_WGRAD && n->out[1];
	bool by_rows = cuda_scales_rows(n);

	if (!cuda_has_f8(dev))
		return jm_err_set(err, JM_ENOSUP,
			"cuda:%d (%s, compute capability %d.%d) has no products in 8 bits, which "
			"need 8.9 (Ada), 9.0 (Hopper) or newer; use --precision bf16.",
			dev->index, dev->prop.name, dev->prop.major, dev->prop.minor);
	if (by_rows && (dev->prop.major != 9 || n->out[0]->type != JM_BF16))
		return jm_err_set(err, JM_ENOSUP,
			"cuda:%d (%s, compute capability %d.%d) has products in 8 bits with a "
			"scale "
			"for each row into bf16 on 9.0 (Hopper) alone; use --precision bf16.",
			dev->index, dev->prop.name, dev->prop.major, dev->prop.minor);
	if (!cuda_is_f8(n->in[1]) || sums || (bias && n->out[0]->type == JM_F32) ||
		(n->in[0]->type == JM_F8E5M2 && n->in[1]->type == JM_F8E5M2) ||
		cuda_is_f8(n->out[0]))
		return jm_err_set(err, JM_ENOSUP, "Backend cuda has no %s of %s and %s into %s%s.",
			jm_op_name(n->op), jm_dtype_name(n->in[0]->type),
			jm_dtype_name(n->in[1]->type), jm_dtype_name(n->out[0]->type),
			bias || sums ? " with a bias" : "");
	return check_f8_shape(n, err);
}

static int takes(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	enum jm_dtype in = n->in[0]->type, out = n->out[0]->type;

	if (cuda_is_f8(n->in[0]))
		return takes_f8(dev, n, err);
	if (n->in[1]->type != in || (out != in && out != JM_F32))
		return jm_err_set(err, JM_ENOSUP, "Backend cuda has no %s of %s and %s into %s.",
			jm_op_name(n->op), jm_dtype_name(in), jm_dtype_name(n->in[1]->type),
			jm_dtype_name(out));
	return 0;
}

/* In f32, gelu is a separate op: a perceptron with cuBLASLt's had gradients 14 times as far from
 * f64 as PyTorch's. */
static int takes_gelu(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0], *act = group->node[1];
	bool exact = n->in[0]->type == JM_F32 && n->math != JM_MATH_TF32;

	if (exact || n->accumulate || act->accumulate || act->in[0] != n->out[0] ||
		act->out[0]->type != n->out[0]->type ||
		(n->out[0]->type != n->in[0]->type && !cuda_is_f8(n->in[0])) ||
		jm_tensor_width(n->out[0]) % 8)
		return jm_err_set(
			err, JM_ENOSUP, "Backend cuda cannot fuse this linear with gelu.");
	return takes(dev, group, err);
}

/*
 * gelu-grad after linear-dgrad, where gelu-grad is the only reader of the result of linear-dgrad.
 * f32 is excluded: the error of cuBLASLt's result was up to 8e-5 of the mean.
 */
static int takes_gelu_grad(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0], *act = group->node[1];

	if (n->in[0]->type == JM_F32 || n->accumulate || act->accumulate ||
		act->in[0] != n->out[0] || !n->out[0]->is_virtual ||
		act->out[0]->type != n->out[0]->type || act->in[1]->type != n->out[0]->type ||
		(n->out[0]->type != n->in[0]->type && !cuda_is_f8(n->in[0])) ||
		jm_tensor_width(n->out[0]) % 8)
		return jm_err_set(err, JM_ENOSUP,
			"Backend cuda cannot fuse this linear-dgrad with gelu-grad.");
	return takes(dev, group, err);
}

/* ---- select ---------------------------------------------------------------------------------- */

/* Only activations may have padded rows; all other tensors are plain or are copied to plain
 * ones. */
static void ask_rows(const struct jm_tensor *t, struct jm_layout *ret)
{
	if (t->class == JM_CLASS_ACT)
		cuda_rows_layout(t, ret);
}

static bool has_bias(const struct jm_node *n)
{
	return n->op == JM_OP_LINEAR && n->in[2];
}

static size_t scratch_of(const struct cuda_dev *dev, const struct jm_node *n)
{
	int64_t rows = jm_tensor_rows(n->in[0]), width = jm_tensor_width(n->in[0]);
	if (has_bias(n)) /* in 16 bits */
		return (size_t)jm_tensor_count(n->in[2]) * sizeof(uint16_t);
	if (n->op == JM_OP_LINEAR_WGRAD && n->out[1])
		return (size_t)(width *
				cuda_column_parts(dev->prop.multiProcessorCount, rows, width)) *
		       sizeof(float);
	return 0;
}

static int choices_f8(struct cuda_dev *dev, const struct jm_node *n, struct jm_choice *choice)
{
	if (n->op != JM_OP_LINEAR)
		cuda_turned_layout(n->in[1], &choice->in[0][1]);
	if (n->op == JM_OP_LINEAR_WGRAD)
		cuda_turned_layout(n->in[0], &choice->in[0][0]);
	choice->scratch = scratch_of(dev, n);
	choice->seconds = choice->flops_executed = NAN;
	choice->tag = AS_ASKED;
	return 1;
}

static int choices(struct cuda_dev *dev, const struct jm_group *group, struct jm_choice *choice,
	struct jm_err *err)
{
	const struct jm_node *n = group->node[0];

	(void)err;
	if (cuda_is_f8(n->in[0]))
		return choices_f8(dev, n, choice);
	ask_rows(n->in[0], &choice->in[0][0]);
	if (n->op == JM_OP_LINEAR_WGRAD)
		ask_rows(n->in[1], &choice->in[0][1]);
	else
		ask_rows(n->out[0], &choice->out[0][0]);
	if (n->op != JM_OP_LINEAR_WGRAD && n->in[1]->class == JM_CLASS_COPY && !has_bias(n))
		cuda_tall_layout(n->in[1], &choice->in[0][1]);
	choice->scratch = scratch_of(dev, n);
	choice->seconds = choice->flops_executed = NAN;
	choice->tag = AS_ASKED;
	return 1;
}

/* ---- build ----------------------------------------------------------------------------------- */

/* Builds the product with a bias in f32 where cuBLASLt supports it, else with one in the type of
 * the result. */
static int build_product(
	struct cuda_dev *dev, struct cuda_exec *exec, struct cuda_gemm *g, struct jm_err *err)
{
	struct linear *l = exec->own;
	struct jm_err why = JM_ERR_INIT;
	int code = JM_ENOSUP;

	/* products in 8 bits support no bias in f32 */
	if (!g->bias || jm_dtype_bytes(g->a.type) > 1)
		code = cuda_product_new(dev, g, &l->product, g->bias ? &why : err);
	if (!code || !g->bias)
		return code;
	if (code != JM_ENOSUP || g->d.type == JM_F32)
		return jm_err_set(err, code, "%s", why.text);
	l->cast_bias = g->bias_as_d = true;
	g->bias = exec->scratch;
	return cuda_product_new(dev, g, &l->product, err);
}

/* Splits a gradient of weights after the last multiple of 8 columns; the rest is a second
 * product. */
static void split(struct cuda_gemm *g, struct cuda_gemm *ret_rest)
{
	int64_t most = g->d.columns / 8 * 8, size = (int64_t)jm_dtype_bytes(g->b.type);

	if (!g->b.transposed || most == g->d.columns || most < 1024)
		return;
	*ret_rest = *g;
	ret_rest->d.columns -= most;
	ret_rest->b.rows -= most;
	ret_rest->d.data =
		(char *)g->d.data + most * g->d.stride * (int64_t)jm_dtype_bytes(g->d.type);
	ret_rest->b.data = (char *)g->b.data + most * size;
	g->d.columns = g->b.rows = most;
}

#define SUMS_RATE 2.5e12 /* bytes per second that sums over rows reached on an H100 */

/* Computes dbias in the product where that takes less time than a separate sum. */
static void build_summed(struct cuda_dev *dev, struct cuda_exec *exec, const struct cuda_gemm *g)
{
	const struct jm_node *n = &exec->node[0];
	struct linear *l = exec->own;
	struct cuda_gemm with = *g;
	struct cuda_product *product;
	struct jm_err why = JM_ERR_INIT;
	double alone = cuda_product_seconds(l->product) + (double)n->in[0]->bytes / SUMS_RATE;

	if (l->rest || jm_node_adds(n, 1))
		return;
	with.sums = n->out[1]->data;
	if (cuda_product_new(dev, &with, &product, &why))
		return;
	l->summed = cuda_product_seconds(product) < alone;
	if (l->summed) {
		cuda_product_free(dev, l->product);
		l->product = product;
	} else {
		cuda_product_free(dev, product);
	}
}

static int build(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_gemm g = product_of(n), rest = {.d.columns = 0};
	struct linear *l = exec->own = calloc(1, sizeof *l);
	int code = 0;

	if (!l)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a product.");
	l->parts = cuda_column_parts(
		dev->prop.multiProcessorCount, jm_tensor_rows(n->in[0]), jm_tensor_width(n->in[0]));
	split(&g, &rest);
	if (rest.d.columns)
		code = cuda_product_new(dev, &rest, &l->rest, err);
	if (!code)
		code = build_product(dev, exec, &g, err);
	if (!code && n->op == JM_OP_LINEAR_WGRAD && n->out[1])
		build_summed(dev, exec, &g);
	return code;
}

/* Builds the product with gelu; where cuBLASLt cannot fuse them, an own kernel applies gelu. */
static int build_gelu(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	const struct jm_tensor *y = exec->node[1].out[0];
	struct cuda_gemm g = product_of(n), joined;
	struct jm_err why = JM_ERR_INIT;
	struct linear *l = exec->own = calloc(1, sizeof *l);

	if (!l)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a product.");
	joined = g;
	joined.then = GEMM_GELU;
	joined.d = matrix(y, false);
	joined.aux = n->out[0]->is_virtual ? NULL : n->out[0]->data;
	if (!build_product(dev, exec, &joined, &why))
		return 0;
	l->then_gelu = true;
	l->cast_bias = false;
	if (n->out[0]->is_virtual)
		g.d.data = y->data; /* gelu works in place */
	return build_product(dev, exec, &g, err);
}

static int build_gelu_grad(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *act = &exec->node[1];
	struct cuda_gemm g = product_of(&exec->node[0]), joined;
	struct linear *l = exec->own = calloc(1, sizeof *l);
	struct jm_err why = JM_ERR_INIT;

	if (!l)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a product.");
	g.d.data = act->out[0]->data;
	joined = g;
	joined.then = GEMM_GELU_GRAD;
	joined.aux = act->in[1]->data;
	if (!cuda_product_new(dev, &joined, &l->product, &why))
		return 0;
	l->then_gelu = true;
	return cuda_product_new(dev, &g, &l->product, err);
}

static void drop(struct cuda_dev *dev, struct cuda_exec *exec)
{
	struct linear *l = exec->own;
	if (l) {
		cuda_product_free(dev, l->product);
		cuda_product_free(dev, l->rest);
	}
	free(l);
}

/* ---- run ------------------------------------------------------------------------------------- */

static void sum_rows(struct cuda_dev *dev, const struct cuda_exec *exec)
{
	const struct jm_node *n = &exec->node[0];
	const struct linear *l = exec->own;
	struct cuda_columns p = {
		.rows = jm_tensor_rows(n->in[0]),
		.width = jm_tensor_width(n->in[0]),
		.stride = cuda_row_stride(n->in[0]),
		.x = cuda_vec(n->in[0]),
		.y = n->out[1]->data,
		.accumulate = jm_node_adds(n, 1),
		.parts = l->parts,
		.partial = exec->scratch,
	};

	cuda_columns(&p, dev->stream);
}

void cuda_cast_bias(
	const struct cuda_dev *dev, const struct jm_tensor *bias, void *to, enum jm_dtype type)
{
	struct cuda_pointwise p = {.map = CUDA_CAST,
		.n = jm_tensor_count(bias),
		.a = cuda_vec(bias),
		.y = {to, cuda_type_of(type)}};

	cuda_pointwise(&p, dev->stream);
}

static void cast_bias(const struct cuda_dev *dev, const struct cuda_exec *exec)
{
	const struct jm_node *n = &exec->node[0];

	cuda_cast_bias(dev, n->in[2], exec->scratch, n->out[0]->type);
}

/* The padding of rows must be 0. */
static void clear_padding(struct cuda_dev *dev, const struct jm_tensor *t)
{
	size_t size = jm_dtype_bytes(t->type), stride = (size_t)cuda_row_stride(t) * size;
	size_t width = (size_t)jm_tensor_width(t) * size;

	if (stride > width)
		cudaMemset2DAsync((char *)t->data + width, stride, 0, stride - width,
			(size_t)jm_tensor_rows(t), dev->stream);
}

static int run(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	const struct linear *l = exec->own;
	int code;

	if (l->cast_bias)
		cast_bias(dev, exec);
	if (n->op == JM_OP_LINEAR_WGRAD && n->out[1] && !l->summed)
		sum_rows(dev, exec);
	code = cuda_product_run(dev, l->product, err);
	if (!code && l->rest)
		code = cuda_product_run(dev, l->rest, err);
	/* otherwise the product writes the padding */
	if (!code && (n->op != JM_OP_LINEAR || !cuda_is_tall(n->in[1])))
		clear_padding(dev, n->out[0]);
	return code;
}

static int run_gelu(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_tensor *x = exec->node[0].out[0], *y = exec->node[1].out[0];
	const struct linear *l = exec->own;
	struct cuda_pointwise p = {.map = CUDA_GELU,
		.n = jm_tensor_count(y),
		.a = cuda_vec(x->is_virtual ? y : x),
		.y = cuda_vec(y)};
	int code;

	if (l->cast_bias)
		cast_bias(dev, exec);
	code = cuda_product_run(dev, l->product, err);
	if (!code && l->then_gelu)
		cuda_pointwise(&p, dev->stream);
	return code;
}

static int run_gelu_grad(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *act = &exec->node[1];
	const struct linear *l = exec->own;
	struct cuda_pointwise p = {.map = CUDA_GELU_GRAD,
		.n = jm_tensor_count(act->out[0]),
		.a = cuda_vec(act->out[0]),
		.b = cuda_vec(act->in[1]),
		.y = cuda_vec(act->out[0])};
	int code = cuda_product_run(dev, l->product, err);

	if (!code && l->then_gelu)
		cuda_pointwise(&p, dev->stream);
	return code;
}

/* ---- linear-wgrad at the end of a group ------------------------------------------------------ */

int cuda_wgrad_takes(struct cuda_dev *dev, const struct jm_node *n, const struct jm_tensor *dy,
	struct jm_err *err)
{
	const struct jm_group group = {.n_nodes = 1, .node = {n}};

	if (n->in[0] != dy || dy->is_virtual || !n->out[1] || jm_tensor_width(dy) % 8 ||
		jm_tensor_width(n->in[1]) % 8)
		return jm_err_set(err, JM_ENOSUP,
			"Backend cuda does not compute this gradient of a bias before %s.",
			jm_op_name(n->op));
	return takes(dev, &group, err);
}

int cuda_wgrad_build(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_exec *product = calloc(1, sizeof *product);

	exec->own = product;
	if (!product)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a product.");
	product->node[0] = exec->node[exec->n_nodes - 1];
	product->node[0].out[1] = NULL;
	product->n_nodes = 1;
	return build(dev, product, err);
}

int cuda_wgrad_run(struct cuda_dev *dev, const struct cuda_exec *product, struct jm_err *err)
{
	return run(dev, product, err);
}

void cuda_wgrad_drop(struct cuda_dev *dev, struct cuda_exec *exec)
{
	if (exec->own)
		drop(dev, exec->own);
	free(exec->own);
}

const struct cuda_op cuda_ops_linear[] = {
	{{JM_OP_LINEAR}, 1, takes, choices, NULL, build, run, drop},
	{{JM_OP_LINEAR_DGRAD}, 1, takes, choices, NULL, build, run, drop},
	{{JM_OP_LINEAR_WGRAD}, 1, takes, choices, NULL, build, run, drop},
	{{JM_OP_LINEAR, JM_OP_GELU}, 2, takes_gelu, choices, NULL, build_gelu, run_gelu, drop},
	{{JM_OP_LINEAR_DGRAD, JM_OP_GELU_GRAD}, 2, takes_gelu_grad, choices, NULL, build_gelu_grad,
		run_gelu_grad, drop},
	{.n_nodes = 0},
};
