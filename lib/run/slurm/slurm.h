/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slurm by its commands: sbatch, squeue and scancel. Neither its library nor its accounting is
 * needed. Our jobs are found by their comment, "joulemark:FOLDER:KEY:GROUP"; a job of an array has
 * an index of 0 to JM_SLURM_GROUP - 1.
 */
#ifndef JM_SLURM_H
#define JM_SLURM_H

#include "base/ctx.h"

#define JM_SLURM_KEY	33   /* 128 bits in hex, and a 0 */
#define JM_SLURM_GROUP	1000 /* jobs of an array at most: Slurm's MaxArraySize is 1001 */
#define JM_SLURM_PERIOD 10   /* s between two queries, of all processes of the user on this host */

/* One line of the queue. */
struct jm_slurm_job {
	char folder[JM_SLURM_KEY], key[JM_SLURM_KEY];
	int group, index; /* index -1: not yet known to be one of an array */
	long array;	  /* the number of the array, for scancel */
	char state[24], node[64];
	char reason[128]; /* why it does not run yet */
};

struct jm_slurm_queue {
	struct jm_slurm_job *job;
	int n, room;
};

/*
 * Our jobs that wait or run. All processes of the user together ask Slurm at most once in
 * JM_SLURM_PERIOD seconds: an answer that is younger, and no older than the last sbatch or scancel,
 * is used again; otherwise the call waits for its turn.
 */
int jm_slurm_queue_read(const struct jm_ctx *ctx, struct jm_slurm_queue *ret, struct jm_err *err);
/* The same from what squeue printed; lines that are not of our jobs are skipped. */
int jm_slurm_queue_parse(const char *text, struct jm_slurm_queue *ret, struct jm_err *err);
void jm_slurm_queue_done(struct jm_slurm_queue *q);

/* Submits by sbatch with these words behind "sbatch --parsable"; NULL-terminated. ret_array: the
 * number of the array. */
int jm_slurm_submit(
	const struct jm_ctx *ctx, char *const *words, long *ret_array, struct jm_err *err);
/* Cancels the jobs of the queue that belong to the folder, by one scancel. ret_n: how many there
 * were. */
int jm_slurm_cancel(const struct jm_ctx *ctx, const struct jm_slurm_queue *q, const char *folder,
	int *ret_n, struct jm_err *err);

#endif
