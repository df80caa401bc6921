/* SPDX-License-Identifier: Apache-2.0 */
/* Look-up of tokens and positions. */
#include "ref_kernels.h"

void jm_ref_embed(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t rows = jm_tensor_rows(n->out[0]), width = jm_tensor_width(n->out[0]);
	int64_t seq = n->in[0]->dim[1];

	for (int64_t r = 0; r < rows; r++) {
		const double *token = in[1] + (int64_t)in[0][r] * width;
		double *y = out[0] + r * width;

		for (int64_t i = 0; i < width; i++)
			y[i] = token[i] + (in[2] ? in[2][r % seq * width + i] : 0);
	}
}

void jm_ref_embed_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t rows = jm_tensor_rows(n->in[1]), width = jm_tensor_width(n->in[1]);
	int64_t seq = n->in[0]->dim[1];

	for (int64_t r = 0; r < rows; r++) {
		const double *dy = in[1] + r * width;
		double *dtoken = out[0] + (int64_t)in[0][r] * width;

		for (int64_t i = 0; i < width; i++)
			dtoken[i] += dy[i];
		for (int64_t i = 0; out[1] && i < width; i++)
			out[1][r % seq * width + i] += dy[i];
	}
}
