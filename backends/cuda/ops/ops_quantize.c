/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in 8 bits: quantizing, the update of scales, and copies into the layout that products
 * read. */
#include <math.h>

#include "backends/cuda/device/cuda.h"
#include "backends/cuda/device/gpu.h"
#include "gemm.h"
#include "ops_quantize.h"
#include "op_rows.h"

#define F8_MULTIPLE 16 /* of rows and widths, for products by cuBLASLt */

bool cuda_is_f8(const struct jm_tensor *t)
{
	return t && (t->type == JM_F8E4M3 || t->type == JM_F8E5M2);
}

bool cuda_scales_rows(const struct jm_node *n)
{
	const struct jm_tensor *xs = n->in[3], *ws = n->in[4];

	return n->op == JM_OP_LINEAR && xs && ws && jm_tensor_count(ws) > 1 &&
	       jm_tensor_count(ws) == n->in[1]->dim[0] &&
	       jm_tensor_count(xs) == jm_tensor_rows(n->in[0]);
}

void cuda_turned_layout(const struct jm_tensor *t, struct jm_layout *ret)
{
	*ret = (struct jm_layout){.rank = (int16_t)t->rank, .order = {(int16_t)(t->rank - 1)}};
	for (int16_t i = 1; i < t->rank; i++)
		ret->order[i] = (int16_t)(i - 1);
}

static bool is_turned(const struct jm_tensor *t)
{
	struct jm_layout turned;

	cuda_turned_layout(t, &turned);
	return t->rank > 1 && jm_layout_equal(&t->layout, &turned);
}

/* ---- quantize -------------------------------------------------------------------------------- */

static int blocks_of(const struct cuda_dev *dev, const struct jm_node *n)
{
	return cuda_quantize_blocks(dev->prop.multiProcessorCount, jm_tensor_count(n->in[0]));
}

static int parts_of(const struct cuda_dev *dev, const struct jm_node *n)
{
	return cuda_column_parts(
		dev->prop.multiProcessorCount, jm_tensor_rows(n->in[0]), jm_tensor_width(n->in[0]));
}

static size_t maxima_bytes(const struct cuda_dev *dev, const struct jm_node *n)
{
	return (2 * (size_t)blocks_of(dev, n) * sizeof(float) + 255) / 256 * 256;
}

static size_t scratch(struct cuda_dev *dev, const struct jm_group *group)
{
	const struct jm_node *n = group->node[0];
	size_t sums = n->out[3] ? (size_t)(jm_tensor_width(n->in[0]) * parts_of(dev, n)) : 0;

	return maxima_bytes(dev, n) + sums * sizeof(float);
}

static int takes(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];

	(void)dev;
	if (cuda_is_f8(n->out[0]) && !cuda_is_f8(n->in[0]) && !(n->accumulate & JM_ADD_QUANTIZED) &&
		jm_tensor_count(n->out[1]) == 1)
		return 0;
	return jm_err_set(err, JM_ENOSUP, "Backend cuda has no quantize of %s to %s.",
		jm_dtype_name(n->in[0]->type), jm_dtype_name(n->out[0]->type));
}

static float *row_of(const struct jm_node *n, const struct jm_tensor *ranges)
{
	return ranges ? (float *)ranges->data + n->attr.quantize.row * jm_tensor_width(ranges)
		      : NULL;
}

static void sum_rows(struct cuda_dev *dev, const struct cuda_exec *exec)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_columns p = {
		.rows = jm_tensor_rows(n->in[0]),
		.width = jm_tensor_width(n->in[0]),
		.stride = jm_tensor_width(n->in[0]),
		.x = cuda_vec(n->in[0]),
		.y = n->out[3]->data,
		.accumulate = jm_node_adds(n, 3),
		.parts = parts_of(dev, n),
		.partial = (float *)(void *)((char *)exec->scratch + maxima_bytes(dev, n)),
	};

	cuda_columns(&p, dev->stream);
}

static int run(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_quantize p = {
		.n = jm_tensor_count(n->in[0]),
		.x = cuda_vec(n->in[0]),
		.y = n->out[0]->data,
		.e5m2 = n->out[0]->type == JM_F8E5M2,
		.top = n->out[0]->type == JM_F8E5M2 ? 57344 : 448,
		.before = row_of(n, n->in[1]),
		.row = row_of(n, n->out[2]),
		.inverse = n->out[1]->data,
		.blocks = blocks_of(dev, n),
		.partial = exec->scratch,
	};

	(void)err;
	cuda_quantize(&p, dev->stream);
	if (n->out[3])
		sum_rows(dev, exec);
	return 0;
}

