/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replicas: the ranks of serve, each with a device, weights and a cache of its own, that answer the
 * requests of one queue (request_queue.h). Steps of one wait for no other: ranks meet only where a
 * phase begins and ends. For one rank alone these functions do nothing, except that requests of
 * clients (--listen) have a queue there, too.
 */
#ifndef JM_REPLICAS_H
#define JM_REPLICAS_H

#include "rate_search.h"
#include "serve_state.h"

/* Before anything is opened: JM_EUSAGE, JM_ENOSUP: the options are of one rank alone. */
int jm_replicas_check(struct serve *s, struct jm_err *err);
/* After the device is open. */
int jm_replicas_open(struct serve *s, struct jm_err *err);
/* Waits for all. */
int jm_replicas_meet(struct serve *s, struct jm_err *err);
/* Bytes that this one may take of its device, which others may share; 0 = unknown. Asked for before
 * any of them has taken some. */
int jm_replicas_memory(struct serve *s, size_t *ret, struct jm_err *err);
/*
 * As agree of a workload. The value is that of rank 0, which this one awaits only where a phase
 * begins. Where *more becomes false, all have taken the tokens of their steps when this returns.
 */
int jm_replicas_agree(struct serve *s, bool *more, struct jm_err *err);
/* Between trials of --rate max: the requests begin anew. */
int jm_replicas_restart(struct serve *s, struct jm_err *err);
/* How the ranks search together; for several. */
struct jm_rate_gang jm_replicas_of_search(const struct serve *s);
/* Tokens of all that no step has returned so far; for rank 0. */
double jm_replicas_uncredited(struct serve *s);
/* After the last step: rank 0 gets the requests of all, at the index of their number, and how full
 * the steps of all were. */
int jm_replicas_gather(struct serve *s, struct jm_err *err);
/* "ranks" of "serving"; null for one rank alone. */
json_t *jm_replicas_json(const struct serve *s);
void jm_replicas_close(struct serve *s); /* takes a zeroed one */

#endif
