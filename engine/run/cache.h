/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A served model: a cache of keys and values in pages, and a program for each size of a step (1, 2, 4 ... 256, 384, 512,
 * 768, 1024 ... rows), which share weights, cache and arena. The device outlives it. One step at a time; the host waits
 * for it.
 */
#ifndef JM_CACHE_H
#define JM_CACHE_H

#include "engine/graph/model.h"
#include "program.h"

#define JM_CACHE_SIZES 19 /* up to 8192 rows */
/* With fewer rows the time of a step is that of reading the weights; with more it grows with them. */
#define JM_CACHE_FEW 256

struct jm_cache {
	struct jm_step_shape shape; /* of the largest program */
	struct jm_program *program[JM_CACHE_SIZES];
	int size[JM_CACHE_SIZES]; /* rows of each program, ascending */
	int n_programs;
	/* The next step, which the caller writes: [tokens], [tokens], [tokens], [requests][pages_each], [requests]. */
	int32_t *ids, *position, *request, *page, *last;
	/* If the shape samples, also the rule and the draw of op sample: [requests][3], [requests][2]. */
	float *rule;
	int32_t *draw;
	int32_t *token; /* [requests]: what the latest step made of the rows in `last` */
};

/*
 * The shape of steps of step_tokens rows for `running` requests of at most request_tokens tokens, prompt and answer; its
 * `pages` stay 0. JM_EUSAGE: a step has fewer rows than requests.
 */
int jm_cache_shape(int step_tokens, int running, int64_t request_tokens, struct jm_step_shape *ret,
	struct jm_err *err);
/*
 * Plans the programs; of `t` are used model, dims and precision (jm_model_step). shape.tokens: the largest step, rounded
 * up to such a size. *ret is closed by jm_cache_close also after an error. JM_ERANGE: more than 8192 rows.
 */
int jm_cache_plan(const struct jm_training *t, const struct jm_step_shape *shape,
	struct jm_device *device, struct jm_cache *ret, struct jm_err *err);
/* Bytes of the keys and values of all layers in a page. */
size_t jm_cache_page_bytes(const struct jm_cache *c);
/* All that the planned programs need: the weights once, inputs of each, and the largest arena. */
size_t jm_cache_peak(const struct jm_cache *c, size_t *ret_arena);
/* Allocates memory; the weights, which the programs share, are then written to program[0]. */
int jm_cache_build(struct jm_cache *c, struct jm_err *err);
/* Runs the first `rows` rows in the smallest program that holds them; the rest of it is padding. rows: 1 to shape.tokens. */
int jm_cache_run(struct jm_cache *c, int64_t rows, struct jm_err *err);
/* The smallest program that holds so many rows. */
int jm_cache_program(const struct jm_cache *c, int64_t rows);
void jm_cache_close(struct jm_cache *c); /* takes a zeroed one */

#endif
