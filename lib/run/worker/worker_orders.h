/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of the parent, and settings of single phases, for which a worker asks when a phase begins
 * and which orders answer; what they say is kept for the record. */
#ifndef JM_WORKER_ORDERS_H
#define JM_WORKER_ORDERS_H

#include "worker_state.h"

/* Takes the orders that have come; w->stop says whether the work is to end. */
void jm__worker_take_orders(struct jm__worker *w);
/* Native work: before a phase begins, returns when its settings are in force; and when it has
 * begun. */
int jm__worker_enter(
	struct jm__worker *w, const char *phase, bool *ret_changed, struct jm_err *err);
int jm__worker_entered(struct jm__worker *w, int phase, struct jm_err *err);
/* A command: when it has marked a phase; after its end: waits for the answers, checks that all
 * phases were marked. */
void jm__worker_marked(struct jm__worker *w, int phase, const char *name);
int jm__worker_wait_settings(struct jm__worker *w, struct jm_err *err);
int jm__worker_check_marked(struct jm__worker *w, struct jm_err *err);
/* Into a record that has its phases. */
void jm__worker_record_settings(struct jm__worker *w);

#endif
