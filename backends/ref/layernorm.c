/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm, and RMS norm (Zhang and Sennrich, arXiv 1910.07467), over the last dim. */
#include "ref.h"

#include <math.h>

static double mean_of(const double *x, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += x[i];
	return sum / (double)n;
}

void jm_ref_layernorm(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t rows = jm_tensor_rows(n->in[0]), width = jm_tensor_width(n->in[0]);

	for (int64_t r = 0; r < rows; r++) {
		const double *x = in[0] + r * width;
		double mean = mean_of(x, width), variance = 0, rstd;

		for (int64_t i = 0; i < width; i++)
			variance += (x[i] - mean) * (x[i] - mean) / (double)width;
		rstd = 1 / sqrt(variance + n->attr.norm.eps);
		for (int64_t i = 0; i < width; i++)
			out[0][r * width + i] =
				(x[i] - mean) * rstd * in[1][i] + (in[2] ? in[2][i] : 0);
		out[1][r] = mean;
		out[2][r] = rstd;
	}
}

void jm_ref_layernorm_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t rows = jm_tensor_rows(n->in[0]), width = jm_tensor_width(n->in[0]);
	const double *gamma = in[2];

	for (int64_t r = 0; r < rows; r++) {
		const double *dy = in[0] + r * width, *x = in[1] + r * width;
		double mean = in[3][r], rstd = in[4][r], mean_g = 0, mean_gh = 0;

		for (int64_t i = 0; i < width; i++) {
			double h = (x[i] - mean) * rstd, g = dy[i] * gamma[i];

			mean_g += g / (double)width;
			mean_gh += g * h / (double)width;
			out[1][i] += dy[i] * h;
			if (out[2])
				out[2][i] += dy[i];
		}
		for (int64_t i = 0; i < width; i++) {
			double h = (x[i] - mean) * rstd, g = dy[i] * gamma[i];

			out[0][r * width + i] = rstd * (g - mean_g - h * mean_gh);
		}
	}
}

void jm_ref_rmsnorm(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t rows = jm_tensor_rows(n->in[0]), width = jm_tensor_width(n->in[0]);

	for (int64_t r = 0; r < rows; r++) {
		const double *x = in[0] + r * width;
		double square = 0;

		for (int64_t i = 0; i < width; i++)
			square += x[i] * x[i] / (double)width;
		out[1][r] = 1 / sqrt(square + n->attr.norm.eps);
		for (int64_t i = 0; i < width; i++)
			out[0][r * width + i] = x[i] * out[1][r] * in[1][i];
	}
}

void jm_ref_rmsnorm_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t rows = jm_tensor_rows(n->in[0]), width = jm_tensor_width(n->in[0]);

	for (int64_t r = 0; r < rows; r++) {
		const double *dy = in[0] + r * width, *x = in[1] + r * width;
		double rstd = in[3][r], mean_gh = 0;

		for (int64_t i = 0; i < width; i++) {
			mean_gh += dy[i] * in[2][i] * x[i] * rstd / (double)width;
			out[1][i] += dy[i] * x[i] * rstd;
		}
		for (int64_t i = 0; i < width; i++)
			out[0][r * width + i] = rstd * (dy[i] * in[2][i] - x[i] * rstd * mean_gh);
	}
}
