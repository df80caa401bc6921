/* SPDX-License-Identifier: Apache-2.0 */
/* Native work in a worker: setup, warm-up, steady, verify, each a phase; then its teardown. */
#ifndef JM_WORKER_NATIVE_H
#define JM_WORKER_NATIVE_H

#include "worker_state.h"

/* Both fill the record and main_phase; an error is a failure of the work. */
int jm__worker_native(struct jm__worker *w, struct jm_err *err);
/* Tears the work down. After the record was sent: closing a device that hangs may never return. */
void jm__worker_native_end(struct jm__worker *w);

#endif
