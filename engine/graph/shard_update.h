/* SPDX-License-Identifier: Apache-2.0 */
/* The update of several ranks, of which each has a share. */
#ifndef JM_SHARD_UPDATE_H
#define JM_SHARD_UPDATE_H

#include "optimizer.h"

/* The same for several ranks, each of which updates a share of the parameters. */
int jm_graph_shard_update(struct jm_graph *g, const struct jm_adamw *how, struct jm_err *err);

/* Elements of a parameter, one after the other in memory, of which one rank keeps moments. */
struct jm_shard_run {
	const struct jm_segment *segment;
	int rank;      /* with is_whole the first one, for all */
	int64_t at, n; /* the place of the first one in what the rank keeps of the segment */
};

/* The run from element `first` of the trained parameter on, in the order of its layout. */
struct jm_shard_run jm_shard_run(const struct jm_graph *g, const struct jm_cell *c, int64_t first);

#endif
