/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of a case, {[phase/]knob[@device]: value}, as they are set: those without a phase
 * before the work begins, those of a phase when it begins. After such a phase its knobs have the
 * value again that the case has without a phase, or, where it has none, the value found.
 */
#ifndef JM_CASE_SETTINGS_H
#define JM_CASE_SETTINGS_H

#include "guard/guard.h"
#include "result/case_id.h"

/* Has the case a setting, of any phase? */
bool jm_case_sets(const json_t *parameters);
/* Has the case a setting of that phase (NULL: of any)? */
bool jm_case_sets_in(const json_t *parameters, const char *phase);
/* The settings in force in a phase, {knob[@device]: value}, of the knobs that any phase sets; the
 * caller owns it.
 * NULL = memory ran out. */
json_t *jm_case_in_force(const json_t *parameters, const char *phase);

/* A row of "found": {knob, device, unit, value: "300W"}; an unknown one has no value. */
json_t *jm_case_found(const struct jm_knob *knob, const struct jm_knob_value *value);

/*
 * Sets what holds before the work (phase NULL) or from the begin of a phase on, and reads it back.
 * ret_rows, for the caller to decref: [{knob, device, unit, requested, accepted, enforced, state:
 * "unknown"}], one for each knob and device; of a phase also {phase, own}: own = a setting of this
 * phase, and not one that holds again. found: the plan's "found". Errors: as of jm_guard_set.
 */
int jm_case_apply(struct jm_guard *guard, const json_t *found, const json_t *parameters,
	const char *phase, json_t **ret_rows, struct jm_err *err);
/* After the work: does each knob of the rows still have the value that was accepted? JM_EIO: not,
 * because another program or the device changed it. What cannot be read now is not judged. */
int jm_case_check_held(struct jm_guard *guard, const json_t *rows, struct jm_err *err);

#endif
