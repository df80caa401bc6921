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

/* ISO 8601 in UTC, ms: "2026-01-31T12:00:00.000Z" */
void jm_time_text(int64_t wall_ns, char *out, size_t size);

#endif
