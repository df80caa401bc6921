/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side of a guard: its process, and one request after the other. Used inside the room
 * guard only. */
#ifndef JM_GUARD_PRIVATE_H
#define JM_GUARD_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/process/process_identity.h"
#include "guard/guard.h"
#include "guard/guard_wire.h"

struct jm_guard {
	struct jm_ctx *ctx;
	struct jm_process self; /* the guard's process */
	int fd;			/* -1 = none */
	bool service;		/* it is a lease of joulemarkd, not a child */
	struct jm_guard *moved; /* a lease in its place: this user was refused, or has no knobs */
	struct jm_setting *stated; /* with jm_guard_state; kept for a lease */
	bool *probed;		   /* of each of them: a probe has shown it */
	int n_stated;
	char *controls; /* as given; NULL = all of the machine */
	pthread_t watcher, taker;
	bool watched, has_taker, left; /* left: the user has ended the wait for it */
	struct jm_knobs knobs;
	char message[JM_WIRE_MAX];

	pthread_mutex_t lock; /* of what follows */
	bool stopping, taking, taken;
	bool asked; /* to hold something: there may be journals that we do not know of */
	atomic_bool gone;
	struct jm_knob_value *found; /* of each knob that the guard holds; unknown: not held */
	bool recovered;		     /* something had to be restored in the guard's place */
	int code;		     /* of that */
	struct jm_err why;
};

/* As jm_guard_start; service: a lease of joulemarkd. */
int jm__guard_open(struct jm_ctx *ctx, const char *controls, bool service, struct jm_guard **ret,
	struct jm_err *err);
/* Ends its process as jm_guard_stop does; its knobs stay. */
int jm__guard_leave(struct jm_guard *g, struct jm_err *err);
/* Sends the request, whose payload of n elements is in the message; the reply takes its place. */
int jm__guard_ask(struct jm_guard *g, enum jm_wire_op op, int n, struct jm_err *err);
/* Takes the knobs whose name no knob here has; none of them is held. */
int jm__guard_add_knobs(struct jm_guard *g, const struct jm_knobs *more, struct jm_err *err);
/* If the guard is killed from here on, there is nothing to restore. */
void jm__guard_forget_found(struct jm_guard *g);
/* Elements in the payload of a reply that was checked. */
static inline int jm__guard_count(const struct jm_guard *g)
{
	return (int)((const struct jm_wire_reply *)g->message)->n;
}

#endif
