/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention with wide heads of backend cuda without a GPU: the products and the softmax that the op
 * starts are computed below on the host, and the result is compared with the definition of
 * attention. The test is built with a small limit of the scores in memory, so that an op has
 * several steps.
 */
#include "backends/cuda/kernels/softmax.h"
#include "backends/cuda/ops/gemm.h"
#include "backends/cuda/ops/op_rows.h"
#include "engine/graph/tensor.h"
#include "kit/test.h"

#define DEPTH 264
#define WIDE  (&cuda_ops_attention_wide[0])

static int products, softmaxes; /* products that are kept; softmaxes that ran */

/* ---- elements -------------------------------------------------------------------------------- */

static float get(const void *data, bool half, int64_t i)
{
	uint32_t bits;
	float x;

	if (!half)
		return ((const float *)data)[i];
	bits = (uint32_t)((const uint16_t *)data)[i] << 16;
	memcpy(&x, &bits, sizeof x);
	return x;
}

static void put(void *data, bool half, int64_t i, double value)
{
	float x = (float)value;
	uint32_t bits;

	if (!half) {
		((float *)data)[i] = x;
		return;
	}
	memcpy(&bits, &x, sizeof bits);
	((uint16_t *)data)[i] = (uint16_t)((bits + 0x8000) >> 16);
}

/* ---- fakes ----------------------------------------------------------------------------------- */

struct cuda_product {
	struct cuda_gemm gemm;
};

int cuda_product_new(struct cuda_dev *dev, const struct cuda_gemm *gemm, struct cuda_product **ret,
	struct jm_err *err)
{
	(void)dev, (void)err;
	*ret = malloc(sizeof **ret);
	assert_non_null(*ret);
	(*ret)->gemm = *gemm;
	products++;
	return 0;
}

void cuda_product_free(struct cuda_dev *dev, struct cuda_product *p)
{
	(void)dev;
	products -= p != NULL;
	free(p);
}

static double element(const struct cuda_matrix *m, int64_t batch, int64_t row, int64_t column)
{
	return get(m->data, m->type == JM_BF16, batch * m->each + column * m->stride + row);
}

int cuda_product_run(struct cuda_dev *dev, const struct cuda_product *p, struct jm_err *err)
{
	const struct cuda_gemm *g = &p->gemm;
	int64_t size = g->d.rows * g->d.columns;

	(void)dev, (void)err;
	for (int64_t at = 0; at < g->batches * size; at++) {
		int64_t batch = at / size, row = at % g->d.rows, column = at % size / g->d.rows;
		double sum = 0;

		for (int64_t i = 0; i < g->k; i++)
			sum += element(&g->a, batch, g->a.transposed ? i : row,
				       g->a.transposed ? row : i) *
			       element(&g->b, batch, i, column);
		put(g->d.data, g->d.type == JM_BF16, batch * g->d.each + column * g->d.stride + row,
			sum);
	}
	return 0;
}

void cuda_softmax(const struct cuda_softmax *p, cudaStream_t stream)
{
	(void)stream;
	softmaxes++;
	for (int64_t at = 0; at < p->sequences * p->rows; at++) {
		int64_t row = at % p->rows, end = p->causal ? p->first + row + 1 : p->keys;
		float *s = p->scores + at * p->pitch;
		double total = 0;

		for (int64_t i = 0; i < end; i++)
			total += exp(p->scale * s[i]);
		for (int64_t i = 0; i < p->keys; i++)
			put(s, p->type == CUDA_BF16, i, i < end ? exp(p->scale * s[i]) / total : 0);
		p->lse[at / p->rows * p->lse_each + row] = (float)log(total);
	}
}

/* ---- a node ---------------------------------------------------------------------------------- */

struct shape {
	enum jm_dtype type;
	int64_t batch, seq, keys;
	int heads, groups;
	bool packed, causal;
};

static struct jm_tensor tensor(
	enum jm_dtype type, int64_t batch, int64_t seq, int64_t width, bool random)
{
	int64_t count = batch * seq * width;
	struct jm_tensor t = {.type = type, .rank = 3, .dim = {batch, seq, width}};

	t.data = calloc((size_t)count, jm_dtype_bytes(type));
	assert_non_null(t.data);
	for (int64_t i = 0; i < count && random; i++)
		put(t.data, type == JM_BF16, i, (double)(i * 7919 % 1009) / 500 - 1);
	return t;
}

struct kit {
	struct jm_node node;
	struct jm_tensor q, k, v, y, lse;
};

static void set(struct kit *t, const struct shape *s)
{
	int64_t q = s->heads * DEPTH, k = s->groups * DEPTH, all = q + 2 * k;

	t->y = tensor(s->type, s->batch, s->seq, q, false);
	t->lse = tensor(JM_F32, s->batch, s->heads, s->seq, false);
	t->q = tensor(s->type, s->batch, s->seq, s->packed ? all : q, true);
	t->k = tensor(s->type, s->batch, s->keys, k, true);
	t->v = tensor(s->type, s->batch, s->keys, k, true);
	t->node = (struct jm_node){.op = JM_OP_ATTENTION, .n_in = 3, .n_out = 2};
	t->node.in[0] = &t->q;
	t->node.in[1] = s->packed ? &t->q : &t->k;
	t->node.in[2] = s->packed ? &t->q : &t->v;
	t->node.out[0] = &t->y;
	t->node.out[1] = &t->lse;
	if (s->packed)
		jm_attention_pack(&t->node, s->heads, s->groups);
	else { /* heads precede positions */
		t->node.attr.attention.heads = s->heads;
		t->node.attr.attention.kv_heads = s->groups;
		t->node.attr.attention.depth = DEPTH;
		t->node.attr.attention.keys = s->keys;
		t->node.attr.attention.q = (struct jm_view){0, s->seq * q, DEPTH, s->seq * DEPTH};
		t->node.attr.attention.k = (struct jm_view){0, s->keys * k, DEPTH, s->keys * DEPTH};
		t->node.attr.attention.v = t->node.attr.attention.k;
	}
	t->node.attr.attention.causal = s->causal;
	t->node.attr.attention.scale = 0.05;
}

