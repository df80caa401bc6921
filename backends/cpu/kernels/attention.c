/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over views of q, k and v, forward and backward, without the S x S matrix: tiles of KEYS
 * keys and ROWS queries, a running maximum and sum per query (arXiv 2205.14135, 2307.08691).
 *
 * Tiles are f32 in the second-level cache; bf16 is widened when a tile is loaded. D is padded with
 * zeros to DP, a multiple of two vectors; a row of scores has PITCH floats, so that the columns of
 * a tile do not share a cache set.
 */
#include "kernel_set.h"
#include "attention_tile.h"

#include <math.h>
#include <omp.h>

enum { ROWS = 64, KEYS = 256, PITCH = KEYS + 16 };

static int64_t place(const struct cpu_view *v, int64_t b, int64_t s, int64_t h)
{
	return v->offset + b * v->batch + s * v->row + h * v->head;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Loads rows of one head as y[n][dp] in f32; at: offset of the first row, ld: elements between
 * rows. */
static void load_rows(
	struct cpu_vec x, int64_t at, int64_t ld, int64_t n, int64_t d, int64_t dp, float *y)
{
	for (int64_t i = 0; i < n; i++) {
		jm_load(x.data, x.bf16, (size_t)(at + i * ld), (size_t)d, y + i * dp);
		memset(y + i * dp + d, 0, (size_t)(dp - d) * sizeof *y);
	}
}

/* The memory of one thread, a part of scratch. */
struct tiles {
	float *k, *v;	     /* [KEYS][dp] */
	float *kt, *vt;	     /* [dp][PITCH] */
	float *q, *y;	     /* [KEYS][dp] */
	float *dy;	     /* [ROWS][dp] */
	float *p, *dp;	     /* [ROWS][PITCH]: probabilities, their gradient */
	float *max, *sum;    /* [KEYS] */
	float *dq, *dk, *dv; /* [S][dp], [T][dp], [T][dp], backward only */
};

/* Divides base into tiles and returns the number of floats; base NULL: only counts. */
static int64_t cut(const struct cpu_attention *a, bool grad, float *base, struct tiles *t)
{
	int64_t dp = jm_up(a->head, JM_WIDE);
	int64_t queries = jm_up(a->seq, KEYS) * dp, keys = jm_up(a->keys, KEYS) * dp;
	const struct jm_part part[] = {{&t->k, KEYS * dp}, {&t->v, KEYS * dp}, {&t->kt, PITCH * dp},
		{&t->vt, PITCH * dp}, {&t->q, KEYS * dp}, {&t->dy, ROWS * dp}, {&t->y, KEYS * dp},
		{&t->p, ROWS * PITCH}, {&t->dp, ROWS * PITCH}, {&t->max, KEYS}, {&t->sum, KEYS},
		{&t->dq, queries}, {&t->dk, keys}, {&t->dv, keys}};

	return jm_cut(base, part, sizeof part / sizeof *part - (grad ? 0 : 3));
}

static size_t attention_scratch(const struct cpu_attention *a, bool grad, int threads)
{
	struct tiles t;

	return (size_t)(cut(a, grad, NULL, &t) * threads) * sizeof(float);
}

static struct tiles tiles_of_thread(const struct cpu_attention *a, bool grad)
{
	struct tiles t;
	int64_t each = cut(a, grad, NULL, &t);

	cut(a, grad, (float *)a->scratch + each * omp_get_thread_num(), &t);
	return t;
}

/* The number of keys in the tile from t0 on that any of the n queries from s0 on sees. */
static int64_t seen(const struct cpu_attention *a, int64_t s0, int64_t n, int64_t t0)
{
	int64_t end = a->causal ? jm_min64(a->keys, s0 + n) : a->keys;

	return jm_min64(KEYS, end - t0);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Handles queries s0 .. s0 + n, the first of which is row i0 of t->q, and the keys in t->kt and
 * t->v. */
static void forward_tile(const struct cpu_attention *a, const struct tiles *t, int64_t i0,
	int64_t s0, int64_t n, int64_t t0)
{
	int64_t dp = jm_up(a->head, JM_WIDE), keys = seen(a, s0, n, t0),
		cols = jm_up(keys, JM_WIDE);
	int64_t rows = jm_up(n, JM_ROWS);

	jm_product(rows, cols, dp, t->q + i0 * dp, dp, 1, t->kt, PITCH, t->p, PITCH, false);
	for (int64_t i = 0; i < n; i++) {
		int64_t m = a->causal ? jm_min64(keys, s0 + i - t0 + 1) : keys;
		jm_soften(t->p + i * PITCH, m, cols, (float)a->scale, t->max + i0 + i,
			t->sum + i0 + i, t->y + (i0 + i) * dp, dp);
	}
	jm_product(rows, dp, keys, t->p, PITCH, 1, t->v, dp, t->y + i0 * dp, dp, true);
}

static void forward_end(const struct cpu_attention *a, const struct tiles *t, int64_t b, int64_t h,
	int64_t s0, int64_t n)
{
	int64_t dp = jm_up(a->head, JM_WIDE);

	for (int64_t i = 0; i < n; i++) {
		float *y = t->y + i * dp, one = 1.f / t->sum[i];
		int64_t at = ((b * a->seq + s0 + i) * a->heads + h) * a->head;
		for (int64_t d = 0; d < a->head; d++)
			y[d] *= one;
		jm_store(a->y.data, a->y.bf16, (size_t)at, (size_t)a->head, y);
		a->lse[(b * a->heads + h) * a->seq + s0 + i] = t->max[i] + logf(t->sum[i]);
	}
}

/* Handles at most KEYS queries of one head of one sequence. */
static void forward_queries(
	const struct cpu_attention *a, const struct tiles *t, int64_t b, int64_t h, int64_t s0)
{
	int64_t n = jm_min64(KEYS, a->seq - s0), d = a->head, dp = jm_up(d, JM_WIDE);
	int64_t g = h / (a->heads / a->groups), end = a->causal ? s0 + n : a->keys;

	load_rows(a->q, place(&a->q_view, b, s0, h), a->q_view.row, n, d, dp, t->q);
	memset(t->y, 0, (size_t)(KEYS * dp) * sizeof(float));
	for (int64_t i = 0; i < KEYS; i++) {
		t->max[i] = -INFINITY;
		t->sum[i] = 0;
	}
	for (int64_t t0 = 0; t0 < end; t0 += KEYS) {
		int64_t keys = jm_min64(KEYS, end - t0);
		load_rows(a->k, place(&a->k_view, b, t0, g), a->k_view.row, keys, d, dp, t->k);
		load_rows(a->v, place(&a->v_view, b, t0, g), a->v_view.row, keys, d, dp, t->v);
		jm_turn(t->k, keys, dp, t->kt, PITCH);
		for (int64_t i = 0; i < n; i += ROWS)
			forward_tile(a, t, i, s0 + i, jm_min64(ROWS, n - i), t0);
	}
	forward_end(a, t, b, h, s0, n);
}

static void attention(const struct cpu_attention *a, int threads)
{
	int64_t blocks = (a->seq + KEYS - 1) / KEYS;

#pragma omp parallel num_threads(threads)
	{
		struct tiles t = tiles_of_thread(a, false);

#pragma omp for schedule(dynamic) collapse(3)
		for (int64_t b = 0; b < a->batch; b++) {
			for (int64_t h = 0; h < a->heads; h++) {
				for (int64_t i = 0; i < blocks; i++)
					forward_queries(a, &t, b, h, (blocks - 1 - i) * KEYS);
			}
		}
	}
}

/* ---- backward -------------------------------------------------------------------------------- */

/*
 * p = exp(scores scale - lse); dp is replaced by the gradient of the scores, p (dp - delta) scale,
 * with delta = dy . y of this query.
 */
static void backward_row(float *restrict p, float *restrict dp, int64_t n, int64_t pad, float scale,
	float lse, float delta)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		p[i] = jm_exp(p[i] * scale - lse);
		dp[i] = p[i] * (dp[i] - delta) * scale;
	}
	for (int64_t i = n; i < pad; i++)
		p[i] = dp[i] = 0;
}