static int run_rescale(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_tensor *t = exec->node[0].out[0];

	(void)err;
	cuda_rescale(t->data, jm_tensor_rows(t), jm_tensor_width(t) - 2, dev->stream);
	return 0;
}

/* ---- quantize by rows, also what is quantized ------------------------------------------------ */

/* Of a quantize, after the op that makes what it quantizes and the add before this, if the group
 * has them. */
static struct cuda_quantize_rows rows_of(const struct jm_node *const *node, int n)
{
	const struct jm_node *q = node[n - 1], *made = n > 1 ? node[n - 2] : NULL;
	bool norm = made && made->op == JM_OP_RMSNORM;

	return (struct cuda_quantize_rows){
		.rows = jm_tensor_rows(q->in[0]),
		.width = jm_tensor_width(q->in[0]),
		.x = cuda_vec(node[0]->in[0]),
		.gated = made && !norm,
		.gamma = norm ? cuda_data(made->in[1]) : NULL,
		.eps = norm ? (float)made->attr.norm.eps : 0,
		.rstd = norm ? cuda_data(made->out[1]) : NULL,
		.b = cuda_vec(n > 2 ? node[0]->in[1] : NULL),
		.sum = cuda_vec(n > 2 && !node[0]->out[0]->is_virtual ? node[0]->out[0] : NULL),
		.y = q->out[0]->data,
		.inverse = q->out[1]->data,
	};
}

static bool scales_rows(const struct jm_node *q)
{
	return q->out[0]->type == JM_F8E4M3 && !cuda_is_f8(q->in[0]) && !q->in[1] && !q->out[2] &&
	       !q->out[3] && !q->accumulate &&
	       jm_tensor_count(q->out[1]) == jm_tensor_rows(q->in[0]);
}

/* The result of `made` is read by the next node alone, or it is an add, whose result may have more
 * readers. */
static bool leads_to(const struct jm_node *made, const struct jm_node *next)
{
	return made->out[0] == next->in[0] && !made->accumulate &&
	       (made->op == JM_OP_ADD || made->out[0]->is_virtual) &&
	       made->in[0]->type == made->out[0]->type;
}

static bool fits(const struct jm_node *const *node, int n)
{
	struct cuda_quantize_rows p = rows_of(node, n);
	bool good = scales_rows(node[n - 1]) && cuda_quantize_rows_knows(&p);

	for (int i = 0; i + 1 < n; i++)
		good = good && leads_to(node[i], node[i + 1]);
	return good && (n < 3 || node[0]->in[1]->type == node[0]->in[0]->type);
}

static int takes_rows(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	(void)dev;
	return fits(group->node, group->n_nodes)
		       ? 0
		       : cuda_no_types(group->node[group->n_nodes - 1], err);
}

static int run_rows(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *node[] = {&exec->node[0], &exec->node[1], &exec->node[2]};
	struct cuda_quantize_rows p = rows_of(node, exec->n_nodes);

	(void)err;
	cuda_quantize_rows(&p, dev->stream);
	return 0;
}

/*
 * ---- products that are scaled by the kernel behind them --------------------------------------
 *
 * cuBLASLt has more and better algorithms for factors in 8 bits where no row has a scale of its
 * own. So the product of the codes alone is rounded to bf16, and what reads it multiplies by the
 * scales: the error stays that of one rounding.
 */

#define SCALED_LEAST 1024 /* rows: of fewer the kernels behind have too few blocks */

/* group: the product, and what reads it. */
static struct cuda_quantize_rows scaled_rows_of(
	const struct jm_node *const *node, int n, void *product)
{
	struct cuda_quantize_rows p = rows_of(node + 1, n - 1);

	*(p.gated ? &p.x : &p.b) = (struct cuda_vec){product, CUDA_BF16};
	p.xs = cuda_data(node[0]->in[3]);
	p.ws = cuda_data(node[0]->in[4]);
	return p;
}

static int takes_scaled(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0], *reader = group->node[1];
	int product = reader->op == JM_OP_ADD;
	struct cuda_quantize_rows p;
	float factors;

	if (dev->prop.major != 9 || !cuda_scales_rows(n) || n->in[0]->type != JM_F8E4M3 ||
		n->in[1]->type != JM_F8E4M3 || n->in[2] || n->accumulate ||
		!n->out[0]->is_virtual || n->out[0]->type != JM_BF16 ||
		reader->in[product] != n->out[0] || jm_tensor_rows(n->in[0]) < SCALED_LEAST ||
		jm_tensor_rows(n->in[0]) % F8_MULTIPLE || jm_tensor_width(n->in[0]) % F8_MULTIPLE ||
		n->in[1]->dim[0] % F8_MULTIPLE)
		return cuda_no_types(n, err);
	p = scaled_rows_of(group->node, group->n_nodes, NULL);
	p.ws = &factors; /* not NULL: present; the address is not used */
	if (!cuda_quantize_rows_knows(&p) || !fits(group->node + 1, group->n_nodes - 1))
		return cuda_no_types(n, err);
	return 0;
}

