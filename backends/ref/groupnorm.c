/* SPDX-License-Identifier: Apache-2.0 */
/* Group norm (Wu and He, arXiv 1803.08494) over images [B,C,Y,X], also with SiLU. */
#include "ref_kernels.h"

#include <math.h>

/* Elements of a group, which are adjacent, and of a channel. */
static int64_t group_of(const struct jm_node *n, const struct jm_tensor *x)
{
	return jm_tensor_count(x) / x->dim[0] / n->attr.group.groups;
}

static int64_t channel_of(const struct jm_tensor *x, int64_t i)
{
	return i / (x->dim[2] * x->dim[3]) % x->dim[1];
}

void jm_ref_groupnorm(const struct jm_node *n, double *const *in, double *const *out)
{
	const struct jm_tensor *x = n->in[0];
	int64_t size = group_of(n, x);

	for (int64_t k = 0; k < jm_tensor_count(x) / size; k++) {
		double mean = 0, var = 0, rstd;

		for (int64_t i = k * size; i < (k + 1) * size; i++)
			mean += in[0][i] / (double)size;
		for (int64_t i = k * size; i < (k + 1) * size; i++)
			var += (in[0][i] - mean) * (in[0][i] - mean) / (double)size;
		rstd = 1 / sqrt(var + n->attr.group.eps);
		for (int64_t i = k * size; i < (k + 1) * size; i++) {
			int64_t c = channel_of(x, i);
			double t = (in[0][i] - mean) * rstd * in[1][c] + in[2][c];

			out[0][i] = n->attr.group.silu ? t / (1 + exp(-t)) : t;
		}
		out[1][k] = mean;
		out[2][k] = rstd;
	}
}

/* e of element i, whose normalised value is h. */
static double slope(const struct jm_node *n, double *const *in, int64_t i, double h)
{
	int64_t c = channel_of(n->in[1], i);
	double t = h * in[2][c] + in[3][c], s = 1 / (1 + exp(-t));

	return in[0][i] * (n->attr.group.silu ? s * (1 + t * (1 - s)) : 1);
}

void jm_ref_groupnorm_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	const struct jm_tensor *x = n->in[1];
	int64_t size = group_of(n, x);

	for (int64_t k = 0; k < jm_tensor_count(x) / size; k++) {
		double mean = in[4][k], rstd = in[5][k], sum = 0, product = 0;

		for (int64_t i = k * size; i < (k + 1) * size; i++) {
			int64_t c = channel_of(x, i);
			double h = (in[1][i] - mean) * rstd, e = slope(n, in, i, h);

			sum += e * in[2][c] / (double)size;
			product += e * in[2][c] * h / (double)size;
			out[1][c] += e * h;
			out[2][c] += e;
		}
		for (int64_t i = k * size; i < (k + 1) * size; i++) {
			double h = (in[1][i] - mean) * rstd;
			double g = slope(n, in, i, h) * in[2][channel_of(x, i)];

			out[0][i] = rstd * (g - sum - h * product);
		}
	}
}
