/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler of serving: which rows of which requests a step computes, and which pages of the
 * cache hold their keys and values. It knows no device and no clock. The room includes lib/base
 * only.
 *
 * Continuous batching (Yu et al., "Orca", OSDI 2022) over pages (Kwon et al., arXiv 2309.06180): a
 * step has one row of each running request whose prompt is done, and fills the rest of its budget
 * with pieces of prompts. A request is admitted when the free pages hold its known tokens. When a
 * running request needs a page and none is free, the one that arrived last gives up its pages and
 * waits again; all of its tokens are computed anew. Where steps have given sizes and the next
 * smaller one takes at least half of the rows of prompts, the others wait for the next step in
 * place of padding.
 */
#ifndef JM_SCHEDULER_H
#define JM_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "joulemark.h"

struct jm_scheduler_limits {
	int running; /* requests at once: slots of a step */
	int tokens;  /* rows of a step, at least `running` */
	int pages;   /* of the cache */
	int page_tokens;
	int pages_each; /* of a request, at most */
	/* [n_sizes], ascending, outlive the scheduler: rows of a step whose padding would cost
	 * time; others are computed as the next larger one */
	const int *sizes;
	int n_sizes; /* 0: any number of rows */
};

enum jm_request_state {
	JM_REQUEST_WAITING,
	JM_REQUEST_RUNNING,
	JM_REQUEST_DONE,
	JM_REQUEST_CANCELLED
};

struct jm_request {
	int input, output; /* tokens: of the prompt; to be made */
	enum jm_request_state state;
	int slot;     /* while it runs: 0 to running - 1; else -1 */
	int made;     /* tokens made so far; they survive a preemption */
	int computed; /* tokens whose keys and values are in the cache */
	int n_pages;
	int *page;    /* [pages_each]: while it runs, its n_pages pages in the order of positions */
	bool in_step; /* the latest step has rows of it */
	int preempted; /* how often */
	int heir;      /* the request that takes its place (jm_scheduler_add_after); -1 = none */
};

/* Rows of one request in a step: positions `from` to from + n - 1. */
struct jm_piece {
	int request, from, n;
	bool makes; /* its last row makes the next token */
};

struct jm_scheduler;

/* JM_ERANGE: limits that admit nothing. To be freed by jm_scheduler_free. */
int jm_scheduler_new(
	const struct jm_scheduler_limits *limits, struct jm_scheduler **ret, struct jm_err *err);
void jm_scheduler_free(struct jm_scheduler *s); /* takes NULL */
/* Can a request of so many tokens, at least 1 of each, be served, whatever else runs? JM_ERANGE: it
 * never fits into the cache. */
int jm_scheduler_check(
	const struct jm_scheduler_limits *limits, int input, int output, struct jm_err *err);
/*
 * A request arrives; its number counts from 0. JM_ERANGE: as jm_scheduler_check; nothing is changed
 * then.
 */
int jm_scheduler_add(
	struct jm_scheduler *s, int input, int output, int *ret_number, struct jm_err *err);
/*
 * A request that has the prompt of `number`, whose last token is made by the step that is under
 * way. When the step is complete it takes over place and pages of the prompt, and computes only the
 * prompt's last token again. Errors: as jm_scheduler_add.
 */
int jm_scheduler_add_after(
	struct jm_scheduler *s, int number, int output, int *ret_number, struct jm_err *err);
/* Would a request with a prompt of so many tokens run from the next step on, after those that wait,
 * beside those that run? */
bool jm_scheduler_has_room(const struct jm_scheduler *s, int input);
/* Ends a request that waits or runs; between a step and its completion the step still has its
 * rows. */
void jm_scheduler_cancel(struct jm_scheduler *s, int number);
/*
 * The next step: pieces in *ret (owned by the scheduler, valid until the next call), one for each
 * of some running requests. Returns their number; 0 = there is nothing to do.
 */
int jm_scheduler_step(struct jm_scheduler *s, const struct jm_piece **ret);
/* The step was computed: requests advance, and those that made their last token end and free their
 * pages. */
void jm_scheduler_complete(struct jm_scheduler *s);
/* Valid until the next jm_scheduler_add. */
const struct jm_request *jm_scheduler_request(const struct jm_scheduler *s, int number);
int jm_scheduler_requests(const struct jm_scheduler *s);   /* that were added */
int jm_scheduler_unfinished(const struct jm_scheduler *s); /* of these: waiting or running */
int jm_scheduler_free_pages(const struct jm_scheduler *s);

#endif