static float dot(const float *x, const float *y, int64_t n)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++)
		sum += x[i] * y[i];
	return sum;
}

/* Handles queries s0 .. s0 + n, whose q, dy and y are loaded, and the tile of keys from t0 on. */
static void backward_tile(const struct cpu_attention *a, const struct tiles *t, const float *lse,
	int64_t s0, int64_t n, int64_t t0, int64_t dp)
{
	int64_t keys = seen(a, s0, n, t0), cols = jm_up(keys, JM_WIDE), rows = jm_up(n, JM_ROWS);

	jm_product(rows, cols, dp, t->q, dp, 1, t->kt, PITCH, t->p, PITCH, false);
	jm_product(rows, cols, dp, t->dy, dp, 1, t->vt, PITCH, t->dp, PITCH, false);
	for (int64_t i = 0; i < n; i++) {
		int64_t m = a->causal ? jm_min64(keys, s0 + i - t0 + 1) : keys;
		backward_row(t->p + i * PITCH, t->dp + i * PITCH, m, cols, (float)a->scale,
			lse[s0 + i], t->sum[i]);
	}
	jm_product(rows, dp, keys, t->dp, PITCH, 1, t->k, dp, t->dq + s0 * dp, dp, true);
	jm_product(
		jm_up(keys, JM_ROWS), dp, n, t->dp, 1, PITCH, t->q, dp, t->dk + t0 * dp, dp, true);
	jm_product(
		jm_up(keys, JM_ROWS), dp, n, t->p, 1, PITCH, t->dy, dp, t->dv + t0 * dp, dp, true);
}

