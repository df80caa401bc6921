/* SPDX-License-Identifier: Apache-2.0 */
/* The update of several ranks, of which each has a share. */
#ifndef JM_SHARD_UPDATE_H
#define JM_SHARD_UPDATE_H

#include "optimizer.h"

/* The same for several ranks, each of which updates a share of the parameters. */
int jm_graph_shard_update(struct jm_graph *g, const struct jm_adamw *how, struct jm_err *err);

#endif
