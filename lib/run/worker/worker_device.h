/* SPDX-License-Identifier: Apache-2.0 */
/* The device that a native work runs on: its meter, and its clock relative to the run's. */
#ifndef JM_WORKER_DEVICE_H
#define JM_WORKER_DEVICE_H

#include "worker_state.h"

/* After setup; at borders of phases, with nothing under way; instead of jm__worker_end, device_ns 0
 * = unknown; when all is done */
void jm__worker_own(struct jm__worker *w, const struct jm_work *work);
int jm__worker_anchor(struct jm__worker *w, const struct jm_work *work, struct jm_err *err);
void jm__worker_end_at(struct jm__worker *w, int phase, int64_t device_ns);
double jm__worker_align(struct jm__worker *w);

/* "cuda:0,cuda:1": rank r runs on the r-th of as many as there are ranks; else all run on the one
 * named. NULL = `list`. */
const char *jm__device_of_rank(const char *list, int rank, char *out, size_t size);
/* The ranks and what they ran on. */
json_t *jm__worker_gang(const struct jm__worker *w, const struct jm_work *work);

#endif
