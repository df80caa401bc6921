/* SPDX-License-Identifier: Apache-2.0 */
/* The products of the cpu backend for every instruction set that this machine has, at sizes that
 * cross their tiles, against plain loops in f64. */
#include "cpu_values.h"

struct product {
	int64_t m, n, k;
	bool bf16, ta, tb, add, bare; /* bare: without bias */
};

static double element(const float *x, const struct cpu_matrix *m, int64_t i, int64_t j)
{
	return (double)(m->transposed ? x[j * m->ld + i] : x[i * m->ld + j]);
}

/* Compares a spread of elements: all would take minutes. */
static void check_product(const struct cpu_gemm *g, const float *a, const float *b,
	const float *before, const float *bias)
{
	double size = sqrt((double)g->k);

	for (int64_t at = 0; at < g->m * g->n; at += 1 + g->m * g->n / 997) {
		int64_t i = at / g->n, j = at % g->n;
		double sum = (double)bias[j] + (g->accumulate ? (double)before[at] : 0);
		float got;
		for (int64_t p = 0; p < g->k; p++)
			sum += element(a, &g->a, i, p) * element(b, &g->b, p, j);
		jm_load(g->c, g->c_bf16, (size_t)at, 1, &got);
		near((double)got, sum, g->c_bf16 ? 4e-3 * fabs(sum) + 1e-4 : 2e-6 * size);
	}
}

struct way {
	size_t (*scratch)(const struct cpu_gemm *g);
	void (*gemm)(const struct cpu_gemm *g);
};

static void multiply(struct way way, const struct product *p)
{
	size_t na = (size_t)(p->m * p->k), nb = (size_t)(p->k * p->n), nc = (size_t)(p->m * p->n);
	float *a = normal(na, 1), *b = normal(nb, 2), *c = normal(nc, 3),
	      *bias = normal((size_t)p->n, 4);
	uint16_t *ha = narrow(a, na), *hb = narrow(b, nb), *hc = narrow(c, nc);
	float *before = normal(nc, 3);
	struct cpu_gemm g = {
		.m = p->m,
		.n = p->n,
		.k = p->k,
		.a = {p->bf16 ? (void *)ha : a, p->bf16, p->ta, p->ta ? p->m : p->k},
		.b = {p->bf16 ? (void *)hb : b, p->bf16, p->tb, p->tb ? p->k : p->n},
		.c = p->bf16 ? (void *)hc : c,
		.ldc = p->n,
		.c_bf16 = p->bf16,
		.accumulate = p->add,
		.bias = p->bare ? NULL : bias,
		.threads = THREADS,
	};

	if (p->bare)
		memset(bias, 0, (size_t)p->n * sizeof *bias);
	free(narrow(before, nc));
	g.scratch = scratch_new(way.scratch(&g));
	way.gemm(&g);
	check_product(&g, a, b, before, bias);
	free(a), free(b), free(c), free(bias), free(ha), free(hb), free(hc), free(before);
	free(g.scratch);
}

static void products(void **unused)
{
	static const struct product all[] = {
		{1600, 50, 1100, false, false, true, false, false},
		{1600, 50, 1100, true, true, false, true, false},
		{37, 3200, 1030, true, false, true, true, false},
		{37, 3200, 1030, false, true, false, true, false},
		{5, 3, 2, false, false, false, false, false},
		{1, 1, 2100, true, true, true, false, false},
		{150, 410, 2100, true, false, false, true, false},
		{150, 410, 2100, false, true, true, false, false},
	};
	const struct cpu_kernels *set;

	(void)unused;
	for (int s = 0; (set = cpu_kernels_get(s)); s++) {
		print_message("%s\n", set->target);
		for (size_t i = 0; i < sizeof all / sizeof *all; i++)
			multiply((struct way){set->gemms->scratch, set->gemms->gemm}, &all[i]);
	}
}

static void products_of_few_rows(void **unused)
{
	static const struct product all[] = {
		{1, 50, 2100, false, false, true, false, false},
		{1, 51, 2100, true, false, true, true, false},
		{2, 410, 96, false, false, true, true, false},
		{3, 7, 1030, true, false, true, false, false},
		{4, 3, 2, true, false, true, false, false},
		{7, 130, 33, false, false, true, false, false},
		{32, 130, 768, true, false, true, true, false},
	};
	const struct cpu_kernels *set;

	(void)unused;
	for (int s = 0; (set = cpu_kernels_get(s)); s++)
		for (size_t i = 0; i < sizeof all / sizeof *all; i++)
			multiply(
				(struct way){set->few_rows->scratch, set->few_rows->gemm}, &all[i]);
}

static void products_of_a_small_batch(void **unused)
{
	static const struct product rows[] = {
		{9, 50, 2100, false, false, true, false, false},
		{17, 51, 64, false, false, true, true, false},
		{32, 8, 130, false, false, true, true, false},
		{33, 7, 63, false, false, true, false, false},
		{1, 3, 2, false, false, true, false, false},
	};
	static const struct product gradient[] = {
		{4, 1500, 70, false, false, false, false, false},
		{8, 480, 128, false, false, false, true, false},
		{13, 51, 130, false, false, false, true, false},
		{1, 3, 2, false, false, false, false, false},
	};
	static const struct product outer[] = {
		{50, 2112, 4, false, true, false, false, false},
		{50, 2128, 4, false, true, false, false, true},
		{51, 130, 32, false, true, false, true, false},
		{8, 48, 1, false, true, false, false, false},
		{3, 2, 65, false, true, false, true, false},
	};
	const struct cpu_kernels *set;

	(void)unused;
	for (int s = 0; (set = cpu_kernels_get(s)); s++) {
		const struct cpu_thin *t = set->thin;

		for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
			multiply((struct way){t->rows_scratch, t->rows}, &rows[i]);
		for (size_t i = 0; i < sizeof gradient / sizeof *gradient; i++)
			multiply((struct way){t->gradient_scratch, t->gradient}, &gradient[i]);
		for (size_t i = 0; i < sizeof outer / sizeof *outer; i++)
			multiply((struct way){t->outer_scratch, t->outer}, &outer[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(products),
		cmocka_unit_test(products_of_few_rows),
		cmocka_unit_test(products_of_a_small_batch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
