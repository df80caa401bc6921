/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that were started apart tell each other every second that they run, by connections of their
 * own and from a thread, so that a process which computes or waits for a device is alive, and one
 * that is stopped is not, though its kernel still acknowledges what it is sent.
 */
#ifndef JM_HEARTBEAT_H
#define JM_HEARTBEAT_H

#include "joulemark.h"

struct jm_heartbeat;

/*
 * fd: [world] connections by rank, on which the same is sent from the other end; stolen, also after
 * an error; -1 = none. link: [world] others to the same ranks: one is shut down when its rank has
 * said nothing for 6 s, and must stay open until jm_heartbeat_stop.
 */
int jm_heartbeat_start(
	int world, const int *fd, const int *link, struct jm_heartbeat **ret, struct jm_err *err);
void jm_heartbeat_stop(struct jm_heartbeat *p); /* takes NULL */

#endif
