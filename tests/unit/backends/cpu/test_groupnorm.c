/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group norm with SiLU, and its gradient, for every instruction set of this machine, compared with
 * plain loops in f64: channels first and last, also as many of them as a vector has lanes.
 */
#include "kit/cpu_images_kit.h"

/* Of elements i to i + size, a group of an image, with SiLU: y, and dx from dy. */
static void group(const struct cpu_groups *p, int64_t i, int64_t size, const double *x,
	const double *dy, double *y, double *dx)
{
	double mean = 0, var = 0, sum = 0, product = 0;

	for (int64_t k = i; k < i + size; k++)
		mean += x[k] / (double)size;
	for (int64_t k = i; k < i + size; k++)
		var += (x[k] - mean) * (x[k] - mean) / (double)size;
	for (int64_t k = i; k < i + size; k++) {
		int64_t c = k / (p->x.rows * p->x.cols) % p->x.c;
		double h = (x[k] - mean) / sqrt(var + p->eps);
		double z = h * (double)p->gamma[c] + (double)p->beta[c], by = 1 / (1 + exp(-z));

		y[k] = z * by;
		dx[k] = dy[k] * by * (1 + z * (1 - by)) * (double)p->gamma[c];
		sum += dx[k] / (double)size;
		product += dx[k] * h / (double)size;
	}
	for (int64_t k = i; k < i + size; k++)
		dx[k] = (dx[k] - sum - (x[k] - mean) / sqrt(var + p->eps) * product) /
			sqrt(var + p->eps);
}

/* In two groups where the channels are even. */
static void groupnorm_way(const struct way *w)
{
	int64_t n = count(w->s), groups = w->s.c % 2 ? 1 : 2, each = n / w->s.n / groups;
	double *x = normal(n, 1, 1), *dy = normal(n, 0, 2), *before = normal(n, 0, 3);
	double *y = normal(n, 0, 4), *dx = normal(n, 0, 5);
	struct cpu_groups p = {.x = image(w, w->s, x),
		.groups = (int)groups,
		.silu = true,
		.eps = EPS,
		.accumulate = w->add,
		.gamma = floats(w->s.c, 1, 6),
		.beta = floats(w->s.c, 0, 7)};
	float rows[8], sums[2 * 530] = {0};
	double scratch[4 * 530];
	struct cpu_image out = result(w, w->s, before);

	p.mean = rows, p.rstd = rows + 4, p.y = out;
	p.dgamma = sums, p.dbeta = sums + 530, p.scratch = scratch;
	w->set->groupnorms->norm(&p, THREADS);
	p.dx = result(w, w->s, before), p.y = image(w, w->s, dy);
	w->set->groupnorms->grad(&p, THREADS);
	for (int64_t i = 0; i < n; i += each)
		group(&p, i, each, x, dy, y, dx);
	check(w, "group norm", &out, y, before);
	check(w, "gradient of group norm", &p.dx, dx, before);
	free(p.x.data), free(p.y.data), free((void *)p.gamma), free((void *)p.beta);
	free(x), free(dy), free(y), free(dx), free(before);
}

/* Images in blocks are not taken. */
static void dense_way(const struct way *w)
{
	if (w->lie == PLAIN || w->lie == LAST)
		groupnorm_way(w);
}

static void groupnorm(void **unused)
{
	(void)unused;
	each_way(dense_way);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(groupnorm)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
