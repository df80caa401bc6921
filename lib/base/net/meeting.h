/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank knows of the others before it meets them (meet.h). */
#ifndef JM_MEETING_H
#define JM_MEETING_H

#include <stdbool.h>
#include <stdint.h>

#include "keyed_hash.h"

#define JM_MEET_MOST	512 /* ranks */
#define JM_SECRET_LEAST 16  /* characters of a secret that a user gives */

struct jm_meet {
	int rank, world;
	bool star;	  /* only rank 0 is connected to the others */
	const char *host; /* where rank 0 awaits the others, and its port */
	int port;
	int door_fd; /* rank 0: already listens there, and is closed; -1 = it does not yet */
	unsigned char key[JM_KEY_BYTES];
	uint64_t
		what; /* the same on all ranks, or they are refused: a hash of what they meet for */
	const char *differs;		/* what has another value then: "The case" */
	double join_s;			/* how long a rank waits for the others */
	const volatile int *interrupts; /* above 0: gives up with JM_EINTR; NULL = nothing can */
	int64_t until_ns;		/* the end of that time on the machine's clock */
};

#endif
