/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker: a separate process in which one case runs, so that its death is a result. A case of
 * several ranks runs in several workers (a gang): rank 0 measures, counts and sends the record; the
 * first rank that fails ends all, with its reason.
 *
 * Both ends are here: jm_worker_run in the child (hidden command `worker`), jm_case_run in the parent. The
 * child reads the job (record.h) from its standard input and sends frames (frame.h) to a descriptor.
 */
#ifndef JM_WORKER_H
#define JM_WORKER_H

#include "result/record.h"
#include "store/store.h"

/* The length of native work whose parameters give neither epochs, steps nor seconds, or no warm-up. */
#define JM_WORK_WARM_S	 1.0
#define JM_WORK_STEADY_S 10.0

struct jm_hosts;

/* ---- the child ---- */

/* Runs the job and sends its record; an error has been sent too. Descriptors: as in launcher.h. */
int jm_worker_run(struct jm_ctx *ctx, const json_t *job, struct jm_err *err);

/* ---- the parent ---- */

#define JM_WORLD_MOST 64 /* ranks of a case */

struct jm_case_progress {
	const char *phase, *unit; /* unit of an item: "token" */
	double items, seconds;	  /* of the steady phase, on the run's clock */
	double share;		  /* of the whole run; NAN = unknown */
	double watts;		  /* now, of all devices, of one origin; NAN = unknown */
	enum jm_origin origin;	  /* of the watts */
};

struct jm_case_options {
	const char *program; /* NULL = this one, /proc/self/exe */
	const json_t *job;
	double timeout_s; /* on the machine's clock; 0 = none */
	/*
	 * A signalfd or pipe: readable = stop the case, readable again = at once; -1 = none. A single byte that is
	 * SIGINT asks native work to end after its step, with a record that says "interrupted".
	 */
	int cancel_fd;
	bool *asked; /* becomes true when cancel_fd was read, also if the case was already complete; NULL = not wanted */
	int watch_pid; /* the case fails when this process ends; 0 = none */
	struct jm_hosts *
		hosts; /* ranks that were started apart (hosts.h); NULL = all are children of this process */
	struct jm_store *store;	 /* that trace goes to; NULL = nowhere */
	struct jm_err *no_trace; /* becomes why the store takes no more of the trace */
	int out_fd;		 /* where its standard output goes; -1 = nowhere */
	bool echo;		 /* its standard error is passed on as it comes */
	void (*progress)(void *arg, const struct jm_case_progress *progress);
	/* A phase whose settings differ from those before it begins: makes them, and fills *ret_rows as of
	 * jm_case_apply. An error fails the case; JM_EGONE: the watched process has ended. */
	int (*phase)(void *arg, const char *phase, json_t **ret_rows, struct jm_err *err);
	void *arg; /* of both */
};

#endif
