/* SPDX-License-Identifier: Apache-2.0 */
/* The processors of a worker: of its sampler, and of its work. */
#ifndef JM_WORKER_AFFINITY_H
#define JM_WORKER_AFFINITY_H

#include "worker_state.h"

/* Asks on which processors this host's ranks run, and binds this thread to those of the sampler,
 * whose threads are then started. */
int jm__worker_bind_sampler(struct jm__worker *w, struct jm_err *err);
/* Binds this thread to the rank's. */
int jm__worker_bind_work(struct jm__worker *w, struct jm_err *err);
/* Ranks that share the processors which this one may use; 0 = all. */
int jm__worker_sharing(const struct jm__worker *w);

#endif
