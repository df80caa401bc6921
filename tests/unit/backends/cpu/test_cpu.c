/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cpu backend's kernels for every instruction set that this machine has, at sizes that cross
 * their tiles, against plain loops in f64. (test_backend compares whole ops with ref at small
 * sizes.)
 */
#include "cpu_values.h"
#include "engine/graph/rng.h"

/* ---- exp, gelu, bf16 ------------------------------------------------------------------------- */

static void exp_and_gelu(void **unused)
{
	(void)unused;
	for (double x = -87; x < 87; x += 0.0037) {
		float in = (float)x;
		near((double)jm_exp(in) / exp((double)in), 1, 2e-7);
	}
	for (double x = -9; x < 9; x += 0.00031) {
		double in = (double)(float)x, u = sqrt(2 / M_PI) * (in + 0.044715 * in * in * in);
		double s = 1 / (1 + exp(-2 * u)), du = sqrt(2 / M_PI) * (1 + 0.134145 * in * in);
		near((double)jm_gelu((float)x), in * s, 1e-6 * fabs(in * s) + 1e-7);
		near((double)jm_gelu_slope((float)x), s + 2 * in * s * (1 - s) * du, 5e-7);
	}
	assert_true(
		jm_exp(-1e9f) == 0 && isnan(jm_exp(NAN)) && isnan(jm_exp(jm_float(0x7f800001))));
	assert_true(
		isnan(jm_from_bf16(jm_to_bf16(NAN))) && isinf(jm_from_bf16(jm_to_bf16(3.4e38f))));
	/* halves go to the even one, what is more or less to the nearest */
	assert_int_equal(jm_to_bf16(1 + 0x1p-8f), 0x3f80);
	assert_int_equal(jm_to_bf16(1 + 0x3p-8f), 0x3f82);
	assert_int_equal(jm_to_bf16(1 + 0x1p-8f + 0x1p-20f), 0x3f81);
	assert_int_equal(jm_to_bf16(-1 - 0x3p-8f + 0x1p-20f), 0xbf81);
}

/* ---- the speed of a core --------------------------------------------------------------------- */

/* At most what two units could do at 6.5 GHz; it was 3.4 times that when the compiler omitted
 * products. */
static void a_cores_speed_is_one_that_a_core_can_have(void **unused)
{
	const struct cpu_kernels *set;

	(void)unused;
	for (int s = 0; (set = cpu_kernels_get(s)); s++) {
		double lanes = s == 0 && set->wide ? 16 : 8, speed = set->gemms->peak();
		assert_true(speed > 0 && speed < 2 * 2 * lanes * 6.5e9);
	}
}

/* ---- attention ------------------------------------------------------------------------------- */

/* One query of one head in f64: its probabilities, output and log of the sum. */
static double one_query(const struct cpu_attention *a, const float *qkv, int64_t h, int64_t s,
	double *prob, double *y)
{
	int64_t d = a->head, ld = (a->heads + 2 * a->groups) * d, g = h / (a->heads / a->groups);
	const float *q = qkv + s * ld + h * d, *k = qkv + (a->heads + g) * d,
		    *v = k + a->groups * d;
	int64_t end = a->causal ? s + 1 : a->seq;
	double sum = 0;

	memset(y, 0, (size_t)d * sizeof *y);
	for (int64_t t = 0; t < end; t++) {
		double z = 0;
		for (int64_t i = 0; i < d; i++)
			z += (double)q[i] * (double)k[t * ld + i];
		sum += prob[t] = exp(z * a->scale);
	}
	for (int64_t t = 0; t < end; t++) {
		prob[t] /= sum;
		for (int64_t i = 0; i < d; i++)
			y[i] += prob[t] * (double)v[t * ld + i];
	}
	return log(sum);
}

/* Adds one query's part to the gradients in f64, packed as qkv. */
static void one_query_grad(const struct cpu_attention *a, const float *qkv, const float *dy,
	int64_t h, int64_t s, const double *prob, const double *y, double *grad)
{
	int64_t d = a->head, ld = (a->heads + 2 * a->groups) * d, g = h / (a->heads / a->groups);
	int64_t q = s * ld + h * d, k = (a->heads + g) * d, v = k + a->groups * d;
	double delta = 0;

	dy += (s * a->heads + h) * d;
	for (int64_t i = 0; i < d; i++)
		delta += (double)dy[i] * y[i];
	for (int64_t t = 0; t < (a->causal ? s + 1 : a->seq); t++, k += ld, v += ld) {
		double dp = 0;
		for (int64_t i = 0; i < d; i++)
			dp += (double)dy[i] * (double)qkv[v + i];
		dp = prob[t] * (dp - delta) * a->scale;
		for (int64_t i = 0; i < d; i++) {
			grad[q + i] += dp * (double)qkv[k + i];
			grad[k + i] += dp * (double)qkv[q + i];
			grad[v + i] += prob[t] * (double)dy[i];
		}
	}
}

