/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm (Ioffe and Szegedy, arXiv 1502.03167) over images [B,C,Y,X]. */
#include "ref_kernels.h"

#include <math.h>

/* The number of elements of a channel, and the position of its i-th. */
static int64_t per_channel(const struct jm_tensor *t)
{
	return jm_tensor_count(t) / t->dim[1];
}

static int64_t place(const struct jm_tensor *t, int64_t channel, int64_t i)
{
	int64_t plane = t->dim[2] * t->dim[3];

	return (i / plane * t->dim[1] + channel) * plane + i % plane;
}

void jm_ref_bn_stats(const struct jm_node *n, double *const *in, double *const *out)
{
	const struct jm_tensor *x = n->in[0];
	int64_t count = per_channel(x);

	for (int64_t c = 0; c < x->dim[1]; c++) {
		double mean = 0, var = 0;

		for (int64_t i = 0; i < count; i++)
			mean += in[0][place(x, c, i)];
		mean /= (double)count;
		for (int64_t i = 0; i < count; i++) {
			double off = in[0][place(x, c, i)] - mean;

			var += off * off;
		}
		out[0][c] = mean;
		out[1][c] = var / (double)count;
	}
}

static void update(const struct jm_tensor *t, int64_t i, double value, double momentum)
{
	double before = jm_element_get(t->type, t->data, i);

	jm_element_set(t->type, t->data, i, before + momentum * (value - before));
}

/* Direct: the running statistics are read and written. */
void jm_ref_bn_finalize(const struct jm_node *n, double *const *in, double *const *out)
{
	double count = (double)n->attr.bn.count, momentum = n->attr.bn.momentum;

	(void)in;
	(void)out;
	for (int64_t c = 0; c < jm_tensor_count(n->in[0]); c++) {
		double mean = jm_element_get(n->in[0]->type, n->in[0]->data, c);
		double var = jm_element_get(n->in[1]->type, n->in[1]->data, c);

		jm_element_set(n->out[0]->type, n->out[0]->data, c, 1 / sqrt(var + n->attr.bn.eps));
		if (n->out[1])
			update(n->out[1], c, mean, momentum);
		if (n->out[2])
			update(n->out[2], c, count > 1 ? var * count / (count - 1) : var, momentum);
	}
}

void jm_ref_bn_apply(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t plane = n->in[0]->dim[2] * n->in[0]->dim[3];

	for (int64_t i = 0; i < jm_tensor_count(n->in[0]); i++) {
		int64_t c = i / plane % n->in[0]->dim[1];
		double y = (in[0][i] - in[1][c]) * in[2][c] * in[3][c] + in[4][c];

		if (in[5])
			y += in[5][i];
		out[0][i] = n->attr.bn.relu && !(y > 0) && !isnan(y) ? 0 : y;
	}
}

/* dy at element `at` of channel c if the ReLU passed its input, else 0. */
static double passed(const struct jm_node *n, double *const *in, int64_t at, int64_t c)
{
	double y = 1;

	if (n->attr.bn.relu && in[6])
		y = (in[1][at] - in[4][c]) * in[5][c] * in[3][c] + in[6][c];
	else if (n->attr.bn.relu)
		y = in[2][at];
	return y > 0 ? in[0][at] : 0;
}

void jm_ref_bn_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	const struct jm_tensor *x = n->in[1];
	int64_t count = per_channel(x);

	for (int64_t c = 0; c < x->dim[1]; c++) {
		double mean = in[4][c], rstd = in[5][c], sum = 0, sum_h = 0;

		for (int64_t i = 0; i < count; i++) {
			int64_t at = place(x, c, i);
			double e = passed(n, in, at, c);

			sum += e;
			sum_h += e * (in[1][at] - mean) * rstd;
			if (out[3])
				out[3][at] = e;
		}
		out[1][c] = sum_h;
		out[2][c] = sum;
		for (int64_t i = 0; i < count; i++) {
			int64_t at = place(x, c, i);
			double e = passed(n, in, at, c);
			double h = (in[1][at] - mean) * rstd;

			out[0][at] = in[3][c] * rstd *
				     (e - sum / (double)count - h * sum_h / (double)count);
		}
	}
}
