/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear and its gradients; factors in 8 bits are widened into scratch first. Each is one product c
 * = a b, described by struct cpu_gemm, which oneDNN or the backend's own gemm runs, whichever is
 * faster (see own_is_faster).
 *
 * An activation after a product is not fused with it: oneDNN cannot keep its input, which the
 * backward pass needs, and the own gemm was 2 to 4 % slower with a fused activation than with a
 * separate pass over memory (gelu of 1024 x 3072 sums of 768 products, bf16, one thread of a
 * Sapphire Rapids).
 */
#include <stdlib.h>

#include "backends/cpu/device/peak.h"
#include "ops_quantize.h"

typedef void own_gemm(const struct cpu_gemm *g);

struct product {
	struct cpu_gemm gemm;
	own_gemm *own;		    /* NULL: the primitive runs */
	dnnl_primitive_t primitive; /* of oneDNN */
	dnnl_exec_arg_t arg[5];
	int n_args;
};

/* ---- the three products ---------------------------------------------------------------------- */

static struct cpu_matrix matrix(const struct jm_tensor *t, bool transposed)
{
	return (struct cpu_matrix){
		.data = t->data,
		.bf16 = t->type == JM_BF16,
		.transposed = transposed,
		.ld = jm_tensor_width(t),
	};
}

static void set_result(struct cpu_gemm *g, const struct jm_tensor *t, bool accumulate)
{
	g->c = t->data;
	g->c_bf16 = t->type == JM_BF16;
	g->ldc = jm_tensor_width(t);
	g->accumulate = accumulate;
}

/*
 * y[T,N] = x[T,K] w[N,K]^T, dx[T,K] = dy[T,N] w[N,K], dw[N,K] = dy[T,N]^T x[T,K]. In select
 * operands have no addresses yet, so has_bias tells whether there is a bias.
 */
static struct cpu_gemm describe(const struct cpu_dev *dev, const struct jm_node *node)
{
	const struct jm_tensor *a = node->in[0], *b = node->in[1];
	bool forward = node->op == JM_OP_LINEAR, weights = node->op == JM_OP_LINEAR_WGRAD;
	struct cpu_gemm g = {
		.a = matrix(a, weights),
		.b = matrix(b, forward),
		.m = weights ? jm_tensor_width(a) : jm_tensor_rows(a),
		.n = forward ? b->dim[0] : jm_tensor_width(b),
		.k = weights ? jm_tensor_rows(a) : jm_tensor_width(a),
		.threads = dev->threads,
	};

	set_result(&g, node->out[0], jm_node_adds(node, 0));
	if (forward)
		g.bias = cpu_data(node->in[2]);
	return g;
}

static bool has_bias(const struct jm_node *node)
{
	return node->op == JM_OP_LINEAR && node->in[2];
}

/* With tiles, sums of 63 products are an illegal instruction in oneDNN 2.6.3, for most numbers of
 * rows and columns; of 1 to 200 products no others are. */
static bool onednn_fails(const struct cpu_gemm *g)
{
	return g->a.bf16 && g->k == 63 && cpu_has_tiles();
}

/*
 * Measured on two cores of a Sapphire Rapids without tiles, GFLOP/s of 354 (f32 multiply-adds): own
 * gemm about 300 for either type; oneDNN 300 to 340 in f32, but 170 in bf16 (its dot product
 * instruction takes two cycles there), 140 in f32 where rows of b are a multiple of 4 KiB apart
 * (one cache set), and 245 to 290 with a vocabulary of 50257.
 */
static bool own_is_faster(const struct cpu_dev *dev, const struct cpu_gemm *g)
{
	double flops = 2. * (double)g->m * (double)g->n * (double)g->k;

	if (g->a.bf16 != g->b.bf16 || (!g->a.bf16 && g->c_bf16))
		return true; /* oneDNN does not support this mix of types */
	if (g->a.bf16)
		return !dev->fast_bf16;
	return dev->kernels->wide && ((!g->b.transposed && g->b.ld % 1024 == 0) || flops > 5e10);
}

/* ---- oneDNN ---------------------------------------------------------------------------------- */

