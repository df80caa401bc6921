/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room result: what is known of one run: the identity of its case (case_id.h), the record and the
 * table of its keys (record_keys.h), where it comes from (provenance.h), what it means (metric.h).
 * May include: base, meter, trace, energy, measure, guard.
 *
 * The record of one run of a case (schema joulemark.run/1, docs/record.schema.json), begun from the
 * job that the parent hands to the worker:
 *	{parameters{}, case{id, parameters, repeat, block, position, reference, seed}, settings[],
 *	 how{sources[], interval_s, real_time, ...}, parent}
 */
#ifndef JM_RECORD_H
#define JM_RECORD_H

#include "result/case_id.h"
#include "result/failure.h"
#include "measure/session/session.h"

/* Every key exists; what is not known yet is null. The status is "failed" until it is set. */
json_t *jm_record_new(const json_t *job, struct jm_err *err);
void jm_record_set(json_t *record, const char *key, json_t *value); /* steals value; NULL = null */
/* Of a failed record; JM_FAILURE_KINDS = unknown. */
enum jm_failure jm_record_failure(const json_t *record);
void jm_record_set_failure(json_t *record, enum jm_failure failure);

/* Did the work succeed? A record without a status, and NULL, did not. */
bool jm_record_is_ok(const json_t *record);
void jm_record_failed(json_t *record, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Of work that ended early on request: not "ok", but its figures are whole. */
void jm_record_interrupted(json_t *record);
bool jm_record_is_interrupted(const json_t *record);

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
/* Fills "state" of each of the record's settings from the phase's figures of the same device. */
int jm_record_judge_settings(json_t *record, struct jm_session *s, int phase, struct jm_err *err);

/* ISO 8601 in UTC, ms: "2026-01-31T12:00:00.000Z" */
void jm_time_text(int64_t wall_ns, char *out, size_t size);

#endif
