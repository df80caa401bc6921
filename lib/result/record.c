/* SPDX-License-Identifier: Apache-2.0 */
/* The record's frame. */
#include "result/record.h"

#include "base/clock.h"
#include "result/record_keys.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

void jm_record_set(json_t *record, const char *key, json_t *value)
{
	json_object_set_new(record, key, value ? value : json_null());
}

void jm_record_failed(json_t *record, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	jm_record_set(record, "status", json_string("failed"));
	/* what a child printed may be cut in the middle of a letter */
	jm_record_set(record, "reason", json_string(text));
	if (!json_is_string(json_object_get(record, "reason"))) {
		for (char *c = text; *c; c++)
			if (*c & 0x80)
				*c = '?';
		jm_record_set(record, "reason", json_string(text));
	}
}

enum jm_failure jm_record_failure(const json_t *record)
{
	const char *word = json_string_value(json_object_get(record, "failure"));
	int i = 0;

	while (i < JM_FAILURE_KINDS && (!word || strcmp(word, jm_failure_words[i]) != 0))
		i++;
	return (enum jm_failure)i;
}

void jm_record_set_failure(json_t *record, enum jm_failure failure)
{
	jm_record_set(record, "failure", json_string(jm_failure_words[failure]));
}

bool jm_record_is_ok(const json_t *record)
{
	return !strcmp(jm_json_text(record, "status"), "ok");
}

void jm_record_interrupted(json_t *record)
{
	jm_record_failed(record,
		"Interrupted after %lld steps of the measured phase; the figures are "
		"those of these steps.",
		(long long)json_integer_value(json_object_get(record, "steps")));
	jm_record_set(record, "interrupted", json_true());
}

bool jm_record_is_interrupted(const json_t *record)
{
	return json_is_true(json_object_get(record, "interrupted"));
}

static json_t *copy_of(const json_t *from, const char *key)
{
	json_t *copy = json_deep_copy(json_object_get(from, key));

	return copy ? copy : json_null();
}

json_t *jm_record_new(const json_t *job, struct jm_err *err)
{
	const json_t *parameters = json_object_get(job, "parameters");
	json_t *r = jm_keys_blank(jm_record_keys, JM_KEY_OF_CASE);

	if (!r) {
		jm_err_set(err, JM_ENOMEM, "Out of memory for a record.");
		return NULL;
	}
	jm_record_set(r, "schema", json_string(JM_RECORD_SCHEMA));
	jm_record_set(r, "id", copy_of(json_object_get(job, "case"), "id"));
	jm_record_set(r, "clock", json_string("real"));
	jm_record_set(json_object_get(r, "quality"), "grade", json_string("none"));
	jm_record_set(r, "command", copy_of(parameters, "command"));
	jm_record_set(r, "workload", copy_of(parameters, "workload"));
	jm_record_set(r, "options", copy_of(parameters, "options"));
	jm_record_set(r, "device", copy_of(parameters, "device"));
	jm_record_set(r, "precision", copy_of(parameters, "precision"));
	jm_record_set(r, "case", copy_of(job, "case"));
	jm_record_set(r, "settings", copy_of(job, "settings"));
	jm_record_set(r, "status", json_string("failed"));
	jm_record_set(r, "reason", NULL);
	return r;
}

void jm_time_text(int64_t wall_ns, char *out, size_t size)
{
	time_t seconds = (time_t)(wall_ns / JM_SECOND);
	char text[32];
	struct tm tm;

	gmtime_r(&seconds, &tm);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out, size, "%s.%03dZ", text, (int)(wall_ns % JM_SECOND / JM_MILLISECOND));
}
