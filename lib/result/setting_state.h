/* SPDX-License-Identifier: Apache-2.0 */
/* What became of each setting of a record: whether the device was held back by it. */
#ifndef JM_SETTING_STATE_H
#define JM_SETTING_STATE_H

#include "measure/session/session.h"

#include <jansson.h>

/*
 * What became of a setting that limits something: "violated" when the mean went above what was
 * requested by more than 2 % and 1 unit (the sensor's uncertainty), "binding" when it came within 3
 * % of what was enforced or the device reported for most of the time that the cap held it back,
 * else "not reached"; "unknown" without a mean. capped: share of time held back by the cap, NAN =
 * not reported.
 */
const char *jm_setting_state(double requested, double enforced, double mean, double capped);
/* Has the phase of that name its own setting of the knob and device of this one? */
bool jm_setting_is_replaced(const json_t *record, const char *phase, const json_t *setting);
/* Setting i of a record, from 0: those of its first host, then those of the others. NULL: no more.
 */
const json_t *jm_record_setting(const json_t *record, size_t i);
/* Fills "state" of each of the record's settings from the phase's figures of the same device. */
int jm_record_judge_settings(json_t *record, struct jm_session *s, int phase, struct jm_err *err);

#endif
