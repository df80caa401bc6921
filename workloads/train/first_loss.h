/* SPDX-License-Identifier: Apache-2.0 */
/* The loss that a network with its start values must have: that of guessing, within what the spread
 * of its logits allows. */
#ifndef JM_FIRST_LOSS_H
#define JM_FIRST_LOSS_H

#include "engine/graph/graph.h"

struct jm_first_loss {
	int64_t classes; /* of the last one of several losses */
	double guess, least, most;
};

/* targets: how many classes of the batch were drawn independently, at least 1. false: unknown, as
 * the loss has no classes, or its logits are not products with start values. */
bool jm_first_loss(const struct jm_graph *g, int64_t targets, struct jm_first_loss *ret);

#endif
