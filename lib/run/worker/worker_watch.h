/* SPDX-License-Identifier: Apache-2.0 */
/* How long a parent waits for its workers, and what it does to those that do not end. */
#ifndef JM_WORKER_WATCH_H
#define JM_WORKER_WATCH_H

#include "worker_end.h"

/* Ends the workers: by SIGTERM and a while later SIGKILL; the second time at once. */
void jm__stop_workers(struct jm__child *c, enum jm__stop why);
/* Notes the first rank that failed, and kills the others: they would wait for it forever. */
void jm__note_failure(struct jm__child *c, const struct jm__member *m);
/* Rank 0 has told something other than readings, which come from another thread of it. */
void jm__note_heard(struct jm__child *c);
/* Ends what is overdue; to be called every second or so, and the time until it must be, in ms. */
void jm__watch(struct jm__child *c);
int jm__watch_ms(const struct jm__child *c);
/* After its status is known, which this may change. */
void jm__note_end(struct jm__child *c, struct jm__member *m);

#endif