static int fail(struct jm_err *err, dnnl_status_t status)
{
	return jm_err_set(err, status == dnnl_out_of_memory ? JM_ENOMEM : JM_ENOSUP,
		"oneDNN cannot run a product (its status %d).", (int)status);
}

static dnnl_status_t describe_matrix(
	const struct cpu_matrix *x, int64_t rows, int64_t columns, dnnl_memory_desc_t *ret)
{
	dnnl_dims_t dims = {rows, columns};
	dnnl_dims_t strides = {x->transposed ? 1 : x->ld, x->transposed ? x->ld : 1};

	return dnnl_memory_desc_init_by_strides(
		ret, 2, dims, x->bf16 ? dnnl_bf16 : dnnl_f32, strides);
}

/* oneDNN uses scratch of the engine's arena; c += is a sum after the product. */
static dnnl_status_t attributes(const struct cpu_gemm *g, dnnl_primitive_attr_t *ret)
{
	dnnl_post_ops_t after = NULL;
	dnnl_status_t s = dnnl_primitive_attr_create(ret);

	if (!s)
		s = dnnl_primitive_attr_set_scratchpad_mode(*ret, dnnl_scratchpad_mode_user);
	if (!s && g->accumulate)
		s = dnnl_post_ops_create(&after);
	if (!s && g->accumulate)
		s = dnnl_post_ops_append_sum(after, 1.f);
	if (!s && g->accumulate)
		s = dnnl_primitive_attr_set_post_ops(*ret, after);
	dnnl_post_ops_destroy(after);
	return s;
}

static dnnl_status_t primitive_desc(const struct cpu_dev *dev, const struct cpu_gemm *g,
	bool with_bias, dnnl_primitive_desc_t *ret)
{
	struct cpu_matrix result = {.bf16 = g->c_bf16, .ld = g->ldc};
	dnnl_memory_desc_t a, b, c, bias;
	dnnl_dims_t columns = {1, g->n};
	dnnl_primitive_attr_t attr = NULL;
	dnnl_matmul_desc_t matmul;
	dnnl_status_t s = describe_matrix(&g->a, g->m, g->k, &a);

	if (!s)
		s = describe_matrix(&g->b, g->k, g->n, &b);
	if (!s)
		s = describe_matrix(&result, g->m, g->n, &c);
	if (!s)
		s = dnnl_memory_desc_init_by_tag(&bias, 2, columns, dnnl_f32, dnnl_ab);
	if (!s)
		s = dnnl_matmul_desc_init(&matmul, &a, &b, with_bias ? &bias : NULL, &c);
	if (!s)
		s = attributes(g, &attr);
	if (!s)
		s = dnnl_primitive_desc_create(ret, &matmul, attr, dev->engine, NULL);
	dnnl_primitive_attr_destroy(attr);
	return s;
}

static dnnl_status_t add_arg(const struct cpu_dev *dev, struct product *p,
	const_dnnl_primitive_desc_t pd, dnnl_query_t what, int arg, int index, void *data)
{
	const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, what, index);
	dnnl_memory_t memory;
	dnnl_status_t s;

	if (!md || !dnnl_memory_desc_get_size(md))
		return dnnl_success;
	s = dnnl_memory_create(&memory, md, dev->engine, data);
	if (!s)
		p->arg[p->n_args++] = (dnnl_exec_arg_t){arg, memory};
	return s;
}

static dnnl_status_t add_args(
	const struct cpu_dev *dev, struct product *p, const_dnnl_primitive_desc_t pd)
{
	const struct cpu_gemm *g = &p->gemm;
	dnnl_status_t s;

	s = add_arg(dev, p, pd, dnnl_query_src_md, DNNL_ARG_SRC, 0, (void *)g->a.data);
	if (!s)
		s = add_arg(
			dev, p, pd, dnnl_query_weights_md, DNNL_ARG_WEIGHTS, 0, (void *)g->b.data);
	if (!s && g->bias)
		s = add_arg(dev, p, pd, dnnl_query_weights_md, DNNL_ARG_BIAS, 1, (void *)g->bias);
	if (!s)
		s = add_arg(dev, p, pd, dnnl_query_dst_md, DNNL_ARG_DST, 0, g->c);
	if (!s)
		s = add_arg(
			dev, p, pd, dnnl_query_scratchpad_md, DNNL_ARG_SCRATCHPAD, 0, g->scratch);
	return s;
}

