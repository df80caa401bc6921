/* SPDX-License-Identifier: Apache-2.0 */
/* What one call of `run` is to do: one plan, or those of a plan file. */
#ifndef JM_CLI_PLANNED_H
#define JM_CLI_PLANNED_H

#include "plan_request.h"
#include "run_options.h"

#include <limits.h>

/* One run of the call. */
struct jm_planned {
	const struct jm_plan_run *run; /* of the plan file; NULL = of the command line */
	int place;		       /* of the run in the file */
	json_t *request;
	struct jm_plan plan;
	char controls[512]; /* room for controls_used */
	const char *controls_used;
	bool failed;	     /* a case of it, or it was left out */
	bool wrong_settings; /* what is wrong with it is a setting */
};

struct jm_run_call {
	struct jm_cli *cli;
	struct jm_run_given given; /* of the command `plan`: its .plan alone */
	struct jm_store *store;
	struct jm_guard *guard;
	struct jm_agent_links *
		agents; /* --launcher started: of the other ranks; NULL = all ranks are started here */
	int n_told;	/* failed runs whose reason a line on stderr has given */
	const char *guarded; /* the controls of the guard; NULL = the machine's */
	struct jm_plan_file file;
	struct jm_planned *planned;
	int n;
	json_t *records;
	json_t *unstored;    /* of them, those that the store did not take */
	char kept[PATH_MAX]; /* the file where these are; "" = the store has all */
	bool store_is_lost;  /* removed, replaced or overwritten */
	int cancel_fd;
};

/* From the command line or the plan file: requests, without anything opened or started. */
int jm_planned_read(struct jm_run_call *r);
/* Plans of these requests, or of the last one of the store (--resume). */
int jm_planned_make(struct jm_run_call *r);
void jm_planned_done(struct jm_run_call *r);
/* Stops a guard that has other knobs than this run needs; jm_run_plan starts the right one. */
void jm_planned_change_guard(struct jm_run_call *r, const struct jm_planned *p);
int jm_planned_cases(const struct jm_run_call *r); /* with their repeats */

#endif
