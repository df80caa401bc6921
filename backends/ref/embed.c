/* SPDX-License-Identifier: Apache-2.0 */
/* Look-up of tokens and positions; other rows in their place. */
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

void jm_ref_put_rows(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t seq = n->in[0]->dim[1], places = n->in[1]->dim[1], width = n->in[0]->dim[2];

	for (int64_t i = 0; i < jm_tensor_count(n->in[0]); i++) {
		int64_t b = i / width / seq, s = i / width % seq;
		int64_t at = (int64_t)in[2][b], p = s - at;
		bool is_put = at >= 0 && p >= 0 && p < places;

		out[0][i] = is_put ? in[1][(b * places + p) * width + i % width] : in[0][i];
	}
}

void jm_ref_put_rows_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t seq = n->in[0]->dim[1], places = n->attr.put.places, width = n->in[0]->dim[2];

	for (int64_t i = 0; i < jm_tensor_count(n->in[0]); i++) {
		int64_t b = i / width / seq, s = i / width % seq;
		int64_t at = (int64_t)in[1][b], p = s - at;
		bool is_put = at >= 0 && p >= 0 && p < places;

		out[0][i] = is_put ? 0 : in[0][i];
		if (is_put && out[1])
			out[1][(b * places + p) * width + i % width] = in[0][i];
	}
}
