/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of which the loss has a target, and their gradient in its place; as kernels.h says. */
#ifndef JM_CUDA_WANTED_ROWS_H
#define JM_CUDA_WANTED_ROWS_H

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x[at[r]] = y[r] for rows of y [n,width], all other rows of x [all,width] are 0; or that is added.
 * Both have one type. */
struct cuda_spread_rows {
	int64_t n, all, width;
	const int32_t *at;
	struct cuda_vec x, y;
	bool accumulate;
};
void cuda_spread_rows(const struct cuda_spread_rows *p, cudaStream_t stream);

/* at[most]: the numbers of the targets that are 0 or more, then of the others, in their order. */
struct cuda_wanted_rows {
	int rows, most;
	const int32_t *target;
	int32_t *at, *wanted; /* wanted[i] = target[at[i]] */
};
void cuda_wanted_rows(const struct cuda_wanted_rows *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