static void check_attention(const struct cpu_attention *a, const float *qkv, const float *dy)
{
	size_t n = (size_t)(a->seq * (a->heads + 2 * a->groups) * a->head);
	double *prob = calloc((size_t)a->seq, sizeof *prob),
	       *y = calloc((size_t)a->head, sizeof *y);
	double *grad = calloc(n, sizeof *grad);

	for (int64_t h = 0; h < a->heads; h++) {
		for (int64_t s = 0; s < a->seq; s++) {
			double lse = one_query(a, qkv, h, s, prob, y);
			near((double)a->lse[h * a->seq + s], lse, 1e-5);
			for (int64_t i = 0; i < a->head; i++)
				near((double)((float *)a->y.data)[(s * a->heads + h) * a->head + i],
					y[i], 1e-5);
			one_query_grad(a, qkv, dy, h, s, prob, y, grad);
		}
	}
	for (size_t i = 0; i < n; i++)
		near((double)((float *)a->dq.data)[i], grad[i], 1e-4);
	free(prob), free(y), free(grad);
}

static void attend(const struct cpu_attentions *set, int64_t seq, int64_t heads, int64_t groups,
	int64_t head, bool causal)
{
	size_t n = (size_t)(seq * (heads + 2 * groups) * head), ny = (size_t)(seq * heads * head);
	float *qkv = normal(n, 5), *dqkv = malloc(n * 4), *dy = normal(ny, 6), *y = malloc(ny * 4);
	int64_t width = (heads + 2 * groups) * head;
	struct cpu_vec given = {qkv, false}, grads = {dqkv, false};
	struct cpu_attention a = {.batch = 1,
		.seq = seq,
		.keys = seq,
		.heads = heads,
		.groups = groups,
		.head = head,
		.scale = 1 / sqrt((double)head),
		.causal = causal,
		.q = given,
		.k = given,
		.v = given,
		.y = {y, false},
		.dy = {dy, false},
		.dq = grads,
		.dk = grads,
		.dv = grads,
		.q_view = {0, seq * width, width, head},
		.k_view = {heads * head, seq * width, width, head},
		.v_view = {(heads + groups) * head, seq * width, width, head}};
	size_t forward = set->scratch(&a, false, THREADS), both = set->scratch(&a, true, THREADS);

	a.lse = malloc((size_t)(seq * heads) * sizeof *a.lse);
	a.scratch = scratch_new(forward > both ? forward : both);
	set->attention(&a, THREADS);
	set->attention_grad(&a, THREADS);
	check_attention(&a, qkv, dy);
	free(qkv), free(dqkv), free(dy), free(y), free(a.lse), free(a.scratch);
}

static void attention(void **unused)
{
	const struct cpu_kernels *set;

	(void)unused;
	for (int s = 0; (set = cpu_kernels_get(s)); s++) {
		attend(set->attentions, 300, 4, 2, 24, true);
		attend(set->attentions, 301, 2, 1, 160, false);
		attend(set->attentions, 515, 1, 1, 64, true);
	}
}

/* ---- the others: every set against the portable one ------------------------------------------ */

static const struct cpu_kernels *portable(void)
{
	const struct cpu_kernels *set, *last = NULL;

	for (int s = 0; (set = cpu_kernels_get(s)); s++)
		last = set;
	return last;
}

static void same(const float *x, const float *y, size_t n, double tolerance)
{
	for (size_t i = 0; i < n; i++)
		near((double)x[i], (double)y[i], tolerance);
}

