/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cpu backend's kernels on images, for every instruction set of this machine and every layout
 * that they support, compared with plain loops in f64. (test_backend tests only the layouts that
 * oneDNN chooses here.)
 */
#include "kit/cpu_images_kit.h"

/* ---- batch norm ------------------------------------------------------------------------------ */

static int64_t channel(struct shape s, int64_t i)
{
	return i / (s.rows * s.cols) % s.c;
}

static const struct cpu_images *norms(const struct way *w, const struct cpu_image *x)
{
	return cpu_image_last(x) ? w->set->images_last : w->set->images;
}

static void *norm_scratch(const struct way *w)
{
	size_t bytes = cpu_bn_scratch(w->s.c, THREADS);
	void *p = aligned_alloc(64, bytes / 64 * 64 + 64);

	memset(p, 0xff, bytes); /* NaNs: nothing may be read that was not written */
	return p;
}

/* mean, var [c] of x */
static void moments(struct shape s, const double *x, double *mean, double *var)
{
	double n = (double)(s.n * s.rows * s.cols);

	memset(mean, 0, (size_t)s.c * sizeof(*mean));
	memset(var, 0, (size_t)s.c * sizeof(*var));
	for (int64_t i = 0; i < count(s); i++)
		mean[channel(s, i)] += x[i] / n;
	for (int64_t i = 0; i < count(s); i++)
		var[channel(s, i)] += pow(x[i] - mean[channel(s, i)], 2) / n;
}

/* The statistics of a forward pass, in f32 as it writes them, and in f64. */
struct statistics {
	float *mean, *var, *rstd, *running_mean, *running_var;
	double *want_mean, *want_var;
};

static void check_statistics(const struct way *w, const struct cpu_bn *p, struct statistics *t)
{
	double n = (double)p->count;

	for (int64_t c = 0; c < w->s.c; c++) {
		double rstd = 1 / sqrt(t->want_var[c] + p->eps);

		near(w, "mean", c, (double)t->mean[c], t->want_mean[c]);
		near(w, "var", c, (double)t->var[c], t->want_var[c]);
		near(w, "rstd", c, (double)t->rstd[c], rstd);
		near(w, "running mean", c, (double)t->running_mean[c],
			2 + p->momentum * (t->want_mean[c] - 2));
		near(w, "running var", c, (double)t->running_var[c],
			2 + p->momentum * (t->want_var[c] * n / (n - 1) - 2));
	}
}

static struct statistics statistics(const struct way *w, const double *x)
{
	int64_t c = w->s.c;
	struct statistics t = {same(c, NAN), same(c, NAN), same(c, NAN), same(c, 2), same(c, 2),
		normal(c, 0, 1), normal(c, 0, 1)};

	moments(w->s, x, t.want_mean, t.want_var);
	return t;
}

static void statistics_free(struct statistics *t)
{
	free(t->mean), free(t->var), free(t->rstd), free(t->running_mean), free(t->running_var);
	free(t->want_mean), free(t->want_var);
}

/* A mean of 40 in f32: the squares about 0 would drown what spread there is. A sum joins odd
 * shapes. */
static void norm_way(const struct way *w)
{
	int64_t n = count(w->s);
	bool sum = w->s.c % 2;
	double *x = normal(n, w->bf16 ? 1 : 40, 1), *add = normal(n, 0, 2), *y = normal(n, 0, 3);
	double *before = normal(n, 0, 4);
	float *gamma = floats(w->s.c, 1, 5), *beta = floats(w->s.c, 0, 6);
	struct cpu_bn p = {.x = image(w, w->s, x),
		.add = sum ? image(w, w->s, add) : (struct cpu_image){0},
		.y = result(w, w->s, before),
		.stats = true,
		.apply = true,
		.relu = w->s.rows % 2,
		.gamma = gamma,
		.beta = beta,
		.eps = EPS,
		.momentum = 0.25,
		.count = n / w->s.c,
		.accumulate = w->add,
		.scratch = norm_scratch(w)};
	struct statistics t = statistics(w, x);

	p.mean = t.mean, p.var = t.var, p.rstd = t.rstd;
	p.running_mean = t.running_mean, p.running_var = t.running_var;
	norms(w, &p.x)->bn(&p, THREADS);
	check_statistics(w, &p, &t);
	for (int64_t i = 0; i < n; i++) {
		int64_t c = channel(w->s, i);

		y[i] = (x[i] - t.want_mean[c]) / sqrt(t.want_var[c] + p.eps) * (double)gamma[c];
		y[i] += (double)beta[c] + (sum ? add[i] : 0);
		y[i] = p.relu && y[i] < 0 ? 0 : y[i];
	}
	check(w, "batch norm", &p.y, y, before);
	statistics_free(&t);
	free(p.x.data), free(p.add.data), free(p.scratch), free(gamma), free(beta);
	free(x), free(add), free(y), free(before);
}

/* From x, e (dy where the ReLU let it through) and x's statistics: dx, and the sums [c] of e and of
 * e h. */
