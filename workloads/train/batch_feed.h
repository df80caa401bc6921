/* SPDX-License-Identifier: Apache-2.0 */
/* What a model is fed with, micro-step by micro-step, as the rows of its inputs say: windows of a
 * text, random values, pictures. */
#ifndef JM_BATCH_FEED_H
#define JM_BATCH_FEED_H

#include "data/corpus.h"
#include "engine/graph/model.h"
#include "engine/run/staging.h"
#include "picture_loader.h"

struct jm_batch_feed {
	struct jm_program *program;
	struct jm_feed_input {
		const struct jm_input *row;
		struct jm_tensor *t;
		int64_t below; /* values are 0 to below - 1; 0 = they have no limit */
		uint64_t seed; /* each input has a separate stream of random numbers */
	} input[JM_INPUTS_MAX];
	int n;
	struct jm_tensor *random; /* NULL = the model has none */
	struct jm_corpus corpus;  /* for text */
	int64_t from, tokens;	  /* of it: the stretch to take windows from; 0, 0 = all */
	struct jm_picture_loader *pictures; /* of all inputs with a field; NULL = they are random */
	int64_t places; /* that a picture takes at the start of a window of text; 0 = none */
	bool fresh;	/* new random values each time; else the first ones stay */
	bool is_fed;	/* what stays is there */
	uint64_t seed;
	int rank, world; /* that take turns in what micro-steps are fed with; world 0 is 1 */
	struct jm_staging staging; /* of what is new in each micro-step */
};

/* Takes over the rows of the model's inputs. */
void jm_batch_feed_choose(
	struct jm_batch_feed *s, const struct jm_model *model, const struct jm_values *dims);
/* Tokens in the vocabulary that texts are read with; 0 = no input is text. */
int64_t jm_batch_feed_vocabulary(const struct jm_batch_feed *s);
/* Bytes of device memory for inputs on their way, in addition to the plan of the program: of all
 * but those that are sent only once. They are chosen; fresh is set. */
size_t jm_batch_feed_bytes(const struct jm_batch_feed *s, const struct jm_program *program);
/* Places that a picture takes in a sequence; 0 = it has none. */
int64_t jm_batch_feed_places(const struct jm_graph *g);
/* Finds the inputs in the program, which must be built. They are chosen; fresh, corpus and seed are
 * set. */
int jm_batch_feed_open(struct jm_batch_feed *s, struct jm_program *program, struct jm_err *err);
void jm_batch_feed_close(struct jm_batch_feed *s);

/* Sends the inputs of micro-step `number` (0...) to the device: the same number always means the
 * same values. A sample does not depend on the batch it comes in. */
int jm_batch_feed_write(struct jm_batch_feed *s, int64_t number, struct jm_err *err);

#endif
