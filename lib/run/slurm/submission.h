/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run of a plan as it was submitted, and how far it is. Its jobs are the parts of its blocks: job
 * j runs part j % parts of block j / parts. All of it is in one folder, which the nodes share:
 *
 *	job.sh			the script of all jobs
 *	KEY.json		the run: its request (run/plan/plan.h) as the plan was when it was
 *				submitted
 *	KEY.GROUP.sent		"ARRAY N", written after sbatch: the array with those of the jobs 0
 *				to N - 1 that it needed
 *	KEY.GROUP.INDEX.db	the store of one job, GROUP * JM_SLURM_GROUP + INDEX
 *	KEY.GROUP.INDEX.log	what the job and Slurm printed
 *	KEY.GROUP.INDEX.start	"HOST JOB", written when it begins
 *	KEY.GROUP.INDEX.end	"STATUS HOST JOB", written when it has ended
 *
 * A job that was cancelled or killed with its host leaves no .end.
 */
#ifndef JM_SUBMISSION_H
#define JM_SUBMISSION_H

#include <jansson.h>
#include <stdbool.h>

#include "slurm.h"

struct jm_submission {
	json_t *request;
	char *work_folder; /* in which the commands of the plan run */
	int parts;	   /* of a block; 1 = whole blocks */
};

/* Is the file of this version of joulemark, and complete? */
int jm_submission_read(const char *path, struct jm_submission *ret, struct jm_err *err);
int jm_submission_write(const char *path, const struct jm_submission *s, struct jm_err *err);
bool jm_submission_same(const struct jm_submission *a, const struct jm_submission *b);
void jm_submission_done(struct jm_submission *s);

enum jm_job_state {
	JM_JOB_NEW,
	JM_JOB_WAITS, /* in the queue */
	JM_JOB_RUNS,
	JM_JOB_DONE,  /* all of its cases have a record; status 1: some of them failed */
	JM_JOB_BROKE, /* it was submitted, is not in the queue, and its cases are not complete */
};

struct jm_job {
	enum jm_job_state state;
	bool sent;     /* it was submitted, and has not begun */
	bool ended;    /* its .end is there */
	int status;    /* of its .end */
	char host[64]; /* "" = it never began */
	char name[32]; /* as Slurm has it: "17_3" */
	char why[128]; /* JM_JOB_WAITS: Slurm's reason */
	long array;    /* of the queue; 0 = it is not in it */
};

/* FOLDER/job.sh */
int jm_jobs_write_script(const char *folder, struct jm_err *err);
/* Of a run with n jobs; the queue is that of jm_slurm_queue_read, folder_id as in the comments of
 * jobs. */
int jm_jobs_read(const char *folder, const char *folder_id, const char *key,
	const struct jm_slurm_queue *q, struct jm_job *jobs, int n, struct jm_err *err);
/* To be called after sbatch. */
int jm_jobs_note_sent(
	const char *folder, const char *key, int group, long array, int n, struct jm_err *err);
/* "FOLDER/KEY.GROUP.INDEX.db" */
void jm_job_path(
	const char *folder, const char *key, int job, const char *suffix, char *out, size_t size);
/* Why a job broke, as a sentence: from its status and the end of what it printed. */
void jm_job_why(const char *folder, const char *key, int job, const struct jm_job *j, char *out,
	size_t size);

#endif
