/* SPDX-License-Identifier: Apache-2.0 */
/* A policy as a plan file: the values that 'tune --per-phase' found for the phases of a command,
 * beside one value for all of them; the reference of the plan is the setting found. */
#ifndef JM_POLICY_PLAN_H
#define JM_POLICY_PLAN_H

#include <jansson.h>

#include "joulemark.h"

/* policy: the key of a record. knob: as --knob has it. device: NULL = none was given. A file that
 * is there is replaced. JM_ENOENT: the search has not ended, so that there is nothing to write. */
int jm_policy_plan_write(const char *path, const json_t *policy, const char *knob,
	const char *device, char *const *command, struct jm_err *err);

#endif
