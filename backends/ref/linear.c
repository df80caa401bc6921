/* SPDX-License-Identifier: Apache-2.0 */
/* y[rows, N] = x[rows, K] w[N, K]^T + bias[N], and its gradients. */
#include "ref_kernels.h"

/* The product of the scales of both factors; an absent scale is 1. */
static double scale(const double *a, const double *b)
{
	return (a ? *a : 1) * (b ? *b : 1);
}

/* Factor i of a scale that may be one number for all. */
static double factor(const struct jm_tensor *t, const double *scale, int64_t i)
{
	return scale ? scale[jm_tensor_count(t) > 1 ? i : 0] : 1;
}

void jm_ref_linear(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t rows = jm_tensor_rows(n->in[0]), width = n->in[1]->dim[0], depth = n->in[1]->dim[1];

	for (int64_t r = 0; r < rows; r++)
		for (int64_t j = 0; j < width; j++) {
			const double *x = in[0] + r * depth, *w = in[1] + j * depth;
			double both = factor(n->in[3], in[3], r) * factor(n->in[4], in[4], j);
			double sum = 0;

			for (int64_t k = 0; k < depth; k++)
				sum += x[k] * w[k];
			out[0][r * width + j] = both * sum + (in[2] ? in[2][j] : 0);
		}
}

void jm_ref_linear_dgrad(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t rows = jm_tensor_rows(n->in[0]), width = n->in[1]->dim[0], depth = n->in[1]->dim[1];
	double both = scale(in[2], in[3]);

	for (int64_t r = 0; r < rows; r++)
		for (int64_t j = 0; j < width; j++) {
			const double dy = both * in[0][r * width + j];
			const double *w = in[1] + j * depth;
			double *dx = out[0] + r * depth;

			for (int64_t k = 0; k < depth; k++)
				dx[k] += dy * w[k];
		}
}

void jm_ref_linear_wgrad(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t rows = jm_tensor_rows(n->in[0]);
	int64_t width = jm_tensor_width(n->in[0]), depth = jm_tensor_width(n->in[1]);
	double of_dy = scale(in[2], NULL), of_x = scale(in[3], NULL);

	for (int64_t r = 0; r < rows; r++)
		for (int64_t j = 0; j < width; j++) {
			const double dy = of_dy * in[0][r * width + j], scaled = of_x * dy;
			const double *x = in[1] + r * depth;
			double *dw = out[0] + j * depth;

			for (int64_t k = 0; k < depth; k++)
				dw[k] += scaled * x[k];
			if (out[1])
				out[1][j] += dy;
		}
}