static void norms(void **unused)
{
	enum { ROWS = 41, WIDTH = 1037, ALL = ROWS * WIDTH };
	float *x = normal(ALL, 1), *dy = normal(ALL, 2), *gamma = normal(WIDTH, 3);
	float *out[2] = {malloc(4 * ALL), malloc(4 * ALL)},
	      *dx[2] = {malloc(4 * ALL), malloc(4 * ALL)};
	float dgamma[2][WIDTH], dbeta[2][WIDTH], mean[ROWS], rstd[ROWS];
	const struct cpu_kernels *set[2] = {cpu_kernels_best(), portable()};

	(void)unused;
	for (int i = 0; i < 2; i++) {
		const struct cpu_norms *k = set[i]->norms;
		void *scratch = scratch_new(k->scratch(WIDTH, true, THREADS));
		struct cpu_norm f = {.rows = ROWS,
			.width = WIDTH,
			.eps = 1e-5,
			.x = {x, false},
			.y = {out[i], false},
			.gamma = gamma,
			.mean = mean,
			.rstd = rstd,
			.scratch = scratch};
		struct cpu_norm_grad b = {.rows = ROWS,
			.width = WIDTH,
			.dy = {dy, false},
			.x = {x, false},
			.dx = {dx[i], false},
			.gamma = gamma,
			.mean = mean,
			.rstd = rstd,
			.dgamma = dgamma[i],
			.dbeta = dbeta[i],
			.scratch = scratch};
		k->norm(&f, THREADS);
		k->grad(&b, THREADS);
		free(scratch);
	}
	same(out[0], out[1], ALL, 1e-5);
	same(dx[0], dx[1], ALL, 1e-5);
	same(dgamma[0], dgamma[1], WIDTH, 1e-4);
	same(dbeta[0], dbeta[1], WIDTH, 1e-4);
	free(x), free(dy), free(gamma), free(out[0]), free(out[1]), free(dx[0]), free(dx[1]);
}

enum { LOSS_ROWS = 7, CLASSES = 5003, LOGITS = LOSS_ROWS * CLASSES };

/* One row of logits in f64: its loss, and the gradient of the mean loss, which is compared with
 * dx. */
static double check_row(const float *x, int right, const struct cpu_vec *dx, size_t at)
{
	double sum = 0;

	for (int c = 0; c < CLASSES; c++)
		sum += exp((double)x[c] - 100);
	for (int c = 0; c < CLASSES; c++) {
		double want = (exp((double)x[c] - 100) / sum - (c == right)) / LOSS_ROWS;
		float got;
		jm_load(dx->data, dx->bf16, at + (size_t)c, 1, &got);
		near((double)got, want, (dx->bf16 ? 4e-3 * fabs(want) : 1e-6) + 1e-9);
	}
	return 100 + log(sum) - (double)x[right];
}

/* Logits as large as training ever makes them, more classes than one piece holds, right ones at its
 * ends. */
static void losses(void **unused)
{
	int32_t targets[LOSS_ROWS] = {0, 1023, 1024, 5002, 7, 2047, 2048};
	const struct cpu_kernels *set;
	float *x = normal(LOGITS, 1), *dx = malloc(4 * LOGITS), loss;

	(void)unused;
	for (size_t i = 0; i < LOGITS; i++)
		x[i] *= 30;
	for (int s = 0; (set = cpu_kernels_get(s / 2)); s++) {
		struct cpu_xent p = {LOSS_ROWS, CLASSES, CLASSES, 1. / LOSS_ROWS, 1. / LOSS_ROWS,
			{x, false}, {dx, s % 2}, targets, &loss, 0,
			scratch_new(set->losses->scratch(LOSS_ROWS, CLASSES, THREADS))};
		double want = 0;
		set->losses->xent(&p, THREADS);
		for (int r = 0; r < LOSS_ROWS; r++)
			want += check_row(x + r * CLASSES, targets[r], &p.dlogits,
					(size_t)r * CLASSES) /
				LOSS_ROWS;
		near((double)loss, want, 1e-4);
		free(p.scratch);
	}
	free(x), free(dx);
}

/* ---- sums over rows -------------------------------------------------------------------------- */

/*
 * As many rows as a large batch has tokens, plus a few. PyTorch 1.13 sums them with a root mean
 * square error of 1.4e-7 of theirs; one row after the other in f32 it is 1.2e-6 here.
 */
static void sums_of_rows(void **unused)
{
	enum { ROWS = 16391, WIDTH = 261 };
	float *x = normal(ROWS * WIDTH, 1), got[WIDTH];
	double *want = calloc(WIDTH, sizeof *want);
	const struct cpu_kernels *set;

	(void)unused;
	for (int i = 0; i < ROWS * WIDTH; i++)
		want[i % WIDTH] += (double)x[i];
	for (int s = 0; (set = cpu_kernels_get(s)); s++) {
		double off = 0, size = 0;
		for (int c = 0; c < WIDTH; c++)
			got[c] = 1;
		set->rows->sum((struct cpu_vec){x, false}, got, ROWS, WIDTH, s == 1, THREADS);
		for (int c = 0; c < WIDTH; c++) {
			off += pow((double)got[c] - want[c] - (s == 1), 2);
			size += want[c] * want[c];
		}
		near(sqrt(off / size), 0, 2.8e-7);
	}
	free(x), free(want);
}

/* ---- the norm of all gradients --------------------------------------------------------------- */

static double norm_of(const struct cpu_optims *set, const float *x, int64_t n)
{
	double *scratch = scratch_new(set->norm_scratch(n));
	double y = sqrt(set->squares(x, n, false, scratch, THREADS));

	free(scratch);
	return y;
}

