/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation during training: the network alone, on the same weights, on held-out samples. */
#ifndef JM_TRAIN_EVAL_H
#define JM_TRAIN_EVAL_H

#include "engine/graph/model.h"
#include "batch_feed.h"

struct jm_evaluation {
	long every;  /* steps; 0 = there is no evaluation */
	int batches; /* of the training's size, always the same ones */
	struct jm_graph *graph;
	struct jm_program *program;
	struct jm_batch_feed feed;
	const struct jm_tensor *loss, *top1; /* top1: NULL = not of this kind of model */
	char *host;			     /* pinned: results of each batch */
	struct jm_event began, done;
};

/* What an evaluation found. */
struct jm_evaluated {
	double loss, top1; /* means over the batches; top1: share of right answers, NAN = unknown */
	int64_t right, total; /* of classes, each picture counted once; 0 of 0: not of classes */
	double seconds;	      /* on the device */
};

/* Plans the network on the weights of the training's program, which is planned and not built. */
int jm_evaluation_plan(struct jm_evaluation *e, const struct jm_training *t,
	const struct jm_program *training, struct jm_err *err);
/* Discards what was planned. */
void jm_evaluation_drop(struct jm_evaluation *e);
/* Bytes of device memory that the training and, if it is planned, its evaluation take together,
 * with inputs on their way; `feed` is that of the training. */
size_t jm_evaluation_peak(const struct jm_evaluation *e, const struct jm_program *training,
	const struct jm_batch_feed *feed);
/* Builds the program of the evaluation after that of the training. e->feed: seed, inputs, corpus
 * and its range are set. */
int jm_evaluation_build(struct jm_evaluation *e, struct jm_err *err);
void jm_evaluation_close(struct jm_evaluation *e); /* one that is zeroed, too */

/* Evaluates the weights after all queued work; waits for the device. */
int jm_evaluation_run(struct jm_evaluation *e, struct jm_evaluated *ret, struct jm_err *err);

#endif
