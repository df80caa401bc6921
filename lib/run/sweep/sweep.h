/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room run: from a request to records: plan (plan.h), blocks (sweep.h), workers (worker.h) and
 * their messages (frame.h); the contract of a workload (workload.h).
 * May include: base, meter, trace, energy, measure, guard, result, tune, store.
 *
 * Running a plan: block by block, each case with its settings in a worker, its record into the
 * store. Cases whose records are in the store are not run again, so the same call after any kill
 * completes the plan.
 */
#ifndef JM_SWEEP_H
#define JM_SWEEP_H

#include "guard/guard.h"
#include "run/plan/plan.h"
#include "run/worker/case_options.h"

enum jm_run_event_kind {
	JM_RUN_STARTS, /* a case, after its settings were made */
	JM_RUN_GOES_ON,
	JM_RUN_ENDS,
	JM_RUN_WAS_THERE, /* its record was in the store */
	JM_RUN_COOLS,	  /* the pause before a case */
};

struct jm_run_event {
	enum jm_run_event_kind kind;
	const struct jm_plan_case *c;
	int repeat;				 /* 1... */
	int number, total;			 /* place of this run in the whole plan, 1... */
	const struct jm_case_progress *progress; /* JM_RUN_GOES_ON */
	const json_t *record;			 /* JM_RUN_ENDS, JM_RUN_WAS_THERE */
};

struct jm_run_options {
	const struct jm_plan *plan;
	struct jm_store *store;	       /* NULL = nothing is kept */
	struct jm_agent_links *agents; /* see case_options.h */
	json_t *unstored;     /* an array for records that the store did not take; with a store */
	const char *controls; /* of the guard (guard.h) */
	char *const *stated;  /* what it is told of knobs that cannot be read; may be NULL */
	bool retry;	      /* failed cases are run again */
	bool only_failed;     /* these and no others */
	const char *rerun; /* cases whose id begins so are run again, and no others; NULL = none */
	bool fail_fast;	   /* stop after the first failed case */
	int shard,
		/* only the blocks shard, shard + shards... of those numbered from 1; 0 = all */
		shards;
	int part, parts;     /* only this part, from 0, of the order of each block; parts 0 = all */
	const char *program; /* of the worker; NULL = this one */
	int cancel_fd;	     /* see case_options.h */
	int out_fd;
	bool echo;
	int *ret_blocks; /* how many blocks there are when it ends; may be NULL */
	void (*event)(void *arg, const struct jm_run_event *event);
	void *event_arg;
};

/* How many of so many blocks are this runner's. */
int jm_shard_blocks(const struct jm_run_options *o, int blocks);
/* How many of the n cases of a block are. */
int jm_part_cases(const struct jm_run_options *o, int n);

/*
 * guard: started by the caller when the plan has settings, else it points to NULL; replaced when it
 * is killed; for the caller to stop. records: an array that the plan's records, old and new, are
 * appended to in the order of the plan, also when the run stops early. A failed case is no error of
 * the run. JM_EINTR: cancelled. When the store fails, the case that is under way ends before the
 * run does.
 */
int jm_run_plan(struct jm_ctx *ctx, const struct jm_run_options *options, struct jm_guard **guard,
	json_t *records, struct jm_err *err);

#endif
