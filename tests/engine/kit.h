/* SPDX-License-Identifier: Apache-2.0 */
/* Small graphs and models for tests; a failure in them fails the test. */
#ifndef JM_TEST_KIT_H
#define JM_TEST_KIT_H

#include "engine/model.h"
#include "engine/op_kit.h"

/* With two threads. */
void kit_init(struct kit *k, const char *device, enum jm_dtype precision);

/* A model's dims, to be freed. words: its name or a preset's, then "option=value", then NULL. */
void kit_model(
	const char *const *words, const struct jm_model **ret_model, struct jm_values *ret_dims);
/* A training step of that model, planned; how: all but model and dims. To be freed with its graph. */
struct jm_program *kit_plan(
	const char *const *words, const struct jm_training *how, struct jm_device *device);
void kit_plan_free(struct jm_program *p);

#endif
