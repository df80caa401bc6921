/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A served model: a cache of keys and values in pages, and a program for each size of a step (1, 2,
 * 4 ... 256, 384, 512, 768, 1024 ... rows), which share weights, cache and arena. The device
 * outlives it. A step may be launched before the one before it is done, and may use the tokens
 * which that makes.
 */
#ifndef JM_SERVED_MODEL_H
#define JM_SERVED_MODEL_H

#include "engine/graph/model.h"
#include "staging.h"

#define JM_SERVED_SIZES 19 /* up to 8192 rows */
/* With fewer rows the time of a step is that of reading the weights; with more it grows with
 * them. */
#define JM_SERVED_FEW 256

/* --kv: the type of keys and values in the cache: the one that computes, or e4m3. */
enum jm_cache_type { JM_CACHE_AUTO, JM_CACHE_F8E4M3 };
extern const char *const jm_cache_types[];
/* Of programs that compute in that type: "bf16". */
const char *jm_cache_type_name(enum jm_cache_type kv, enum jm_dtype computes);

#define JM_SERVED_AHEAD 2 /* steps launched and not awaited, at most */

/* A step that was launched. */
struct jm_served_flight {
	int32_t *token; /* pinned, [requests] */
	struct jm_event begun, done;
};

struct jm_served_model {
	struct jm_step_shape shape; /* of the largest program */
	struct jm_program *program[JM_SERVED_SIZES];
	int size[JM_SERVED_SIZES]; /* rows of each program, ascending */
	int n_programs;
	struct jm_staging staging[JM_SERVED_SIZES], table; /* table: of the pages, for all */
	/* Of step n: [n % their number]; the last one that was awaited is among them. */
	struct jm_served_flight flight[JM_SERVED_AHEAD + 1];
	int64_t launched, awaited;    /* steps so far */
	const struct jm_tensor *made; /* "token", which all programs share */
	/*
	 * The next step, which the caller writes: [tokens], [tokens], [tokens],
	 * [requests][pages_each], [requests]. An id below 0 is the token that the step launched
	 * before makes of request -1 - id.
	 */
	int32_t *ids, *position, *request, *page, *last;
	/* [requests]: entries of its row of `page` that the step reads; 0 = it has no rows */
	int32_t *used_pages;
	/* If the shape samples, also the rule and the draw of op sample: [requests][3],
	 * [requests][2]. */
	float *rule;
	int32_t *draw;
	int32_t *token; /* [requests]: what the step awaited last made of the rows in `last` */
	/* from the end of the step before that one to its begin, on the device; NAN = it was the
	 * first */
	double idle_s;
};

/*
 * The shape of steps of step_tokens rows for `running` requests of at most request_tokens tokens,
 * prompt and answer; its `pages` stay 0. JM_EUSAGE: a step has fewer rows than requests.
 */
int jm_served_shape(int step_tokens, int running, int64_t request_tokens, struct jm_step_shape *ret,
	struct jm_err *err);
/*
 * Plans the programs; of `t` are used model, dims and precision (jm_model_step). shape.tokens: the
 * largest step, rounded up to such a size. *ret is closed by jm_served_close also after an error.
 * JM_ERANGE: more than 8192 rows.
 */
int jm_served_plan(const struct jm_training *t, const struct jm_step_shape *shape,
	struct jm_device *device, struct jm_served_model *ret, struct jm_err *err);
/* Bytes of the keys and values of all layers in a page. */
size_t jm_served_page_bytes(const struct jm_served_model *c);
/* All that the planned programs need: the weights once, inputs of each, and the largest arena. */
size_t jm_served_peak(const struct jm_served_model *c, size_t *ret_arena);
/* Allocates memory; the weights, which the programs share, are then written to program[0]. */
int jm_served_build(struct jm_served_model *c, struct jm_err *err);
/*
 * Launches the first `rows` rows in the smallest program that holds them; the rest of it is
 * padding. rows: 1 to shape.tokens. JM_EBUG: JM_SERVED_AHEAD steps are to be awaited first.
 */
int jm_served_launch(struct jm_served_model *c, int64_t rows, struct jm_err *err);
/* Waits for the first step that was launched and not awaited. JM_EBUG: there is none. */
int jm_served_await(struct jm_served_model *c, struct jm_err *err);
/* Launches a step and awaits it; no other one is to be awaited. */
int jm_served_run(struct jm_served_model *c, int64_t rows, struct jm_err *err);
/* The smallest program that holds so many rows. */
int jm_served_program(const struct jm_served_model *c, int64_t rows);
void jm_served_close(struct jm_served_model *c); /* takes a zeroed one */

#endif
