/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs of one call of `submit`: what is there, what is missing, and sbatch for that. */
#ifndef JM_CLI_SUBMIT_JOBS_H
#define JM_CLI_SUBMIT_JOBS_H

#include "planned.h"
#include "run/slurm/submission.h"

struct jm_submit_given {
	struct jm_plan_selection plan;
	const char *store, *program;
	char *const *sbatch; /* words for sbatch; NULL = none */
	int parts, nodes, tasks, at_once;
	double time_limit; /* s; NAN = that of the partition */
	bool wait, status, cancel, dry_run;
};

/* One run of the plan. */
struct jm_submitted {
	const struct jm_planned *planned;
	struct jm_submission now; /* as the plan is now */
	char key[JM_SLURM_KEY];
	struct jm_job *jobs;
	int n;
	const struct jm_submitted
		*omitted; /* it comes after this run, which failed; NULL = it is not omitted */
};

struct jm_submit_call {
	struct jm_run_call r;
	struct jm_submit_given given;
	char folder[PATH_MAX];	/* absolute */
	char id[JM_SLURM_KEY];	/* of the folder, in the comments of jobs */
	char program[PATH_MAX]; /* absolute, on the nodes */
	struct jm_slurm_queue queue;
	struct jm_submitted *run; /* one for each of r.planned */
	int n_arrays;		  /* that this call has submitted */
	json_t *calls;		  /* --dry-run --json: the words of each call; NULL = print them */
};

/* From the requests of r.planned, which must not be completed yet: their settings depend on the
 * node. */
int jm_submit_init(struct jm_submit_call *c);
void jm_submit_done(struct jm_submit_call *c);
/* Has a run of the plan been submitted to this folder before? */
bool jm_submit_was_there(const struct jm_submit_call *c);
/* Reads the states of all jobs; the queue is c->queue. */
int jm_submit_look(struct jm_submit_call *c);
/* Submits the jobs that are neither done nor in the queue, or prints how. */
int jm_submit_missing(struct jm_submit_call *c);
/* Copies the records of the jobs that are over into the store. ret_n: how many were new there. */
int jm_submit_merge(struct jm_submit_call *c, int *ret_n);

#endif
