/* SPDX-License-Identifier: Apache-2.0 */
/* What the parent of workers is told about a case, and what it tells while the case runs. */
#ifndef JM_CASE_OPTIONS_H
#define JM_CASE_OPTIONS_H

#include "meter/meter.h"
#include "store/store.h"

#include <jansson.h>

struct jm_agent_links;

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
	 * A signalfd or pipe: readable = stop the case, readable again = at once; -1 = none. A
	 * single byte that is SIGINT asks native work to end after its step, with a record that
	 * says "interrupted".
	 */
	int cancel_fd;
	/* becomes true when cancel_fd was read, also if the case was already complete; NULL = not
	 * wanted */
	bool *asked;
	int watch_pid; /* the case fails when this process ends; 0 = none */
	struct jm_agent_links *
		agents; /* ranks that were started apart (agent_links.h); NULL = all are children of this process */
	struct jm_store *store;	 /* that trace goes to; NULL = nowhere */
	struct jm_err *no_trace; /* becomes why the store takes no more of the trace */
	int out_fd;		 /* where its standard output goes; -1 = nowhere */
	bool echo;		 /* its standard error is passed on as it comes */
	void (*progress)(void *arg, const struct jm_case_progress *progress);
	/* A phase whose settings differ from those before it begins: makes them, and fills
	 * *ret_rows as of jm_case_apply. An error fails the case; JM_EGONE: the watched process has
	 * ended. */
	int (*phase)(void *arg, const char *phase, json_t **ret_rows, struct jm_err *err);
	/* "NAME=value" for the environment of native work; NULL = none */
	const char *variable;
	/* The worker has started a process that leads a session and outlives the case. */
	void (*keep)(void *arg, pid_t pid);
	void *arg; /* of these functions */
};

#endif
