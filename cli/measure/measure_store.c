/* SPDX-License-Identifier: Apache-2.0 */
#include "measure_store.h"
#include "measure/session/session_report.h"
#include "measure/session/session_part.h"
#include "store/store_run.h"
#include "store/store_trace.h"
#include "cli/frame/interrupts.h"

#include "base/clock.h"
#include "base/files/output.h"
#include "base/text/json.h"
#include "result/record.h"

#include <limits.h>
#include <string.h>

#define WAIT_NS (9 * JM_SECOND) /* for the store; the last attempt takes a second more */

json_t *jm_command_throughput(const struct jm_item_options *o)
{
	return json_pack("{s:s*, s:s*, s:s*, s:s*}", "regex", o->regex, "json", o->json, "kind",
		o->kind, "unit", o->unit);
}

int jm_measure_store_add(struct jm_measure_store *s, json_t *command, json_t *throughput,
	const char *tuned, json_t *settings, struct jm_err *err)
{
	json_t *what = json_pack("{s:o}", "command", command), *request;
	int rc;

	if (json_object_size(throughput))
		json_object_set(what, "throughput", throughput);
	json_decref(throughput);
	if (settings)
		json_object_set(what, "settings", settings);
	if (tuned)
		json_object_set_new(what, "options", json_pack("{s:[s]}", "tune", tuned));
	request = json_pack("{s:o, s:[], s:{s:[], s:b}, s:i, s:i}", "what", what, "found", "how",
		"sources", "real_time", 1, "repeat", 1, "seed", 1);
	if (!request)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the case of a command.");
	rc = jm_plan_new(request, &s->plan[s->n], err);
	s->n += !rc;
	json_decref(request);
	return rc;
}

int jm_measure_store_open(struct jm_measure_store *s, const char *path, struct jm_err *err)
{
	s->path = path;
	s->before = -1;
	s->file.fd = -1;
	return jm_store_try(path, &s->file, err);
}

/* ---- the record ---- */

static int frame(
	const struct jm_measure_store *s, const struct jm_stored_run *run, struct jm_err *err)
{
	const struct jm_plan_case *c = &s->plan[run->command].cases[0];
	json_t *record = run->record, *framed, *job = json_object(), *of_case = json_object();

	jm_json_set_text(&of_case, "id", c->id);
	jm_json_set(&of_case, "parameters", json_incref(c->parameters));
	jm_json_set_int(&of_case, "repeat", 1);
	jm_json_set_int(&of_case, "block", 1);
	jm_json_set_int(&of_case, "position", 1);
	jm_json_set_bool(&of_case, "reference", false);
	jm_json_set_int(&of_case, "seed", 1);
	jm_json_set(&job, "parameters", json_incref(c->parameters));
	jm_json_set(&job, "case", of_case);
	jm_json_set(&job, "settings", json_array());
	framed = job ? jm_record_new(job, err) : NULL;
	json_decref(job);
	if (!framed)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the case of a command.");
	json_object_del(record, "id");
	json_object_update_missing(record, framed);
	json_decref(framed);
	return 0;
}

/* before: blocks of earlier calls */
static void set_place(const struct jm_stored_run *run, int repeat, int before)
{
	json_t *of_case = json_object_get(run->record, "case");

	json_object_set_new(of_case, "repeat", json_integer(repeat));
	json_object_set_new(
		of_case, "block", json_integer(run->block ? before + run->block : repeat));
	if (run->position)
		json_object_set_new(of_case, "position", json_integer(run->position));
}

