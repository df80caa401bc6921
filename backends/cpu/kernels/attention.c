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
#include "panel.h"

#include <math.h>
#include <omp.h>

enum { ROWS = 64, KEYS = 256, PITCH = KEYS + 16, WIDE = 2 * JM_VL };

static int64_t min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t up(int64_t n, int64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

static int64_t place(const struct cpu_view *v, int64_t b, int64_t s, int64_t h)
{
	return v->offset + b * v->batch + s * v->row + h * v->head;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* c[rows,cols] (+)= a b; rows a multiple of JM_ROWS, cols of WIDE. a(i, k) = a[i * ai + k * ak]. */
JM_INLINE void product(int64_t rows, int64_t cols, int64_t nk, const float *a, int64_t ai,
	int64_t ak, const float *b, int64_t ldb, float *c, int64_t ldc, bool add)
{
	for (int64_t i = 0; i < rows; i += JM_ROWS) {
		for (int64_t j = 0; j < cols; j += WIDE)
			jm_micro(2, nk, a + i * ai, ai, ak, b + j, ldb, c + i * ldc + j, ldc, add);
	}
}

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

/* y[dp][PITCH] = transposed x[KEYS][dp]; rows of x from n on are taken as zeros. */
static void turn(const float *x, int64_t n, int64_t dp, float *y)
{
	int64_t i = 0;

	for (; i + 8 <= n; i += 8) {
		for (int64_t d = 0; d < dp; d += 8) {
			jm_v8f v[8];
			for (int r = 0; r < 8; r++)
				memcpy(&v[r], x + (i + r) * dp + d, sizeof v[r]);
			jm_transpose8(v, y + d * PITCH + i, PITCH);
		}
	}
	for (; i < KEYS; i++) {
		for (int64_t d = 0; d < dp; d++)
			y[d * PITCH + i] = i < n ? x[i * dp + d] : 0;
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
static size_t cut(const struct cpu_attention *a, bool grad, float *base, struct tiles *t)
{
	size_t dp = (size_t)up(a->head, WIDE), at = 0;
	size_t queries = (size_t)up(a->seq, KEYS) * dp, keys = (size_t)up(a->keys, KEYS) * dp;
	struct {
		float **to;
		size_t n;
	} part[] = {{&t->k, KEYS * dp}, {&t->v, KEYS * dp}, {&t->kt, PITCH * dp},
		{&t->vt, PITCH * dp}, {&t->q, KEYS * dp}, {&t->dy, ROWS * dp}, {&t->y, KEYS * dp},
		{&t->p, ROWS * PITCH}, {&t->dp, ROWS * PITCH}, {&t->max, KEYS}, {&t->sum, KEYS},
		{&t->dq, queries}, {&t->dk, keys}, {&t->dv, keys}};

	for (size_t i = 0; i < sizeof part / sizeof *part - (grad ? 0 : 3); i++) {
		*part[i].to = base ? base + at : NULL;
		at += (part[i].n + 15) / 16 * 16;
	}
	return at;
}

static size_t attention_scratch(const struct cpu_attention *a, bool grad, int threads)
{
	struct tiles t;

	return cut(a, grad, NULL, &t) * (size_t)threads * sizeof(float);
}

static struct tiles tiles_of_thread(const struct cpu_attention *a, bool grad)
{
	struct tiles t;
	size_t each = cut(a, grad, NULL, &t);

	cut(a, grad, (float *)a->scratch + each * (size_t)omp_get_thread_num(), &t);
	return t;
}

/* The number of keys in the tile from t0 on that any of the n queries from s0 on sees. */
static int64_t seen(const struct cpu_attention *a, int64_t s0, int64_t n, int64_t t0)
{
	int64_t end = a->causal ? min64(a->keys, s0 + n) : a->keys;

	return min64(KEYS, end - t0);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Replaces a query's scores x[n] of a tile by exp(x scale - max), and rescales the output so
 * far. */
static void soften(float *restrict x, int64_t n, int64_t pad, float scale, float *max, float *sum,
	float *restrict y, int64_t dp)
{
	float top = *max, part = 0, shrink;

#pragma omp simd reduction(max : top)
	for (int64_t i = 0; i < n; i++)
		top = x[i] * scale > top ? x[i] * scale : top;
	shrink = jm_exp(*max - top);
#pragma omp simd reduction(+ : part)
	for (int64_t i = 0; i < n; i++) {
		x[i] = jm_exp(x[i] * scale - top);
		part += x[i];
	}
	for (int64_t i = n; i < pad; i++)
		x[i] = 0;
	for (int64_t d = 0; d < dp; d++)
		y[d] *= shrink;
	*sum = *sum * shrink + part;
	*max = top;
}

/* Handles queries s0 .. s0 + n, the first of which is row i0 of t->q, and the keys in t->kt and
 * t->v. */
static void forward_tile(const struct cpu_attention *a, const struct tiles *t, int64_t i0,
	int64_t s0, int64_t n, int64_t t0)
{
	int64_t dp = up(a->head, WIDE), keys = seen(a, s0, n, t0), cols = up(keys, WIDE);
	int64_t rows = up(n, JM_ROWS);

	product(rows, cols, dp, t->q + i0 * dp, dp, 1, t->kt, PITCH, t->p, PITCH, false);
	for (int64_t i = 0; i < n; i++) {
		int64_t m = a->causal ? min64(keys, s0 + i - t0 + 1) : keys;
		soften(t->p + i * PITCH, m, cols, (float)a->scale, t->max + i0 + i, t->sum + i0 + i,
			t->y + (i0 + i) * dp, dp);
	}
	product(rows, dp, keys, t->p, PITCH, 1, t->v, dp, t->y + i0 * dp, dp, true);
}

static void forward_end(const struct cpu_attention *a, const struct tiles *t, int64_t b, int64_t h,
	int64_t s0, int64_t n)
{
	int64_t dp = up(a->head, WIDE);

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
	int64_t n = min64(KEYS, a->seq - s0), d = a->head, dp = up(d, WIDE);
	int64_t g = h / (a->heads / a->groups), end = a->causal ? s0 + n : a->keys;

	load_rows(a->q, place(&a->q_view, b, s0, h), a->q_view.row, n, d, dp, t->q);
	memset(t->y, 0, (size_t)(KEYS * dp) * sizeof(float));
	for (int64_t i = 0; i < KEYS; i++) {
		t->max[i] = -INFINITY;
		t->sum[i] = 0;
	}
	for (int64_t t0 = 0; t0 < end; t0 += KEYS) {
		int64_t keys = min64(KEYS, end - t0);
		load_rows(a->k, place(&a->k_view, b, t0, g), a->k_view.row, keys, d, dp, t->k);
		load_rows(a->v, place(&a->v_view, b, t0, g), a->v_view.row, keys, d, dp, t->v);
		turn(t->k, keys, dp, t->kt);
		for (int64_t i = 0; i < n; i += ROWS)
			forward_tile(a, t, i, s0 + i, min64(ROWS, n - i), t0);
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
	int64_t keys = seen(a, s0, n, t0), cols = up(keys, WIDE), rows = up(n, JM_ROWS);

	product(rows, cols, dp, t->q, dp, 1, t->kt, PITCH, t->p, PITCH, false);
	product(rows, cols, dp, t->dy, dp, 1, t->vt, PITCH, t->dp, PITCH, false);
	for (int64_t i = 0; i < n; i++) {
		int64_t m = a->causal ? min64(keys, s0 + i - t0 + 1) : keys;
		backward_row(t->p + i * PITCH, t->dp + i * PITCH, m, cols, (float)a->scale,
			lse[s0 + i], t->sum[i]);
	}
	product(rows, dp, keys, t->dp, PITCH, 1, t->k, dp, t->dq + s0 * dp, dp, true);
	product(up(keys, JM_ROWS), dp, n, t->dp, 1, PITCH, t->q, dp, t->dk + t0 * dp, dp, true);
	product(up(keys, JM_ROWS), dp, n, t->p, 1, PITCH, t->dy, dp, t->dv + t0 * dp, dp, true);
}

static void store_rows(const struct cpu_attention *a, const float *x, int64_t rows,
	struct cpu_vec to, int64_t at, int64_t ld)
{
	int64_t dp = up(a->head, WIDE);

	for (int64_t s = 0; s < rows; s++) {
		float row[JM_VL * 64];
		for (int64_t d = 0; d < a->head; d += JM_VL * 64) {
			size_t n = (size_t)min64(JM_VL * 64, a->head - d);
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
	int64_t d = a->head, dp = up(d, WIDE), g = h / (a->heads / a->groups),
		keys = min64(KEYS, a->keys - t0);

	load_rows(a->k, place(&a->k_view, b, t0, g), a->k_view.row, keys, d, dp, t->k);
	load_rows(a->v, place(&a->v_view, b, t0, g), a->v_view.row, keys, d, dp, t->v);
	turn(t->k, keys, dp, t->kt);
	turn(t->v, keys, dp, t->vt);
	for (int64_t s0 = a->causal ? t0 : 0; s0 < a->seq; s0 += ROWS) {
		int64_t n = min64(ROWS, a->seq - s0), out = ((b * a->seq + s0) * a->heads + h) * d;
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
	size_t each = (size_t)up(a->head, WIDE) * sizeof(float);
	size_t queries = (size_t)up(a->seq, KEYS) * each, keys = (size_t)up(a->keys, KEYS) * each;

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
