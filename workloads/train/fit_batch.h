/* SPDX-License-Identifier: Apache-2.0 */
/* The largest batch that fits into memory, by planning: no step runs. */
#ifndef JM_FIT_BATCH_H
#define JM_FIT_BATCH_H

#include "engine/graph/model.h"
#include "engine/run/program.h"
#include "train_eval.h"

/*
 * The largest batch whose plan, with that of its evaluation if there is one and with the inputs on
 * their way, takes at most `limit` bytes, found by a few plans; t->batch is set. At most a million,
 * where memory allows more. When not even the smallest fits: as jm_room_refuse. eval: nothing is
 * planned yet.
 */
int jm_fit_batch(struct jm_training *t, const struct jm_batch_feed *feed,
	const struct jm_evaluation *eval, struct jm_device *device, size_t limit,
	struct jm_room room, struct jm_err *err);

#endif
