/* SPDX-License-Identifier: Apache-2.0 */
/* Small graphs for tests: random operands in, results out, on any device. */
#ifndef JM_TEST_KIT_H
#define JM_TEST_KIT_H

#include "engine/model.h"
#include "engine/program.h"
#include "engine/tensor.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})
#define OPS(...)  ((struct jm_tensor *[JM_NODE_IN]){__VA_ARGS__})

#define KIT_MAX 16

struct kit {
	struct jm_device device;
	struct jm_graph *graph;
	struct jm_program *program;
	uint64_t seed;
	struct jm_tensor *given[KIT_MAX]; /* operands, with how their values are spread */
	double mean[KIT_MAX], spread[KIT_MAX];
	int64_t below[KIT_MAX]; /* > 0: whole numbers 0 to below - 1 */
	int n_given;
	struct jm_tensor *result[KIT_MAX]; /* plain copies, to be read */
	int n_results;
};

void kit_open(struct kit *k, const char *device, int threads, enum jm_dtype precision);
/* With two threads. */
void kit_init(struct kit *k, const char *device, enum jm_dtype precision);
void kit_done(struct kit *k);

/* Operands; the same seed and order give the same values, rounded to the type. */
struct jm_tensor *kit_normal(struct kit *k, enum jm_dtype type, double mean, double spread,
	int rank, const int64_t *dim);
struct jm_tensor *kit_ids(struct kit *k, int64_t below, int rank, const int64_t *dim);
/* A trainable one of any rank. */
struct jm_tensor *kit_param(struct kit *k, int rank, const int64_t *dim);
/* A result in the making; `from` (may be NULL) is what it holds before. */
struct jm_tensor *kit_out(
	struct kit *k, enum jm_dtype type, int rank, const int64_t *dim, struct jm_tensor *from);
/* After the nodes: t is to be compared. */
void kit_read(struct kit *k, struct jm_tensor *t);
/* Plans, builds, writes the operands, runs. 0, or the error. */
int kit_run(struct kit *k, struct jm_err *err);
/* Values of a plain tensor that stays, as f64; to be freed. */
double *kit_values(struct kit *k, const struct jm_tensor *t);

/* A model's dims, to be freed. words: its name or a preset's, then "option=value", then NULL. */
void kit_model(
	const char *const *words, const struct jm_model **ret_model, struct jm_values *ret_dims);
/* A training step of that model, planned; how: all but model and dims. To be freed with its graph. */
struct jm_program *kit_plan(
	const char *const *words, const struct jm_training *how, struct jm_device *device);
void kit_plan_free(struct jm_program *p);

#endif