static void set_status(json_t *record)
{
	int number = (int)json_integer_value(json_object_get(record, "signal"));
	int status = (int)json_integer_value(json_object_get(record, "exit_status"));
	const char *name = number ? sigabbrev_np(number) : NULL;

	/* for a reason that is no fault of the command */
	if (!strcmp(jm_json_text(record, "status"), "failed") && *jm_json_text(record, "reason"))
		return;
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

/* The readings of one run, and those next to it. */
static int add_part(struct jm_store *store, struct jm_session *session,
	const struct jm_stored_run *run, struct jm_err *err)
{
	struct jm_trace *part = NULL;
	int rc = jm_session_part(session, run->t0_ns, run->t1_ns, &part, err);

	if (!rc)
		rc = jm_trace_chunks(part, add_chunk, store, err);
	jm_trace_free(part);
	return rc;
}

static int add_run(const struct jm_measure_store *s, struct jm_store *store,
	struct jm_session *session, const struct jm_stored_run *run, struct jm_err *err)
{
	const struct jm_plan_case *c = &s->plan[run->command].cases[0];
	int repeat = 0, rc = jm_store_add_case(store, c->id, c->parameters, err);

	if (!rc)
		rc = jm_store_add_run(store, c->id, &repeat, err);
	if (!rc && session)
		rc = jm_store_add_signals(store, jm_session_meters(session), err);
	if (!rc && session && run->t1_ns)
		rc = add_part(store, session, run, err);
	else if (!rc && session)
		rc = jm_session_chunks(session, add_chunk, store, err);
	if (rc)
		return rc;
	set_place(run, repeat, s->before);
	return jm_store_finish(store, run->record, err);
}

/* Blocks of this call come after all that are there. */
static int count_blocks_before(
	struct jm_measure_store *s, struct jm_store *store, struct jm_err *err)
{
	int rc = 0, last = 0, most = 0;

	for (int i = 0; !rc && s->before < 0 && i < s->n; i++) {
		rc = jm_store_last_repeat(store, s->plan[i].cases[0].id, &last, err);
		most = last > most ? last : most;
	}
	if (!rc && s->before < 0)
		s->before = most;
	return rc;
}

/* Each run whole or not at all; *done: how many. */
static int store_once(struct jm_measure_store *s, struct jm_session *session,
	const struct jm_stored_run *run, int n, int *done, struct jm_err *err)
{
	struct jm_store *store = NULL;
	int rc = jm_store_open_again(s->path, &s->file, &store, err), closed;

	if (rc)
		return rc;
	rc = count_blocks_before(s, store, err);
	while (!rc && *done < n) {
		rc = add_run(s, store, session, &run[*done], err);
		*done += !rc;
	}
	if (rc)
		jm_store_rollback(store);
	closed = jm_store_close(store, rc ? NULL : err);
	return rc ? rc : closed;
}

static int store_waiting(struct jm_measure_store *s, struct jm_ctx *ctx, struct jm_session *session,
	const struct jm_stored_run *run, int n, int *done, struct jm_err *err)
{
	int64_t begin = jm_clock_now(jm_clock_real());
	bool said = false;
	int rc;

	jm_count_interrupts(ctx, -1); /* Ctrl-C ends the wait, and loses no record */
	for (;;) {
		*err = (struct jm_err)JM_ERR_INIT;
		rc = store_once(s, session, run, n, done, err);
		if (rc != JM_EBUSY || *done || *ctx->interrupts ||
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

/* Records that the store did not take. why: of that; rc: its code */
static int write_beside(const struct jm_measure_store *s, const struct jm_stored_run *run, int n,
	const struct jm_err *why, int rc, struct jm_err *err)
{
	struct jm_err other = JM_ERR_INIT;
	char name[PATH_MAX] = "", more[60] = "";

	for (int i = 0; i < n; i++)
		if (jm_output_json_beside(s->path, run[i].record, name, &other))
			return jm_err_set(err, rc, "%.250s The record is not stored: %.200s",
				why->text, other.text);
	if (n > 1)
		snprintf(more, sizeof(more), " and %d more of similar names", n - 1);
	return jm_err_set(err, rc,
		"%.250s The record is in %.160s%s, without its trace; 'joulemark report' reads it.",
		why->text, name, more);
}

static int frame_all(const struct jm_measure_store *s, const struct jm_stored_run *run, int n,
	struct jm_err *err)
{
	int rc = 0;

	for (int i = 0; !rc && i < n; i++) {
		rc = frame(s, &run[i], err);
		if (!rc)
			set_status(run[i].record);
	}
	return rc;
}

int jm_measure_store_some(struct jm_measure_store *s, struct jm_session *session,
	const struct jm_stored_run *run, int n, int *ret_done, struct jm_err *err)
{
	int rc = frame_all(s, run, n, err);

	*ret_done = 0;
	if (!rc)
		rc = store_once(s, session, run, n, ret_done, err);
	if (rc)
		return rc;
	/* from now on it is this file: where another takes its place, what follows is written
	 * beside it */
	jm_store_file_done(&s->file);
	return jm_store_try(s->path, &s->file, err);
}

int jm_measure_store_finish(struct jm_measure_store *s, struct jm_ctx *ctx,
	struct jm_session *session, const struct jm_stored_run *run, int n, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	int done = 0, rc = frame_all(s, run, n, err);

	if (rc || !n)
		return rc;
	rc = store_waiting(s, ctx, session, run, n, &done, &why);
	if (!rc)
		return 0;
	/* a failure to close is of the last one */
	done = done < n ? done : n - 1;
	return write_beside(s, run + done, n - done, &why, rc, err);
}

void jm_measure_store_close(struct jm_measure_store *s)
{
	for (int i = 0; i < s->n; i++)
		jm_plan_done(&s->plan[i]);
	if (s->path)
		jm_store_file_done(&s->file);
	s->path = NULL;
}
