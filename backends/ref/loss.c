/* SPDX-License-Identifier: Apache-2.0 */
/* Losses with the gradients of their inputs; accuracy. */
#include "ref_kernels.h"

#include <math.h>

/* The sum of exp(x - most). Their logarithm would be lost beside a very large maximum, so both are
 * kept. */
struct exponentials {
	double most, sum;
};

static struct exponentials sum_exponentials(const double *x, int64_t n)
{
	struct exponentials e = {.most = -INFINITY};

	for (int64_t i = 0; i < n; i++)
		e.most = fmax(e.most, x[i]);
	for (int64_t i = 0; i < n; i++)
		e.sum += exp(x[i] - e.most);
	return e;
}

/* The rows that count. */
static int64_t counted(const struct jm_node *n, const double *target, int64_t rows)
{
	int64_t all = 0;

	for (int64_t r = 0; r < rows; r++)
		all += !n->attr.xent.ignores || target[r] >= 0;
	return all;
}

void jm_ref_softmax_xent(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t rows = jm_tensor_rows(n->in[0]), width = jm_tensor_width(n->in[0]);
	int64_t classes = n->attr.xent.classes ? n->attr.xent.classes : width;
	double each = n->attr.xent.weight / (double)counted(n, in[1], rows);
	double scale = each * n->attr.xent.scale * (in[2] ? in[2][0] : 1);

	for (int64_t r = 0; r < rows; r++) {
		const double *x = in[0] + r * width;
		int64_t target = (int64_t)in[1][r];
		struct exponentials e = sum_exponentials(x, classes);

		if (target < 0)
			continue;
		out[0][0] += each * (log(e.sum) + (e.most - x[target]));
		for (int64_t i = 0; out[1] && i < classes; i++)
			out[1][r * width + i] =
				scale * (exp(x[i] - e.most) / e.sum - (i == target));
	}
}

/* Of the largest the first is best. A NaN is never best. */
static bool is_best(const double *x, int64_t width, int64_t target)
{
	for (int64_t i = 0; i < width; i++)
		if (x[i] > x[target] || (x[i] == x[target] && i < target))
			return false;
	return !isnan(x[target]);
}

void jm_ref_top1(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t rows = jm_tensor_rows(n->in[0]), width = jm_tensor_width(n->in[0]);

	for (int64_t r = 0; r < rows; r++) {
		int64_t target = (int64_t)in[1][r];

		out[0][0] += target >= 0 && is_best(in[0] + r * width, width, target);
	}
	out[0][0] /= (double)rows;
}

void jm_ref_mse(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t count = jm_tensor_count(n->in[0]);
	double weight = n->attr.xent.weight,
	       scale = 2 * weight * n->attr.xent.scale * (in[2] ? in[2][0] : 1) / (double)count;

	for (int64_t i = 0; i < count; i++) {
		double off = in[0][i] - in[1][i];

		out[0][0] += weight * off * off / (double)count;
		if (out[1])
			out[1][i] = scale * off;
	}
}