static dnnl_status_t build_primitive(const struct cpu_dev *dev, struct product *p)
{
	dnnl_primitive_desc_t pd = NULL;
	dnnl_status_t s = primitive_desc(dev, &p->gemm, p->gemm.bias, &pd);

	if (!s)
		s = dnnl_primitive_create(&p->primitive, pd);
	if (!s)
		s = add_args(dev, p, pd);
	dnnl_primitive_desc_destroy(pd);
	return s;
}

#define LONG_ELEMENTS 8192 /* of a result, at most */

/*
 * A small gradient of weights from many rows, whose sums are in f64 then: with oneDNN, which adds
 * up to 384 rows in f32, its error was 2.7 times that of PyTorch 1.13 at 360 rows.
 */
static bool is_long(const struct cpu_gemm *g)
{
	return g->a.transposed && !g->b.transposed && !g->a.bf16 && !g->b.bf16 && !g->c_bf16 &&
	       g->m * g->n <= LONG_ELEMENTS && g->k > 64;
}

/*
 * One core of a Zen 4, 3072 x 768 of b from its caches, GFLOP/s of few_rows and of oneDNN: f32, 1
 * row 40 and 16, 8 rows 92 and 63, 32 rows 79 and 77; bf16, 1 row 60 and 31, 4 rows 97 and 98, 32
 * rows 91 and 195.
 */
static bool is_few(const struct cpu_dev *dev, const struct cpu_gemm *g)
{
	int64_t most = g->a.bf16 && g->b.bf16 && dev->fast_bf16 ? 4 : 32;

	return g->m <= most && !g->a.transposed && g->b.transposed;
}

static bool is_f32(const struct cpu_gemm *g)
{
	return !g->a.bf16 && !g->b.bf16 && !g->c_bf16;
}

#define BATCH 32 /* at most */

/*
 * Two cores of a Sapphire Rapids, 4096 x 9216 weights in f32, ms of a thin product and of what ran
 * before it: 32 rows forward 9.3 and 19 (few_rows), gradient of x 13.5 and 35 (gemm), of weights 11
 * and 23 (gemm); 4 rows and 4096 x 25088 weights, gradient of x 21 and 71, of weights 12 and 67.
 */
static own_gemm *thin_of(const struct cpu_dev *dev, const struct cpu_gemm *g, size_t *ret_scratch)
{
	const struct cpu_thin *thin = dev->kernels->thin;

	if (!is_f32(g) || !dev->kernels->wide)
		return NULL;
	if (!g->a.transposed && g->b.transposed && g->m > BATCH / 4 && g->m <= BATCH) {
		*ret_scratch = thin->rows_scratch(g);
		return thin->rows;
	}
	if (!g->a.transposed && !g->b.transposed && g->m <= BATCH && g->k > 2 * BATCH) {
		*ret_scratch = thin->gradient_scratch(g);
		return thin->gradient;
	}
	if (g->a.transposed && !g->b.transposed && g->k <= BATCH && g->m > 2 * BATCH) {
		*ret_scratch = thin->outer_scratch(g);
		return thin->outer;
	}
	return NULL;
}

/* The own kernel for a product, also if oneDNN refuses it; NULL: oneDNN's. */
static own_gemm *own_of(
	const struct cpu_dev *dev, const struct cpu_gemm *g, bool with_bias, size_t *ret_scratch)
{
	const struct cpu_kernels *own = dev->kernels;
	own_gemm *thin = thin_of(dev, g, ret_scratch);
	dnnl_primitive_desc_t pd = NULL;
	const dnnl_memory_desc_t *md;

	if (thin)
		return thin;
	if (is_long(g)) {
		*ret_scratch = own->gemms->long_scratch(g);
		return own->gemms->long_gemm;
	}
	if (is_few(dev, g)) {
		*ret_scratch = own->few_rows->scratch(g);
		return own->few_rows->gemm;
	}
	if (onednn_fails(g) || own_is_faster(dev, g) || primitive_desc(dev, g, with_bias, &pd)) {
		*ret_scratch = own->gemms->scratch(g);
		return own->gemms->gemm;
	}
	md = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
	*ret_scratch = md ? dnnl_memory_desc_get_size(md) : 0;
	dnnl_primitive_desc_destroy(pd);
	return NULL;
}

