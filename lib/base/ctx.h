/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a context, which programs that use the library do not see. */
#ifndef JM_CTX_H
#define JM_CTX_H

#include "joulemark.h"

struct jm_clock; /* base/clock.h */

/* root: prefix of /sys, /proc, /dev and the state folder ("" = the machine itself; from
 * JM_ROOT). */
struct jm_ctx {
	void (*log)(void *arg, enum jm_level level, const char *line); /* may be NULL */
	void *log_arg;
	struct jm_clock *clock;
	char root[256];
	/* How often the user asked the program to end, counted by a signal handler; the second
	 * request ends every wait for a process or device that does not answer. NULL = none. */
	const volatile int *interrupts;
	/* By which a program says that it is joulemark itself, and can be the guard; NULL = it is
	 * another one. */
	const char *guard_program;
	/* Calls of drivers that were given up and may still use this context, which then stays. A
	 * program ends by _exit: what its libraries do at the end may wait for such a call. */
	int n_left;
};

#endif
