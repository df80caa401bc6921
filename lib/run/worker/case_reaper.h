/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reaper of a case: a process that survives a killed `run` and ends the processes of the case.
 * When it is killed as well, the next start of joulemark ends them by the record that the reaper
 * had locked in the state folder (cases/MARK).
 *
 * The processes of a case are identified by a mark in their environment, their user and their start
 * time (base/process/marked_processes.h); a process that a command started with another environment
 * is not found.
 */
#ifndef JM_CASE_REAPER_H
#define JM_CASE_REAPER_H

#include "base/process/marked_processes.h"
#include "joulemark.h"

#define JM_REAPER_FD	 3 /* of its end of the pipe; it closes when the run has ended */
#define JM_REAPER_RECORD 4 /* of the record, or of /dev/null */

struct jm_case_reaper {
	pid_t pid; /* 0 = there is none */
	int fd;	   /* our end of the pipe */
	/* of the record, held by us too: a killed reaper does not make the case a stray */
	int lock;
	struct jm_marked marked;
	char variable[512]; /* for the environment of the case */
	char record[1000];  /* path; "" = none */
};

/* program: NULL = this one. Without a reaper (logged) a case is run nevertheless. */
void jm_case_reaper_start(struct jm_ctx *ctx, const char *program, struct jm_case_reaper *ret);
/* The case has ended; processes that may survive it continue. */
void jm_case_reaper_stop(struct jm_case_reaper *k);

/* The reaper's own process. */
int jm_case_reaper_serve(struct jm_ctx *ctx, struct jm_err *err);

/*
 * Ends the processes that killed runs have left, and logs it. wait: waits up to six seconds for
 * reapers that are doing so; otherwise does not wait for them.
 */
void jm_case_reaper_recover(struct jm_ctx *ctx, bool wait);

#endif
