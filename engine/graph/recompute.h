/* SPDX-License-Identifier: Apache-2.0 */
/* Recomputes whole blocks. */
#ifndef JM_RECOMPUTE_H
#define JM_RECOMPUTE_H

#include "graph.h"

/* Blocks keep only what other blocks read; the rest is computed again before it is
 * needed for gradients. To be called instead of jm_graph_rematerialize. */
int jm_graph_recompute(struct jm_graph *g, struct jm_err *err);

#endif
