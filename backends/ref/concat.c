/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors side by side along one dim, and the parts of such a tensor. */
#include "ref_kernels.h"

/* Calls move(whole, part) for each element of part i, whose tensor may be absent. */
static void each(const struct jm_node *n, const struct jm_tensor *whole, double *all,
	double *const *part, void (*move)(double *whole, double *part))
{
	int64_t behind = 1, rows = 1, begin = 0;

	for (int i = 0; i < whole->rank; i++)
		*(i < n->attr.concat.axis ? &rows : &behind) *= whole->dim[i];
	for (int i = 0; i < JM_PARTS; i++) {
		int64_t width = behind / whole->dim[n->attr.concat.axis] * n->attr.concat.size[i];

		for (int64_t k = 0; part[i] && k < rows * width; k++)
			move(&all[k / width * behind + begin + k % width], &part[i][k]);
		begin += width;
	}
}

static void join(double *whole, double *part)
{
	*whole = *part;
}

static void take(double *whole, double *part)
{
	*part = *whole;
}

void jm_ref_concat(const struct jm_node *n, double *const *in, double *const *out)
{
	each(n, n->out[0], out[0], in, join);
}

void jm_ref_split(const struct jm_node *n, double *const *in, double *const *out)
{
	each(n, n->in[0], in[0], out, take);
}
