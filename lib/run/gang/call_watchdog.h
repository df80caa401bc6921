/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that watches a call whose ranks run on several hosts. When the call is stopped
 * (SIGSTOP, Ctrl-Z), it can neither end its ranks nor have settings put back, and the others wait
 * for it; so it is killed, and the rest follows from that. A call that mpirun has started is ended,
 * too, when mpirun, or a script between the two, is gone or stopped.
 */
#ifndef JM_CALL_WATCHDOG_H
#define JM_CALL_WATCHDOG_H

#include "base/clock.h"
#include "joulemark.h"

#define JM_STOPPED_NS  (4 * JM_SECOND) /* how long a call, or a rank, may be stopped */
#define JM_WATCHDOG_FD 3	       /* of the watchdog: a pidfd of the call */

/* Of the calling process; ends by itself, with that process. program: NULL = this one. */
int jm_watchdog_start(const char *program, struct jm_err *err);
/* The watchdog's own process. */
int jm_watchdog_serve(struct jm_err *err);

#endif
