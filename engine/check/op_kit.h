/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small graphs: random operands in, results out, on any device; for the comparison of backends with
 * ref and for tests. The graph keeps the first error of its declaration; kit_run returns it.
 */
#ifndef JM_OP_KIT_H
#define JM_OP_KIT_H

#include "engine/run/program.h"
#include "engine/graph/tensor.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})
#define OPS(...)  ((struct jm_tensor *[JM_NODE_IN]){__VA_ARGS__})

#define KIT_MAX 16

struct kit {
	struct jm_device device;
	bool borrowed; /* the device is not closed by kit_done */
	struct jm_graph *graph;
	struct jm_program *program;
	uint64_t seed;
	struct jm_tensor *given[KIT_MAX]; /* operands, and the distribution of their values */
	double mean[KIT_MAX], spread[KIT_MAX];
	int64_t below[KIT_MAX];	   /* > 0: mean and whole numbers 0 to below - 1 */
	bool counts[KIT_MAX];	   /* they are mean, mean + 1, ... */
	unsigned special[KIT_MAX]; /* KIT_INFINITE...: what some rows hold beside normal values */
	int n_given;
	struct jm_tensor *result[KIT_MAX]; /* plain copies that the host reads */
	int n_results;
	struct jm_node spare; /* the substitute for a node that could not be made */
};

/* Opens the device; kit_done must be called also after an error. */
int kit_open(struct kit *k, const char *device, int threads, enum jm_dtype precision,
	struct jm_err *err);
/* The same on an open device, which stays open. */
int kit_open_on(
	struct kit *k, const struct jm_device *device, enum jm_dtype precision, struct jm_err *err);
void kit_done(struct kit *k);

/* Operands; the same seed and order give the same values, rounded to the type. */
struct jm_tensor *kit_normal(struct kit *k, enum jm_dtype type, double mean, double spread,
	int rank, const int64_t *dim);
struct jm_tensor *kit_ids(struct kit *k, int64_t below, int rank, const int64_t *dim);
/* Whole numbers from `least` to `most`: sums of their products are exact in types that hold the
 * largest sum. */
struct jm_tensor *kit_whole(
	struct kit *k, enum jm_dtype type, int least, int most, int rank, const int64_t *dim);
/* i32: first, first + 1, ... */
struct jm_tensor *kit_counted(struct kit *k, int first, int rank, const int64_t *dim);
enum {
	KIT_INFINITE = 1,
	KIT_NAN = 2,
	KIT_LARGE = 4,	/* f32 can sum their squares */
	KIT_HUGE = 8,	/* and those of these not */
	KIT_TINY = 16,	/* denormal, and -0 */
	KIT_MASKED = 32 /* the first half of the row is -infinity */
};
/* Some rows are normal; in the others few or most elements have a special value, one for each row,
 * of the kinds that are asked for. */
struct jm_tensor *kit_special(
	struct kit *k, enum jm_dtype type, unsigned kinds, int rank, const int64_t *dim);
/* A trainable operand of any rank. */
struct jm_tensor *kit_param(struct kit *k, int rank, const int64_t *dim);
/* A result; `from` (may be NULL) holds its values before the run. */
struct jm_tensor *kit_out(
	struct kit *k, enum jm_dtype type, int rank, const int64_t *dim, struct jm_tensor *from);
/* To be called after the nodes: marks t for comparison. */
void kit_read(struct kit *k, struct jm_tensor *t);
/* Plans and builds the program, writes the operands and runs it. */
int kit_run(struct kit *k, struct jm_err *err);
/* The values of a plain tensor that persists, as f64, to be freed by the caller. NULL = they cannot
 * be read. */
double *kit_values(struct kit *k, const struct jm_tensor *t);

#endif
