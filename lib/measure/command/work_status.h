/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each running `run` and `measure` does now, for other processes to read: a small JSON file
 * per process in the folder "running" of the state folder, written anew at most once a second and
 * removed at the end. The file of a process that was killed is recognised by process id, start time
 * and boot of the machine, and removed by the next one that looks. What cannot be written is left
 * out: no measurement depends on these files.
 */
#ifndef JM_WORK_STATUS_H
#define JM_WORK_STATUS_H

#include "base/ctx.h"
#include "meter/meter.h"

struct jm_work_status {
	char command[16];  /* "run", "measure" */
	char work[200];	   /* what is run or measured */
	char phase[80];	   /* "steady"; "" = none */
	char store[256];   /* "" = none */
	char unit[32];	   /* of an item: "token"; "" = unknown */
	int number, total; /* case n of m; 0 of 0 = no cases */
	int failed;	   /* cases so far */
	double share;	   /* of all that is to be done, 0..1; NAN = unknown */
	double items_per_s, watts, joules, left_s; /* NAN = unknown */
	enum jm_origin origin;			   /* of watts and joules */
	/* filled by the writer */
	int pid;
	char host[65];
	int64_t started_ns, written_ns; /* since 1970 */
};

struct jm_work_writer;

/* Makes the folder and removes what killed processes have left in it. NULL where it cannot be
 * written. */
struct jm_work_writer *jm_work_writer_new(const struct jm_ctx *ctx);
/* True if a write is due, so that figures are collected only then. False for NULL. */
bool jm_work_writer_due(const struct jm_work_writer *w);
void jm_work_writer_put(struct jm_work_writer *w, const struct jm_work_status *status);
/* Removes the file. Takes NULL. */
void jm_work_writer_free(struct jm_work_writer *w);

struct jm_work_list {
	struct jm_work_status *work; /* by start */
	int n;
	int n_unreadable;
	char why[300]; /* of the first that is unreadable */
};

/* This user's and root's. Texts are tamed. Programs on other hosts that share the folder are listed
 * for a minute after their last write. */
int jm_work_list_read(const struct jm_ctx *ctx, struct jm_work_list *ret, struct jm_err *err);
void jm_work_list_done(struct jm_work_list *list);

#endif
