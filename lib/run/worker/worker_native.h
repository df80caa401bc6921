/* SPDX-License-Identifier: Apache-2.0 */
/* Native work in a worker: setup, warm-up, steady, verify, teardown, each a phase. */
#ifndef JM_WORKER_NATIVE_H
#define JM_WORKER_NATIVE_H

#include "worker_state.h"

/* Both fill the record and main_phase; an error is a failure of the work. */
int jm__worker_native(struct jm__worker *w, struct jm_err *err);

#endif
