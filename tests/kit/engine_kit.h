/* SPDX-License-Identifier: Apache-2.0 */
/* Small graphs and models for tests; a failure in them fails the test. */
#ifndef JM_TEST_KIT_H
#define JM_TEST_KIT_H

#include "engine/graph/model.h"
#include "engine/check/op_kit.h"

/* With two threads. */
void kit_init(struct kit *k, const char *device, enum jm_dtype precision);

/* A model's dims, to be freed. words: its name or a preset's, then "option=value", then NULL. */
void kit_model(
	const char *const *words, const struct jm_model **ret_model, struct jm_values *ret_dims);
/* A training step of that model, planned; how: all but model and dims. To be freed with its
 * graph. */
struct jm_program *kit_plan(
	const char *const *words, const struct jm_training *how, struct jm_device *device);
void kit_plan_free(struct jm_program *p);

/* ---- for backends made from ref: a group's nodes as execs of ref, one of each ---------------- */

struct kit_parts {
	struct jm_group one[JM_GROUP_MAX];
	void *exec[JM_GROUP_MAX];
	struct jm_tensor *inner[JM_GROUP_MAX]; /* virtual results, which get memory of their own */
	int n, n_inner;
};
/* Of the last node, with the largest scratch. Returns the number of choices. */
int kit_parts_select(
	void *dev, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err);
int kit_parts_build(struct kit_parts *parts, void *dev, const struct jm_group *group,
	const struct jm_choice *choice, struct jm_err *err);
int kit_parts_run(struct kit_parts *parts, void *dev, struct jm_err *err);
void kit_parts_drop(struct kit_parts *parts, void *dev);

#endif
