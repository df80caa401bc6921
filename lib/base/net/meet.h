/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that were started apart meet by TCP: each gets a connection to every other, or in a
 * star one to rank 0 alone. All know a secret, which is never sent: both ends of a connection prove
 * that they know it. Whoever does not is refused after a few seconds at most, whatever it sends,
 * and the others are not held up. What is sent afterwards is neither encrypted nor signed: the
 * network between the hosts is trusted, as by NCCL and MPI.
 */
#ifndef JM_MEET_H
#define JM_MEET_H

#include "joulemark.h"
#include "meeting.h"

/* ret_fd[world]: to each rank, tuned (tcp.h); -1 at the own place, and where a star has none.
 * JM_EIO: a rank has not come; JM_EPERM: another secret; JM_EUSAGE: ranks contradict each other;
 * JM_EGONE: a rank ended meanwhile. */
int jm_meet(const struct jm_meet *m, int *ret_fd, struct jm_err *err);
/* A new key, of random numbers. */
int jm_key_new(unsigned char ret[JM_KEY_BYTES], struct jm_err *err);

#endif
