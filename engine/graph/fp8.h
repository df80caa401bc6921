/* SPDX-License-Identifier: Apache-2.0 */
/* Products in 8 bits. */
#ifndef JM_FP8_H
#define JM_FP8_H

#include <string.h>

#include "graph.h"

#define JM_FP8_RANGES "fp8.ranges"

/*
 * Linear layers inside blocks multiply in 8 bits with scales from the maxima of the last
 * steps, which are kept in the state "fp8.ranges". To be called after jm_graph_gradients, if it is
 * called, and before all other passes. JM_EUSAGE: no layer has suitable widths, or the rows of one
 * are unsuitable. jm_graph_rescale, after the update, computes the scales of the next step.
 */
int jm_graph_fp8(struct jm_graph *g, struct jm_err *err);
int jm_graph_rescale(struct jm_graph *g, struct jm_err *err);
/* Each of several ranks has ranges of its own. */
static inline bool jm_fp8_is_ranges(const struct jm_tensor *t)
{
	return !strcmp(t->name, JM_FP8_RANGES);
}
/*
 * The same for a graph without gradients whose weights stay as they are: each row of x and of the
 * weights has a scale of its own, from its maximum, so that rows do not depend on their neighbours.
 * The parameters are then in 8 bits, with the tensor jm_cell.scale beside them. To be called before
 * all other passes. JM_EUSAGE: no layer has suitable widths.
 */
int jm_graph_fp8_rows(struct jm_graph *g, struct jm_err *err);

#endif