static void store_rows(const struct cpu_attention *a, const float *x, int64_t rows,
	struct cpu_vec to, int64_t at, int64_t ld)
{
	int64_t dp = jm_up(a->head, JM_WIDE);

	for (int64_t s = 0; s < rows; s++) {
		float row[JM_VL * 64];
		for (int64_t d = 0; d < a->head; d += JM_VL * 64) {
			size_t n = (size_t)jm_min64(JM_VL * 64, a->head - d);
			memcpy(row, x + s * dp + d, n * sizeof *row);
			jm_emit(to.data, to.bf16, a->accumulate & JM_ADD_OUT,
				(size_t)(at + s * ld + d), n, row);
		}
	}
}

/* Handles all queries of head h and the tile of keys from t0 on. */
static void backward_keys(
	const struct cpu_attention *a, const struct tiles *t, int64_t b, int64_t h, int64_t t0)
{
	int64_t d = a->head, dp = jm_up(d, JM_WIDE), g = h / (a->heads / a->groups),
		keys = jm_min64(KEYS, a->keys - t0);

	load_rows(a->k, place(&a->k_view, b, t0, g), a->k_view.row, keys, d, dp, t->k);
	load_rows(a->v, place(&a->v_view, b, t0, g), a->v_view.row, keys, d, dp, t->v);
	jm_turn(t->k, keys, dp, t->kt, PITCH);
	jm_turn(t->v, keys, dp, t->vt, PITCH);
	for (int64_t s0 = a->causal ? t0 : 0; s0 < a->seq; s0 += ROWS) {
		int64_t n = jm_min64(ROWS, a->seq - s0),
			out = ((b * a->seq + s0) * a->heads + h) * d;
		load_rows(a->q, place(&a->q_view, b, s0, h), a->q_view.row, n, d, dp, t->q);
		load_rows(a->dy, out, a->heads * d, n, d, dp, t->dy);
		load_rows(a->y, out, a->heads * d, n, d, dp, t->y);
		for (int64_t i = 0; i < n; i++)
			t->sum[i] = dot(t->dy + i * dp, t->y + i * dp, d);
		backward_tile(a, t, a->lse + (b * a->heads + h) * a->seq, s0, n, t0, dp);
	}
}

/* Handles one key/value head of one sequence with all its queries. */
static void backward_group(
	const struct cpu_attention *a, const struct tiles *t, int64_t b, int64_t g)
{
	size_t each = (size_t)jm_up(a->head, JM_WIDE) * sizeof(float);
	size_t queries = (size_t)jm_up(a->seq, KEYS) * each,
	       keys = (size_t)jm_up(a->keys, KEYS) * each;

	memset(t->dk, 0, keys);
	memset(t->dv, 0, keys);
	for (int64_t i = 0, n = a->heads / a->groups; i < n; i++) {
		int64_t h = g * n + i;
		memset(t->dq, 0, queries);
		for (int64_t t0 = 0; t0 < a->keys; t0 += KEYS)
			backward_keys(a, t, b, h, t0);
		store_rows(a, t->dq, a->seq, a->dq, place(&a->q_view, b, 0, h), a->q_view.row);
	}
	store_rows(a, t->dk, a->keys, a->dk, place(&a->k_view, b, 0, g), a->k_view.row);
	store_rows(a, t->dv, a->keys, a->dv, place(&a->v_view, b, 0, g), a->v_view.row);
}

static void attention_grad(const struct cpu_attention *a, int threads)
{
#pragma omp parallel num_threads(threads)
	{
		struct tiles t = tiles_of_thread(a, true);

#pragma omp for schedule(dynamic) collapse(2)
		for (int64_t b = 0; b < a->batch; b++) {
			for (int64_t g = 0; g < a->groups; g++)
				backward_group(a, &t, b, g);
		}
	}
}

const struct cpu_attentions JM_CPU(cpu_attentions) = {attention_scratch, attention, attention_grad};
