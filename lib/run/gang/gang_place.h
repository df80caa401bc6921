/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that mpirun, srun, torchrun or a person has started, each by the same command: which one
 * this process is, by the variables that they set. Several may set them; where they contradict each
 * other, nothing is assumed.
 */
#ifndef JM_GANG_PLACE_H
#define JM_GANG_PLACE_H

#include "base/net/meeting.h"
#include "base/net/tcp.h"

struct jm_gang_place {
	int rank, world;
	char host[JM_HOST_SIZE]; /* where rank 0 awaits the others */
	int port;
	unsigned char key[JM_KEY_BYTES]; /* of JM_GANG_SECRET */
};

/* How long the ranks of a gang wait for each other, s: JM_GANG_SECONDS, or 600. */
double jm_gang_seconds(void);
/* The secret is removed from the environment, so that no child has it. JM_EUSAGE: a variable is
 * missing, wrong, or contradicts another. */
int jm_gang_place_read(struct jm_gang_place *ret, struct jm_err *err);

#endif
