/* SPDX-License-Identifier: Apache-2.0 */
/* Losses with the gradients of their inputs; accuracy. */
#include "ref_kernels.h"

#include <math.h>

static double log_sum_exp(const double *x, int64_t n)
{
	double most = -INFINITY, sum = 0;

	for (int64_t i = 0; i < n; i++)
		most = fmax(most, x[i]);
	for (int64_t i = 0; i < n; i++)
		sum += exp(x[i] - most);
	return most + log(sum);
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
		double lse = log_sum_exp(x, classes);

		if (target < 0)
			continue;
		out[0][0] += each * (lse - x[target]);
		for (int64_t i = 0; out[1] && i < classes; i++)
			out[1][r * width + i] = scale * (exp(x[i] - lse) - (i == target));
	}
}

void jm_ref_top1(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t rows = jm_tensor_rows(n->in[0]), width = jm_tensor_width(n->in[0]);

	for (int64_t r = 0; r < rows; r++) {
		const double *x = in[0] + r * width;
		int64_t best = 0;

		for (int64_t i = 1; i < width; i++)
			if (x[i] > x[best])
				best = i;
		out[0][0] += best == (int64_t)in[1][r];
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
