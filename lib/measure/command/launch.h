/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs an outside command under a session that has started: phase "command" from exec to exit, its
 * marks as phases with their items, SIGINT, SIGTERM, SIGHUP and SIGQUIT passed on. For `measure`
 * and `run`.
 */
#ifndef JM_LAUNCH_H
#define JM_LAUNCH_H

#include "base/process/child_process.h"
#include "item_kind.h"
#include "measure/session/progress.h"
#include "measure/session/session.h"

struct jm_launch_options {
	char *const *argv;
	const char *items_regex, *items_json; /* see progress.h; NULL = marks only */
	enum jm_item_kind items_kind;	      /* of their numbers */
	const char *
		phase_regex; /* lines that begin a phase, or end one (phase_at_end); NULL = none do */
	bool phase_at_end;
	int out_fd; /* where captured stdout goes on to; usually 1 */
	/* Several runs in one phase, which the caller ends: -1 before the first of them, then its
	 * index.
	 * NULL = a separate phase "command". */
	int *shared_phase;
	const char *phase_name;	       /* of the shared one */
	const char *const *env;	       /* "NAME=value" to add, NULL-terminated; NULL = none */
	int (*before_exec)(void *arg); /* see child_process.h */
	void *before_exec_arg;
	/* Called when signals are held back for the command, before it starts: not 0 = one came
	 * before, and the command is not started (JM_EINTR). NULL = none is noticed. */
	int (*interrupted)(void);
	/* Called once a second while the command runs, with the items so far (NAN = unknown); may
	 * be NULL. */
	void (*tick)(void *arg, double items, double seconds);
	/* Called when a mark has begun a phase of the session, with its name there; may be NULL. */
	void (*phase)(void *arg, int phase, const char *name);
	void *arg; /* of both, and of `extra` */
	/* Called for each mark, with its time within that of the command; may be NULL. */
	void (*mark)(void *arg, const struct jm_mark *mark);
	void *mark_arg;
	/* Called when the items so far have changed, with the time of the newest report (NAN =
	 * unknown); may be NULL. */
	void (*progress)(void *arg, int64_t t_ns, double items);
	void *progress_arg;
	/* Called while there is something to read from extra_fd; NULL = never. */
	void (*extra)(void *arg);
	int extra_fd;
};

struct jm_outcome {
	int status, signal; /* as in child_process.h */
	int phase;	    /* index of the phase "command" */
	/* of the phase that throughput applies to: `phase`, or the interval of the marks */
	int marked;
	int64_t start_ns, end_ns;
	double wall_s;
	double user_s, system_s; /* as in child_process.h */
	/* it may have ended so long before end_ns, see end_watch.h; 0 = the end was seen */
	int64_t unseen_ns;
	double items, throughput; /* NAN = unknown */
	double marked_items;	  /* of these, what was done in `marked` */
	/* as which the numbers in its output were taken; BY_RULE: there were none */
	enum jm_item_kind items_kind;
	int output_errno; /* why some of what it printed is lost; 0 = none is */
};

/* JM_ENOENT and JM_EPERM: the command could not be started (jm_proc_status_of). Real time only. */
int jm_launch(struct jm_ctx *ctx, struct jm_session *s, const struct jm_launch_options *o,
	struct jm_outcome *ret, struct jm_err *err);

#endif
