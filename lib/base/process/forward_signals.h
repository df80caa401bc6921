/* SPDX-License-Identifier: Apache-2.0 */
/* The signals that ask a program to end, as a descriptor, to be passed on to a child. */
#ifndef JM_FORWARD_SIGNALS_H
#define JM_FORWARD_SIGNALS_H

#include <signal.h>
#include <sys/types.h>

#include "joulemark.h"

struct jm_forward_signals {
	int fd;		 /* a signalfd, readable when one has come; not blocking; -1 = not caught */
	sigset_t before; /* the thread's mask, for the child */
};

/* From now on SIGINT, SIGTERM, SIGHUP and SIGQUIT come by the descriptor alone. */
int jm_signals_catch(struct jm_forward_signals *s, struct jm_err *err);
/* Handles one signal that has come. A signal of the terminal went to the whole process group, and
 * so to the child; one that was sent to us alone is passed on. */
void jm_signals_pass_on(const struct jm_forward_signals *s, pid_t child);
void jm_signals_release(struct jm_forward_signals *s);

#endif
