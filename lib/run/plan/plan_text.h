/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a plan file at one point: {names} replaced, expressions computed. */
#ifndef JM_PLAN_TEXT_H
#define JM_PLAN_TEXT_H

#include "plan_runs.h"

/* Does the node, at any depth, hold {name}? */
bool jm__plan_mentions(const struct jm_yaml *node, const char *name);
/* The value of a key that is one text, with its {names} replaced; the caller frees it. */
int jm__plan_value(const struct jm_plan_run *run, const struct jm_plan_point *point,
	const struct jm_plan_key *key, char **ret, struct jm_err *err);

/* Appends the texts of a key at that point: one, or several of an option that may be repeated. */
int jm_plan_texts(const struct jm_plan_run *run, const struct jm_plan_point *point,
	const struct jm_plan_key *key, json_t *ret_texts, struct jm_err *err);
/* The words of the command; point NULL: as they are written, with {names}. */
int jm_plan_command(const struct jm_plan_run *run, const struct jm_plan_point *point,
	json_t *ret_words, struct jm_err *err);

#endif
