/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results of training steps: losses and the norm of the gradient are copied to the host after the
 * step that made them, while the next one runs.
 */
#ifndef JM_TRAIN_RESULTS_H
#define JM_TRAIN_RESULTS_H

#include "engine/run/program.h"

#define JM_STEPS_UNDER_WAY 2 /* at most: one that runs, one that waits for it */
#define JM_MICRO_AGAIN	   8 /* of the first step, at most: run again to verify a training */

struct jm_result {
	long step;		    /* from 0 */
	double scale;		    /* that its loss was multiplied by */
	double loss;		    /* the mean of its micro-steps' */
	double loss_begin;	    /* the same of its first ones: jm_results_again() of them */
	double norm;		    /* of its gradient */
	int64_t device_ns, host_ns; /* when it was done, as of struct jm_step */
};

struct jm_results {
	struct jm_program *program;
	const struct jm_tensor *loss,
		*norm; /* loss: NULL = the stage has none, which counts as 0 */
	int n_losses;  /* of a step */
	struct jm_result_slot {
		/* pinned: the losses, then the norm, then the device's clock, 8 bytes each */
		char *host;
		struct jm_event done;
		struct jm_result result;
	} slot[JM_STEPS_UNDER_WAY];
	int first, n; /* that are under way */
};

int jm_results_open(struct jm_results *r, struct jm_program *p, struct jm_err *err);
void jm_results_close(struct jm_results *r); /* one that is zeroed, too */

/* Micro-steps that loss_begin is the mean of. */
int jm_results_again(const struct jm_results *r);
/* Queues the copies of the current step: after its micro-step i, and after its update. At most one
 * step may be under way when its first loss is asked for. */
int jm_results_loss(struct jm_results *r, int i, struct jm_err *err);
int jm_results_end(struct jm_results *r, long step, double scale, struct jm_err *err);
/* The oldest step that is done; `wait`: for it to be. 1 = it is in *ret, 0 = there is none. */
int jm_results_take(struct jm_results *r, bool wait, struct jm_result *ret, struct jm_err *err);

#endif
