/* SPDX-License-Identifier: Apache-2.0 */
/* A child process: started, timed from exec to exit; its end is reported as a shell does. */
#ifndef JM_CHILD_PROCESS_H
#define JM_CHILD_PROCESS_H

#include <signal.h>
#include <sys/types.h>

#include "joulemark.h"

struct jm_proc_options {
	char *const *argv;	/* NULL-terminated; argv[0] is looked up in PATH */
	const char *const *env; /* "NAME=value" to add, NULL-terminated; NULL = none */
	const sigset_t *mask;	/* of its signals; NULL = as the caller's */
	bool capture;		/* its stdout comes back through out_fd */
	/* Called with the reading end of its stdout before it is started. NULL = none. */
	void (*captured)(void *arg, int fd);
	void *captured_arg;
	/* In the child, which shares the memory of the caller until exec: async-signal-safe calls
	 * only, and no writing to memory. Non-zero from it: the child ends with 126. NULL =
	 * none. */
	int (*before_exec)(void *arg);
	void *before_exec_arg;
};

struct jm_proc {
	pid_t pid;
	int pidfd;		  /* readable when it has ended */
	int out_fd;		  /* read end of its stdout; -1 = not captured */
	int64_t start_ns, end_ns; /* exec and exit, on the clock */
	double user_s,
		system_s; /* processor time, with that of its children that were waited for */
	int status;	  /* 0..255: its own, or 128 + signal */
	int signal;	  /* that ended it; 0 = none */
	bool ended;
};

/* environ with these ("NAME=value", NULL-terminated; NULL = none) in place of those of the same
 * names; NULL = memory ran out. The caller frees the array alone. */
char **jm_proc_environment(const char *const *add);
/* Returns when exec has happened. JM_ENOENT: no such command; JM_EPERM: not executable. */
int jm_proc_start(struct jm_proc *p, const struct jm_ctx *ctx, const struct jm_proc_options *o,
	struct jm_err *err);
/* Takes the end of a child whose pidfd is readable (or waits for it). */
int jm_proc_reap(struct jm_proc *p, const struct jm_ctx *ctx, struct jm_err *err);
void jm_proc_done(struct jm_proc *p); /* closes what is open; kills a child that still runs */
/* The exit status a shell gives for a command that jm_proc_start could not start: 127, 126 or
 * 125. */
int jm_proc_status_of(int code);

#endif
