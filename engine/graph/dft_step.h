/* SPDX-License-Identifier: Apache-2.0 */
/* The products with constant matrices of which the ops dft and idft consist: one for each axis. */
#ifndef JM_DFT_STEP_H
#define JM_DFT_STEP_H

#include "node.h"

/*
 * y[outer,rows,width] = m[rows,n] x[outer,n,width]. From the last axis to the first, x[B,N..,C]
 * becomes [B,N..,2,K,C] by the last one, and [B,..,N,2,W] becomes [B,..,2,K,W] by each further one:
 * W are the frequencies of the axes before and the channels. idft takes the same steps in the
 * opposite order.
 */
struct jm_dft_step {
	int64_t outer, rows, n, width;
	int64_t points, kept, modes; /* of the axis; kept: frequencies of both signs */
	double scale; /* 1, and of the last step that of all, so that it is rounded once */
	bool last;    /* axis: its points are real */
	bool back, twice;
};

/* The number of steps: of axes. */
int jm_dft_steps(const struct jm_node *n);
/* The step that is computed as number i, from 0. */
struct jm_dft_step jm_dft_step(const struct jm_node *n, int i);
/* An element of its matrix m. */
double jm_dft_element(const struct jm_dft_step *s, int64_t row, int64_t column);

#endif