static void clear(struct kit *t)
{
	struct jm_tensor *all[] = {&t->q, &t->k, &t->v, &t->y, &t->lse};

	for (int i = 0; i < 5; i++)
		free(all[i]->data);
}

/* ---- the definition -------------------------------------------------------------------------- */

static double at(const struct jm_tensor *t, const struct jm_view *v, int64_t b, int64_t s,
	int64_t h, int64_t c)
{
	return get(t->data, t->type == JM_BF16,
		v->offset + b * v->batch + s * v->row + h * v->head + c);
}

/* One row of queries of one head. */
static void check_row(const struct kit *t, const struct shape *s, int64_t b, int64_t h, int64_t row)
{
	const struct jm_node *n = &t->node;
	int64_t end = s->causal ? row + 1 : s->keys, g = h / (s->heads / s->groups);
	double weight[256], total = 0, tolerance = s->type == JM_BF16 ? 0.02 : 1e-5;

	for (int64_t i = 0; i < end; i++) {
		double score = 0;

		for (int64_t c = 0; c < DEPTH; c++)
			score += at(n->in[0], &n->attr.attention.q, b, row, h, c) *
				 at(n->in[1], &n->attr.attention.k, b, i, g, c);
		total += weight[i] = exp(score * n->attr.attention.scale);
	}
	assert_near(((float *)t->lse.data)[(b * s->heads + h) * s->seq + row], log(total), 1e-4);
	for (int64_t c = 0; c < DEPTH; c++) {
		double sum = 0, y = get(t->y.data, s->type == JM_BF16,
					((b * s->seq + row) * s->heads + h) * DEPTH + c);

		for (int64_t i = 0; i < end; i++)
			sum += weight[i] / total * at(n->in[2], &n->attr.attention.v, b, i, g, c);
		assert_near(y, sum, tolerance);
	}
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void runs(const struct shape *s, int steps)
{
	struct cuda_dev dev = {0};
	struct kit t;
	struct jm_group group = {.n_nodes = 1, .node = {&t.node}};
	struct cuda_exec exec = {.op = WIDE, .n_nodes = 1};
	struct jm_err err = JM_ERR_INIT;

	set(&t, s);
	exec.node[0] = t.node;
	exec.scratch = malloc(WIDE->scratch(&dev, &group));
	softmaxes = 0;
	assert_ok(WIDE->takes(&dev, &group, &err), err);
	assert_ok(WIDE->build(&dev, &exec, &err), err);
	assert_int_equal(products, 2 * steps);
	assert_ok(WIDE->run(&dev, &exec, &err), err);
	assert_int_equal(softmaxes, steps);
	WIDE->drop(&dev, &exec);
	assert_int_equal(products, 0);
	for (int64_t i = 0; i < s->batch * s->heads * s->seq; i++)
		check_row(&t, s, i / s->seq / s->heads, i / s->seq % s->heads, i % s->seq);
	free(exec.scratch);
	clear(&t);
}

/* Two of five sequences of 9 keys, in rows of 16, at a time. */
static void some_sequences_at_a_time(void **unused)
{
	(void)unused;
	assert_int_equal(CUDA_SCORES, 300);
	runs(&(struct shape){JM_F32, 5, 9, 9, 1, 1, true, false}, 3);
	runs(&(struct shape){JM_BF16, 5, 9, 9, 4, 2, true, true}, 12);
	runs(&(struct shape){JM_BF16, 5, 9, 13, 2, 1, false, false}, 6);
}

/* 128 rows of a sequence at a time, which are too many for the limit but the least. */
static void some_rows_at_a_time(void **unused)
{
	(void)unused;
	runs(&(struct shape){JM_F32, 2, 150, 17, 1, 1, false, false}, 4);
	runs(&(struct shape){JM_BF16, 1, 140, 140, 1, 1, true, true}, 2);
}

static void narrow_heads_gradients_and_sums_are_refused(void **unused)
{
	struct cuda_dev dev = {0};
	struct kit t;
	struct jm_group group = {.n_nodes = 1, .node = {&t.node}};

	(void)unused;
	set(&t, &(struct shape){JM_F32, 1, 2, 2, 1, 1, true, false});
	assert_int_equal(WIDE->takes(&dev, &group, NULL), 0);
	t.node.accumulate = 1;
	assert_int_not_equal(WIDE->takes(&dev, &group, NULL), 0);
	t.node.accumulate = 0;
	t.node.in[3] = &t.lse;
	assert_int_not_equal(WIDE->takes(&dev, &group, NULL), 0);
	t.node.in[3] = NULL;
	t.node.attr.attention.depth = 256;
	assert_int_not_equal(WIDE->takes(&dev, &group, NULL), 0);
	clear(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(some_sequences_at_a_time),
		cmocka_unit_test(some_rows_at_a_time),
		cmocka_unit_test(narrow_heads_gradients_and_sums_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