static void norm_grad(struct shape s, const double *e, const double *x, const float *gamma,
	const struct statistics *t, double *dx, double *sum, double *product)
{
	double n = (double)(count(s) / s.c);

	for (int64_t c = 0; c < s.c; c++)
		sum[c] = product[c] = 0;
	for (int64_t i = 0; i < count(s); i++) {
		int64_t c = channel(s, i);

		sum[c] += e[i];
		product[c] += e[i] * (x[i] - t->want_mean[c]) / sqrt(t->want_var[c] + EPS);
	}
	for (int64_t i = 0; i < count(s); i++) {
		int64_t c = channel(s, i);
		double rstd = 1 / sqrt(t->want_var[c] + EPS), h = (x[i] - t->want_mean[c]) * rstd;

		dx[i] = (double)gamma[c] * rstd * (e[i] - sum[c] / n - h * product[c] / n);
	}
}

/* got: threes before. */
static void check_vector(const struct way *w, const char *what, float *got, double *want, bool add)
{
	for (int64_t c = 0; c < w->s.c; c++)
		near(w, what, c, (double)got[c], want[c] + (add ? 3 : 0));
	free(got), free(want);
}

/* The statistics as a forward pass would have left them. */
static struct statistics given(const struct way *w, const double *x)
{
	struct statistics t = statistics(w, x);

	for (int64_t c = 0; c < w->s.c; c++) {
		t.mean[c] = (float)t.want_mean[c];
		t.rstd[c] = (float)(1 / sqrt(t.want_var[c] + EPS));
	}
	return t;
}

/* What is added to: dx and dbeta, or else dgamma and dadd. */
static void norm_grad_way(const struct way *w)
{
	struct way other = *w;
	int64_t n = count(w->s), c = w->s.c;
	bool relu = w->s.rows % 2, sum = c % 2;
	double *x = normal(n, 1, 1), *e = normal(n, 0, 2), *y = normal(n, 0, 3);
	double *dx = normal(n, 0, 4), *before = normal(n, 0, 5);
	double *dbeta = normal(c, 0, 1), *dgamma = normal(c, 0, 1);
	float *gamma = floats(c, 1, 6);
	struct cpu_bn_grad p = {.dy = image(w, w->s, e),
		.x = image(w, w->s, x),
		.y = relu ? image(w, w->s, y) : (struct cpu_image){0},
		.dx = result(w, w->s, before),
		.gamma = gamma,
		.dgamma = same(c, 3),
		.dbeta = same(c, 3),
		.accumulate = w->add ? 5 : 10,
		.scratch = norm_scratch(w)};
	struct statistics t = given(w, x);

	p.mean = t.mean, p.rstd = t.rstd;
	other.add = !w->add;
	if (sum)
		p.dadd = result(&other, w->s, before);
	norms(w, &p.x)->bn_grad(&p, THREADS);
	for (int64_t i = 0; relu && i < n; i++)
		e[i] = y[i] > 0 ? e[i] : 0;
	norm_grad(w->s, e, x, gamma, &t, dx, dbeta, dgamma);
	check(w, "gradient of batch norm", &p.dx, dx, before);
	if (sum)
		check(&other, "gradient of the sum", &p.dadd, e, before);
	check_vector(w, "dgamma", p.dgamma, dgamma, !w->add);
	check_vector(w, "dbeta", p.dbeta, dbeta, w->add);
	statistics_free(&t);
	free(p.dy.data), free(p.x.data), free(p.y.data), free(p.scratch), free(gamma);
	free(x), free(e), free(y), free(dx), free(before);
}

static void batchnorm(void **unused)
{
	(void)unused;
	each_way(norm_way);
}

static void batchnorm_grad(void **unused)
{
	(void)unused;
	each_way(norm_grad_way);
}

/* ---- pooling --------------------------------------------------------------------------------- */

static const struct window {
	int kernel[2], stride[2], pad[2];
	bool count_pad;
} windows[] = {{{3, 3}, {2, 2}, {1, 1}, false}, {{2, 3}, {1, 2}, {0, 1}, true},
	{{3, 1}, {3, 1}, {0, 0}, false}};

static struct shape pooled(struct shape s, const struct window *v)
{
	s.rows = (s.rows + 2 * v->pad[0] - v->kernel[0]) / v->stride[0] + 1;
	s.cols = (s.cols + 2 * v->pad[1] - v->kernel[1]) / v->stride[1] + 1;
	return s;
}

/* The elements of x[n,c,rows,cols] in the window of element i of y, row by row; how many. */
static int inside(struct shape s, const struct window *v, int64_t i, int64_t *ret)
{
	struct shape y = pooled(s, v);
	int64_t plane = i / (y.rows * y.cols) * s.rows * s.cols;
	int64_t top = i / y.cols % y.rows * v->stride[0] - v->pad[0];
	int64_t left = i % y.cols * v->stride[1] - v->pad[1];
	int n = 0;

	for (int64_t r = top; r < top + v->kernel[0]; r++)
		for (int64_t c = left; c < left + v->kernel[1]; c++)
			if (r >= 0 && r < s.rows && c >= 0 && c < s.cols)
				ret[n++] = plane + r * s.cols + c;
	return n;
}

