/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts that several ops accept: channels last, padded rows, and those of elementwise ops. */
#ifndef JM_LAYOUTS_H
#define JM_LAYOUTS_H

#include "cuda.h"

/* The layout of [B,C,Y,X] with the channels last in memory. */
extern const struct jm_layout cuda_layout_last;
/*
 * For `choices` of elementwise ops: makes one choice per dense layout that an operand has, and
 * gives this layout to all operands of node 0 whose bits are set in `in` and `out`. Returns the
 * number of choices.
 */
int cuda_choices_follow(
	const struct jm_node *node, unsigned in, unsigned out, struct jm_choice *choice);
/* True if the layout has each dim once and no blocks, so that the elements are contiguous. */
bool cuda_is_dense(const struct jm_layout *layout);

/*
 * The layout of matrices that products read or write: if rows do not start at multiples of 16
 * bytes, they are padded to a multiple of 64 elements (one block of the last dim); otherwise plain.
 */
void cuda_rows_layout(const struct jm_tensor *t, struct jm_layout *ret);
/* The same for the number of rows, after which rows of zeros follow. */
void cuda_tall_layout(const struct jm_tensor *t, struct jm_layout *ret);
bool cuda_is_tall(const struct jm_tensor *t);
int64_t cuda_tall_rows(const struct jm_tensor *t); /* includes the rows of zeros */
/* Elements from one row to the next; 0 = the layout is neither plain nor that of
 * cuda_rows_layout. */
int64_t cuda_row_stride(const struct jm_tensor *t);

#endif
