/* SPDX-License-Identifier: Apache-2.0 */
/* Bits of a node's `accumulate`, by its results in their order (node.h): which ones are added to
 * what they hold. */
#ifndef JM_ACCUMULATE_H
#define JM_ACCUMULATE_H

enum jm_add {
	JM_ADD_OUT = 1, /* the first result of every op: y, dx, a loss */

	JM_ADD_NORM_STATS = 2 | 4, /* mean and rstd, beside y */
	JM_ADD_NORM_DGAMMA = 2,	   /* beside dx, as the next two */
	JM_ADD_NORM_DBETA = 4,
	JM_ADD_NORM_DADD = 8,
	JM_ADD_NORM_GRAD = 1 | 2 | 4 | 8, /* all of them */

	JM_ADD_QUANTIZED = 1 | 2 | 4, /* all but the sums */

	JM_ADD_WGRAD_DBIAS = 2, /* beside dw */

	JM_ADD_LOSS_DX = 2, /* beside the loss */
	JM_ADD_EMBED_DPOS = 2,
	JM_ADD_TOKENS_DFIRST = 2,
	JM_ADD_TOKENS_DPOS = 4,
	JM_ADD_PUT_DROWS = 2 /* beside dx */
};

#endif