/* ---- the ops --------------------------------------------------------------------------------- */

/* The bytes of operand i widened to f32; 0 unless it has 8 bits. */
static size_t widened(const struct jm_node *node, int i)
{
	size_t bytes = (size_t)jm_tensor_count(node->in[i]) * sizeof(float);

	return cpu_is_f8(node->in[i]) ? (bytes + 63) / 64 * 64 : 0;
}

static size_t scratch(const struct cpu_dev *dev, const struct jm_node *node)
{
	struct cpu_gemm g = describe(dev, node);
	size_t bytes;

	own_of(dev, &g, has_bias(node), &bytes);
	return widened(node, 0) + widened(node, 1) + bytes;
}

static void drop(struct cpu_exec *exec)
{
	struct product *p = exec->own;

	if (!p)
		return;
	dnnl_primitive_destroy(p->primitive);
	for (int i = 0; i < p->n_args; i++)
		dnnl_memory_destroy(p->arg[i].memory);
	free(p);
	exec->own = NULL;
}

static int build(const struct cpu_dev *dev, struct cpu_exec *exec, struct jm_err *err)
{
	struct product *p = calloc(1, sizeof *p);
	size_t wide = widened(&exec->node[0], 0) + widened(&exec->node[0], 1), bytes;
	dnnl_status_t s;

	if (!p)
		return jm_err_set(
			err, JM_ENOMEM, "Out of memory for the description of a product.");
	exec->own = p;
	p->gemm = describe(dev, &exec->node[0]);
	p->gemm.scratch = (char *)exec->scratch + wide;
	if (wide) {
		p->gemm.a.data = exec->scratch;
		p->gemm.b.data = (char *)exec->scratch + widened(&exec->node[0], 0);
	}
	p->own = own_of(dev, &p->gemm, p->gemm.bias, &bytes);
	if (p->own)
		return 0;
	if (wide + bytes > exec->scratch_bytes)
		return jm_err_set(err, JM_EBUG,
			"oneDNN needs %zu bytes of scratch for a product, not the %zu that select "
			"reported.",
			bytes, exec->scratch_bytes);
	s = build_primitive(dev, p);
	return s ? fail(err, s) : 0;
}

static void widen(const struct cpu_dev *dev, const struct cpu_exec *exec)
{
	const struct jm_node *n = &exec->node[0];
	int scales = n->op == JM_OP_LINEAR ? 3 : 2;
	char *at = exec->scratch;

	for (int i = 0; i < 2 && cpu_is_f8(n->in[i]); i++, at += widened(n, 0))
		cpu_f8_widen(n->in[i], n->in[scales + i], (float *)(void *)at, dev->threads);
}

static int run(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct product *p = exec->own;
	dnnl_status_t s;

	widen(dev, exec);
	if (p->own) {
		p->own(&p->gemm);
		return 0;
	}
	s = dnnl_primitive_execute(p->primitive, dev->stream, p->n_args, p->arg);
	if (!s)
		s = dnnl_stream_wait(dev->stream);
	return s ? fail(err, s) : 0;
}

static int run_wgrad(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *node = &exec->node[0];
	const struct jm_tensor *dy = node->in[0];
	struct cpu_vec x = cpu_is_f8(dy) ? (struct cpu_vec){exec->scratch, false} : cpu_vec(dy);
	int code = run(dev, exec, err);

	if (!code && node->n_out > 1 && node->out[1])
		dev->kernels->rows->sum(x, node->out[1]->data, jm_tensor_rows(dy),
			jm_tensor_width(dy), jm_node_adds(node, 1), dev->threads);
	return code;
}

const struct cpu_op cpu_op_linear = {{JM_OP_LINEAR}, 1, NULL, scratch, build, run, drop};
const struct cpu_op cpu_op_linear_dgrad = {
	{JM_OP_LINEAR_DGRAD}, 1, NULL, scratch, build, run, drop};
const struct cpu_op cpu_op_linear_wgrad = {
	{JM_OP_LINEAR_WGRAD}, 1, NULL, scratch, build, run_wgrad, drop};