/* The first of the largest, or the last NaN. */
static int64_t largest(const double *x, const int64_t *at, int n)
{
	int64_t best = at[0];

	for (int i = 1; i < n; i++)
		if (x[at[i]] > x[best] || isnan(x[at[i]]))
			best = at[i];
	return best;
}

static void pool(const struct window *v, bool max, struct shape s, const double *x, double *y)
{
	int64_t at[9];

	for (int64_t i = 0; i < count(pooled(s, v)); i++) {
		int n = inside(s, v, i, at);
		double sum = 0;

		for (int k = 0; k < n; k++)
			sum += x[at[k]];
		y[i] = max ? x[largest(x, at, n)]
			   : sum / (v->count_pad ? v->kernel[0] * v->kernel[1] : n);
	}
}

static void pool_grad(const struct window *v, bool max, struct shape s, const double *x,
	const double *dy, double *dx)
{
	int64_t at[9];

	memset(dx, 0, (size_t)count(s) * sizeof(*dx));
	for (int64_t i = 0; i < count(pooled(s, v)); i++) {
		int n = inside(s, v, i, at);

		if (max)
			dx[largest(x, at, n)] += dy[i];
		for (int k = 0; k < n && !max; k++)
			dx[at[k]] += dy[i] / (v->count_pad ? v->kernel[0] * v->kernel[1] : n);
	}
}

/* Whole numbers, so that windows hold their largest several times; one is not a number. */
static double *with_ties(int64_t n)
{
	double *x = normal(n, 0, 1);

	for (int64_t i = 0; i < n; i++)
		x[i] = round(x[i]);
	x[n / 2] = NAN;
	return x;
}

static void pool_way(const struct way *w, const struct window *v, bool max)
{
	struct shape s = w->s, to = pooled(s, v);
	double *x = max ? with_ties(count(s)) : normal(count(s), 0, 1),
	       *y = normal(count(to), 0, 2);
	double *dy = normal(count(to), 0, 3), *dx = normal(count(s), 0, 4);
	double *before = normal(count(s) + count(to), 0, 5);
	struct cpu_pool p = {.x = image(w, s, x),
		.y = result(w, to, before),
		.kernel = {v->kernel[0], v->kernel[1]},
		.stride = {v->stride[0], v->stride[1]},
		.pad = {v->pad[0], v->pad[1]},
		.count_pad = v->count_pad,
		.accumulate = w->add};

	(max ? w->set->pools->max : w->set->pools->mean)(&p, THREADS);
	pool(v, max, s, x, y);
	check(w, max ? "max pool" : "average pool", &p.y, y, before);
	p.y = image(w, to, dy);
	p.dx = result(w, s, before);
	p.scratch = malloc((size_t)(THREADS * 16 * s.rows * s.cols) * sizeof(float));
	(max ? w->set->pools->max_grad : w->set->pools->mean_grad)(&p, THREADS);
	pool_grad(v, max, s, x, dy, dx);
	check(w, max ? "gradient of max pool" : "gradient of average pool", &p.dx, dx, before);
	free(p.x.data), free(p.y.data), free(p.scratch);
	free(x), free(y), free(dy), free(dx), free(before);
}

static void pools_way(const struct way *w)
{
	for (size_t i = 0; i < 2 * sizeof(windows) / sizeof(*windows); i++)
		pool_way(w, &windows[i / 2], i % 2);
}

static void pools(void **unused)
{
	(void)unused;
	each_way(pools_way);
}

/* y, dy [n,c]: an image of one pixel each, and plain. */
static void global_way(const struct way *w)
{
	struct shape s = w->s, one = {s.n, s.c, 1, 1};
	int64_t pixels = s.rows * s.cols;
	struct way plain = *w;
	double *x = normal(count(s), 1, 1), *y = calloc((size_t)count(one), sizeof(*y));
	double *dy = normal(count(one), 0, 2), *dx = normal(count(s), 0, 3);
	double *before = normal(count(s), 0, 4);
	struct cpu_image from = image(w, s, x), to, back, grad;

	plain.lie = PLAIN;
	to = result(&plain, one, before);
	w->set->pools->global(&from, to.data, w->add, THREADS);
	for (int64_t i = 0; i < count(s); i++)
		y[i / pixels] += x[i] / (double)pixels;
	check(&plain, "global pool", &to, y, before);
	grad = image(&plain, one, dy);
	back = result(w, s, before);
	w->set->pools->global_grad(&back, grad.data, w->add, THREADS);
	for (int64_t i = 0; i < count(s); i++)
		dx[i] = dy[i / pixels] / (double)pixels;
	check(w, "gradient of global pool", &back, dx, before);
	free(from.data), free(grad.data), free(x), free(y), free(dy), free(dx), free(before);
}

static void global_pools(void **unused)
{
	(void)unused;
	each_way(global_way);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(batchnorm),
		cmocka_unit_test(batchnorm_grad),
		cmocka_unit_test(pools),
		cmocka_unit_test(global_pools),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
