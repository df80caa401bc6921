/* SPDX-License-Identifier: Apache-2.0 */
/* Noise of a step, the number of the step as waves, samples of moments, and pixels. */
#include "engine/graph/noise_schedule.h"
#include "ref_kernels.h"

void jm_ref_add_noise(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t batch = n->in[0]->dim[0], each = jm_tensor_count(n->in[0]) / batch;

	for (int64_t b = 0; b < batch; b++) {
		double kept = jm_noise_kept(&n->attr, (int64_t)in[2][b]);
		double own = sqrt(kept), other = sqrt(1 - kept);

		for (int64_t i = b * each; i < (b + 1) * each; i++) {
			double x = in[0][i], e = in[1][i];

			out[0][i] = own * x + other * e;
			if (out[1])
				out[1][i] = n->attr.noise.velocity ? own * e - other * x : e;
		}
	}
}

void jm_ref_draw_moments(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t batch = n->out[0]->dim[0], each = jm_tensor_count(n->out[0]) / batch;

	for (int64_t i = 0; i < batch * each; i++) {
		const double *mean = in[0] + i / each * 2 * each + i % each;
		double log_var = fmin(fmax(mean[each], JM_LOG_VAR_LEAST), JM_LOG_VAR_MOST);

		out[0][i] = n->attr.draw.factor * (mean[0] + exp(log_var / 2) * in[1][i]);
	}
}

void jm_ref_step_waves(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t batch = n->out[0]->dim[0], width = n->out[0]->dim[1], half = width / 2;

	for (int64_t i = 0; i < batch * half; i++) {
		int64_t b = i / half, k = i % half;
		double angle = in[0][b] * pow(10000, -(double)k / (double)half);

		out[0][b * width + k] = cos(angle);
		out[0][b * width + half + k] = sin(angle);
	}
}

void jm_ref_colours(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t plane = n->in[0]->dim[2] * n->in[0]->dim[3], count = jm_tensor_count(n->in[0]);

	for (int64_t i = 0; i < count; i++) {
		int64_t c = i / plane % 3;

		out[0][i] = (double)n->attr.colours.factor[c] * in[0][i] +
			    (double)n->attr.colours.shift[c];
	}
}
