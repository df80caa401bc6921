/* SPDX-License-Identifier: Apache-2.0 */
/* A measurement in a store: a case of the command, one more repeat each time. */
#include "measure_store.h"
#include "cli/frame/interrupts.h"

#include "base/clock.h"
#include "base/files/output.h"
#include "result/record.h"

#include <limits.h>
#include <string.h>

#define WAIT_NS (9 * JM_SECOND) /* for the store; the last attempt takes a second more */

json_t *jm_command_throughput(const struct jm_values *values)
{
	static const struct {
		const char *option, *key;
	} rows[] = {{"items-regex", "regex"}, {"items-json", "json"}, {"items-kind", "kind"},
		{"unit", "unit"}};
	json_t *throughput = json_object();

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *text = jm_values_text(values, rows[i].option);

		if (text)
			json_object_set_new(throughput, rows[i].key, json_string(text));
	}
	return throughput;
}

static int make_plan(
	struct jm_measure_store *s, json_t *command, json_t *throughput, struct jm_err *err)
{
	json_t *what = json_pack("{s:o}", "command", command), *request;
	int rc;

	if (json_object_size(throughput))
		json_object_set(what, "throughput", throughput);
	json_decref(throughput);
	request = json_pack("{s:o, s:[], s:{s:[], s:b}, s:i, s:i}", "what", what, "found", "how",
		"sources", "real_time", 1, "repeat", 1, "seed", 1);
	if (!request)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the case of a command.");
	rc = jm_plan_new(request, &s->plan, err);
	json_decref(request);
	return rc;
}

int jm_measure_store_open(struct jm_measure_store *s, const char *path, json_t *command,
	json_t *throughput, struct jm_err *err)
{
	int rc = make_plan(s, command, throughput, err);

	s->path = path;
	s->file.fd = -1;
	return rc ? rc : jm_store_try(path, &s->file, err);
}

/* ---- the record ---- */

static int frame(const struct jm_measure_store *s, json_t *record, struct jm_err *err)
{
	const struct jm_plan_case *c = &s->plan.cases[0];
	json_t *framed, *job;

	job = json_pack("{s:O, s:{s:s, s:O, s:i, s:i, s:i, s:b, s:i}, s:[]}", "parameters",
		c->parameters, "case", "id", c->id, "parameters", c->parameters, "repeat", 1,
		"block", 1, "position", 1, "reference", 0, "seed", 1, "settings");
	framed = job ? jm_record_new(job, err) : NULL;
	json_decref(job);
	if (!framed)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the case of a command.");
	json_object_del(record, "id");
	json_object_update_missing(record, framed);
	json_decref(framed);
	return 0;
}

static void set_repeat(json_t *record, int repeat)
{
	json_t *of_case = json_object_get(record, "case");

	json_object_set_new(of_case, "repeat", json_integer(repeat));
	json_object_set_new(of_case, "block", json_integer(repeat));
}

static void set_status(json_t *record)
{
	int number = (int)json_integer_value(json_object_get(record, "signal"));
	int status = (int)json_integer_value(json_object_get(record, "exit_status"));
	const char *name = number ? sigabbrev_np(number) : NULL;

	if (!number && !status) {
		jm_record_set(record, "status", json_string("ok"));
		jm_record_set(record, "reason", NULL);
	} else if (number) {
		jm_record_failed(record, "The command was killed by SIG%s (signal %d).",
			name ? name : "?", number);
	} else {
		jm_record_failed(record, "The command ended with status %d.", status);
	}
}

/* ---- storing ---- */

static int add_chunk(void *arg, const struct jm_chunk *chunk, struct jm_err *err)
{
	return jm_store_add_chunk(arg, chunk, err);
}

static int add_all(const struct jm_measure_store *s, struct jm_store *store,
	struct jm_session *session, json_t *record, struct jm_err *err)
{
	const struct jm_plan_case *c = &s->plan.cases[0];
	int repeat = 0, rc = jm_store_add_case(store, c->id, c->parameters, err);

	if (!rc)
		rc = jm_store_add_run(store, c->id, &repeat, err);
	if (!rc && session)
		rc = jm_store_add_signals(store, jm_session_meters(session), err);
	if (!rc && session)
		rc = jm_session_chunks(session, add_chunk, store, err);
	if (rc)
		return rc;
	set_repeat(record, repeat);
	return jm_store_finish(store, record, err);
}

/* All or nothing. */
static int store_once(const struct jm_measure_store *s, struct jm_session *session, json_t *record,
	struct jm_err *err)
{
	struct jm_store *store = NULL;
	int rc = jm_store_open_again(s->path, &s->file, &store, err), closed;

	if (rc)
		return rc;
	rc = add_all(s, store, session, record, err);
	if (rc)
		jm_store_rollback(store);
	closed = jm_store_close(store, rc ? NULL : err);
	return rc ? rc : closed;
}

static int store_waiting(const struct jm_measure_store *s, struct jm_ctx *ctx,
	struct jm_session *session, json_t *record, struct jm_err *err)
{
	int64_t begin = jm_clock_now(jm_clock_real());
	bool said = false;
	int rc;

	jm_count_interrupts(ctx, -1); /* Ctrl-C ends the wait, and loses no record */
	for (;;) {
		*err = (struct jm_err)JM_ERR_INIT;
		rc = store_once(s, session, record, err);
		if (rc != JM_EBUSY || *ctx->interrupts ||
			jm_clock_now(jm_clock_real()) - begin > WAIT_NS)
			return rc;
		if (!said)
			jm_log(ctx, JM_INFO,
				"Waiting for the store '%s', which another program is writing; at "
				"most 10 s.",
				s->path);
		said = true;
	}
}

int jm_measure_store_finish(struct jm_measure_store *s, struct jm_ctx *ctx,
	struct jm_session *session, json_t *record, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT, other = JM_ERR_INIT;
	char name[PATH_MAX];
	int rc = frame(s, record, err);

	if (rc)
		return rc;
	set_status(record);
	rc = store_waiting(s, ctx, session, record, &why);
	if (!rc)
		return 0;
	if (jm_output_json_beside(s->path, record, name, &other))
		return jm_err_set(
			err, rc, "%.250s The record is not stored: %.200s", why.text, other.text);
	return jm_err_set(err, rc,
		"%.250s The record is in %.160s, without its trace; 'joulemark report' reads it.",
		why.text, name);
}

void jm_measure_store_close(struct jm_measure_store *s)
{
	jm_plan_done(&s->plan);
	if (s->path)
		jm_store_file_done(&s->file);
	s->path = NULL;
}
