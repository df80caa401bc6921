/* SPDX-License-Identifier: Apache-2.0 */
/*
 * joulemarkd's own process: it accepts connections, looks up who connected and what root's policy
 * gives them, and starts one guard for each. It opens no driver and waits for no client. A guard
 * that was killed is followed by a recovery in a process of its own, again and again until all is
 * back.
 */
#ifndef JM_DOOR_H
#define JM_DOOR_H

#include "base/ctx.h"

struct jm_door_options {
	int listener;	    /* a listening SOCK_SEQPACKET socket */
	const char *policy; /* path */
	const char *leases; /* folder */
};

/* Until SIGTERM or SIGINT; the leases stay. */
int jm_door_serve(struct jm_ctx *ctx, const struct jm_door_options *o, struct jm_err *err);

#endif
