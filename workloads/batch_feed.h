/* SPDX-License-Identifier: Apache-2.0 */
/* What a model is fed with, micro-step by micro-step: windows of a text, or images of random normal values. */
#ifndef JM_BATCH_FEED_H
#define JM_BATCH_FEED_H

#include "corpus.h"
#include "engine/staging.h"

struct jm_batch_feed {
	struct jm_program *program;
	struct jm_tensor *ids, *image, *target, *random; /* inputs; NULL = the model has none */
	struct jm_corpus corpus;			 /* for ids */
	int64_t from, tokens; /* of it: the stretch to take windows from; 0, 0 = all */
	int64_t kinds;	      /* tokens in the vocabulary, or classes of images */
	bool fresh;	      /* new images each time; else the first ones stay */
	bool is_fed;	      /* the images are there */
	uint64_t seed;
	struct jm_staging staging; /* of what is new in each micro-step */
};

/* Finds the inputs of the program, which must be built. kinds, fresh, corpus and seed are set. */
int jm_batch_feed_open(struct jm_batch_feed *s, struct jm_program *program, struct jm_err *err);
void jm_batch_feed_close(struct jm_batch_feed *s);

/* Sends the inputs of micro-step `number` (0...) to the device: the same number always means the same
 * values. A sample does not depend on the batch it comes in. */
int jm_batch_feed_write(struct jm_batch_feed *s, int64_t number, struct jm_err *err);

#endif