/* A few hundred in the middle are so large that f32 cannot hold their squares, or are none at
 * all. */
static void gradient_norm(void **unused)
{
	enum { N = 200003, AT = 70001, LARGE = 700 };
	const struct cpu_kernels *set;
	float *x = normal(N, 1);
	double plain = 0, large = 0;

	(void)unused;
	for (size_t i = 0; i < N; i++)
		plain += (double)x[i] * (double)x[i];
	for (int s = 0; (set = cpu_kernels_get(s)); s++)
		near(norm_of(set->optims, x, N), sqrt(plain), 1e-6 * sqrt(plain));
	for (size_t i = AT; i < AT + LARGE; i++) {
		x[i] *= 1e25f;
		large += (double)x[i] * (double)x[i];
	}
	for (int s = 0; (set = cpu_kernels_get(s)); s++)
		near(norm_of(set->optims, x, N), sqrt(large), 1e-6 * sqrt(large));
	for (int s = 0; (set = cpu_kernels_get(s)); s++) {
		x[AT + 5] = INFINITY;
		assert_false(isfinite(norm_of(set->optims, x, N)));
		x[AT + 5] = NAN;
		assert_false(isfinite(norm_of(set->optims, x, N)));
	}
	free(x);
}

/* ---- updates of bf16 slabs ------------------------------------------------------------------- */

enum { SLAB = 3001, DECAYED = 1501, FIRST = 96 };

/* What AdamW makes of element i by its definition, {p, m, v}; now = {lr, 1 - beta1^t, 1 - beta2^t,
 * t}. */
static void adamw_by_hand(const struct cpu_update *u, double g, double p, double m, double v,
	bool decays, double *ret)
{
	double lr = (double)u->now[0];

	ret[1] = u->beta1 * m + (1 - u->beta1) * g;
	ret[2] = u->beta2 * v + (1 - u->beta2) * g * g;
	ret[0] = p - (decays ? lr * u->weight_decay * p : 0) -
		 lr / (double)u->now[1] * ret[1] / (sqrt(ret[2] / (double)u->now[2]) + u->eps);
}

/* Each result has other random bits. f32 on the way lets one in some thousands differ. */
static void check_rounding(const struct cpu_kernels *set, bool bf16_g)
{
	const float now[] = {0.01f, 0.2f, 0.1f, 7};
	const uint64_t key = jm_rng(0, 7);
	float *g = normal(SLAB, 1), *x[3] = {normal(SLAB, 2), normal(SLAB, 3), g};
	uint16_t *slab[4] = {
		narrow(x[0], SLAB), narrow(x[1], SLAB), narrow(g, SLAB), narrow(g, SLAB)};
	struct cpu_update u = {CPU_ADAMW, SLAB, DECAYED, FIRST, bf16_g ? (float *)slab[3] : g, NULL,
		now, 4, (float *)slab[0], (float *)slab[1], (float *)slab[2], 0.9, 0.95, 1e-6, 0.3,
		0, 1, false, true, bf16_g};
	int wrong[3] = {0};

	for (int i = 0; i < SLAB; i++) /* second moments are positive: the top bit goes */
		slab[2][i] &= 0x7fff;
	set->optims->update(&u, THREADS);
	for (int i = 0; i < SLAB; i++) {
		double want[3];
		adamw_by_hand(&u, (double)g[i], (double)x[0][i], (double)x[1][i],
			fabs((double)g[i]), i < DECAYED, want);
		for (int k = 0; k < 3; k++) {
			uint64_t number = FIRST + (uint64_t)i;
			uint64_t random = jm_rng_rounding(jm_rng(key, number / 2), number, k);
			wrong[k] +=
				slab[k][i] != (uint16_t)((jm_bits((float)want[k]) + random) >> 16);
		}
	}
	for (int k = 0; k < 3; k++)
		assert_in_range(wrong[k], 0, SLAB / 200);
	free(g), free(x[0]), free(x[1]);
	for (int k = 0; k < 4; k++)
		free(slab[k]);
}

static void stochastic_rounding(void **unused)
{
	const struct cpu_kernels *set;

	(void)unused;
	for (int s = 0; (set = cpu_kernels_get(s)); s++) {
		check_rounding(set, false);
		check_rounding(set, true);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exp_and_gelu),
		cmocka_unit_test(a_cores_speed_is_one_that_a_core_can_have),
		cmocka_unit_test(attention),
		cmocka_unit_test(norms),
		cmocka_unit_test(losses),
		cmocka_unit_test(sums_of_rows),
		cmocka_unit_test(gradient_norm),
		cmocka_unit_test(stochastic_rounding),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
