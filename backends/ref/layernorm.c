/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm, and RMS norm (Zhang and Sennrich, arXiv 1910.07467), which has no mean, over the last
 * dim. */
#include "ref_kernels.h"

#include <math.h>

static double mean_of(const double *x, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += x[i];
	return sum / (double)n;
}

/* beta may be NULL; mean NULL: an RMS norm */
static void norm(const struct jm_node *n, double *const *in, const double *beta, double *y,
	double *mean, double *rstd)
{
	int64_t rows = jm_tensor_rows(n->in[0]), width = jm_tensor_width(n->in[0]);

	for (int64_t r = 0; r < rows; r++) {
		const double *x = in[0] + r * width;
		double middle = mean ? mean_of(x, width) : 0, variance = 0;

		for (int64_t i = 0; i < width; i++)
			variance += (x[i] - middle) * (x[i] - middle) / (double)width;
		rstd[r] = 1 / sqrt(variance + n->attr.norm.eps);
		for (int64_t i = 0; i < width; i++)
			y[r * width + i] =
				(x[i] - middle) * rstd[r] * in[1][i] + (beta ? beta[i] : 0);
		if (mean)
			mean[r] = middle;
	}
}

/* in: dy, x, gamma; mean NULL: of an RMS norm. out: dx, dgamma, dbeta (these may be NULL) */
static void norm_grad(const struct jm_node *n, double *const *in, const double *mean,
	const double *rstd, double *const *out)
{
	int64_t rows = jm_tensor_rows(n->in[0]), width = jm_tensor_width(n->in[0]);
	double *dbeta = mean ? out[2] : NULL;

	for (int64_t r = 0; r < rows; r++) {
		const double *dy = in[0] + r * width, *x = in[1] + r * width;
		double middle = mean ? mean[r] : 0, mean_g = 0, mean_gh = 0;

		for (int64_t i = 0; i < width; i++) {
			double h = (x[i] - middle) * rstd[r], g = dy[i] * in[2][i];

			mean_g += mean ? g / (double)width : 0;
			mean_gh += g * h / (double)width;
			if (out[1])
				out[1][i] += dy[i] * h;
			if (dbeta)
				dbeta[i] += dy[i];
		}
		for (int64_t i = 0; i < width; i++) {
			double h = (x[i] - middle) * rstd[r], g = dy[i] * in[2][i];

			out[0][r * width + i] = rstd[r] * (g - mean_g - h * mean_gh);
		}
	}
}

void jm_ref_layernorm(const struct jm_node *n, double *const *in, double *const *out)
{
	norm(n, in, in[2], out[0], out[1], out[2]);
}

void jm_ref_layernorm_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	norm_grad(n, in, in[3], in[4], out);
}

void jm_ref_rmsnorm(const struct jm_node *n, double *const *in, double *const *out)
{
	norm(n, in, NULL, out[0], NULL, out[1]);
}

void jm_ref_rmsnorm_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	norm_grad(n, in, NULL, in[3], out);
}