static size_t scratch_scaled(struct cuda_dev *dev, const struct jm_group *group)
{
	(void)dev;
	return (size_t)jm_tensor_count(group->node[0]->out[0]) * sizeof(uint16_t);
}

/* exec->own: the product. */
static int build_scaled(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	int64_t from = jm_tensor_width(n->in[0]), to = jm_tensor_width(n->out[0]);
	int64_t rows = jm_tensor_rows(n->in[0]);
	const struct cuda_gemm product = {
		.a = {n->in[1]->data, JM_F8E4M3, from, to, from, true, 0},
		.b = {n->in[0]->data, JM_F8E4M3, from, rows, from, false, 0},
		.d = {exec->scratch, JM_BF16, to, rows, to, false, 0},
		.k = from,
		.fast_sums = true,
	};

	return cuda_product_new(dev, &product, (struct cuda_product **)&exec->own, err);
}

static int run_scaled(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *node[] = {
		&exec->node[0], &exec->node[1], &exec->node[2], &exec->node[3]};
	struct cuda_quantize_rows p = scaled_rows_of(node, exec->n_nodes, exec->scratch);
	int code = cuda_product_run(dev, exec->own, err);

	if (!code)
		cuda_quantize_rows(&p, dev->stream);
	return code;
}

static void drop_scaled(struct cuda_dev *dev, struct cuda_exec *exec)
{
	cuda_product_free(dev, exec->own);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static int takes_copy(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	const struct jm_tensor *x = n->in[0], *y = n->out[0];
	bool plain = !x->layout.rank && !y->layout.rank;
	bool turned = !x->layout.rank && is_turned(y) && jm_tensor_width(x) % 4 == 0 &&
		      jm_tensor_rows(x) % 4 == 0;

	(void)dev;
	if (cuda_is_f8(x) && x->type == y->type && !n->accumulate && (plain || turned))
		return 0;
	return jm_err_set(err, JM_ENOSUP,
		"Backend cuda copies tensors in 8 bits as they are, or transposed where rows and "
		"columns are multiples of 4.");
}

static int choices_copy(struct cuda_dev *dev, const struct jm_group *group,
	struct jm_choice *choice, struct jm_err *err)
{
	(void)dev;
	(void)err;
	choice->out[0][0] = group->node[0]->out[0]->layout;
	choice->seconds = choice->flops_executed = NAN;
	return 1;
}

static int run_copy(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_tensor *x = exec->node[0].in[0], *y = exec->node[0].out[0];

	if (!is_turned(y))
		return cuda_check(dev,
			cudaMemcpyAsync(
				y->data, x->data, y->bytes, cudaMemcpyDeviceToDevice, dev->stream),
			"Copying a tensor", err);
	cuda_transpose_bytes(x->data, y->data, jm_tensor_rows(x), jm_tensor_width(x), dev->stream);
	return 0;
}

const struct cuda_op cuda_ops_quantize[] = {
	{{JM_OP_LINEAR, JM_OP_ADD, JM_OP_RMSNORM, JM_OP_QUANTIZE}, 4, takes_scaled, NULL,
		scratch_scaled, build_scaled, run_scaled, drop_scaled},
	{{JM_OP_LINEAR, JM_OP_SWIGLU, JM_OP_QUANTIZE}, 3, takes_scaled, NULL, scratch_scaled,
		build_scaled, run_scaled, drop_scaled},
	{{JM_OP_ADD, JM_OP_RMSNORM, JM_OP_QUANTIZE}, 3, takes_rows, NULL, NULL, NULL, run_rows,
		NULL},
	{{JM_OP_RMSNORM, JM_OP_QUANTIZE}, 2, takes_rows, NULL, NULL, NULL, run_rows, NULL},
	{{JM_OP_SWIGLU, JM_OP_QUANTIZE}, 2, takes_rows, NULL, NULL, NULL, run_rows, NULL},
	{{JM_OP_QUANTIZE}, 1, takes_rows, NULL, NULL, NULL, run_rows, NULL},
	{{JM_OP_QUANTIZE}, 1, takes, NULL, scratch, NULL, run, NULL},
	{{JM_OP_RESCALE}, 1, NULL, NULL, NULL, NULL, run_rescale, NULL},
	{{JM_OP_CAST}, 1, takes_copy, choices_copy, NULL, NULL, run_copy, NULL},
	{.n_nodes = 0},
};
