/* SPDX-License-Identifier: Apache-2.0 */
/* A measurement in a store: a case of the command, one more repeat each time. */
#include "measure_store.h"
#include "result/record.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The repeats of this case that the store has. */
struct count {
	const char *id;
	int most;
};

static int count_repeat(void *arg, json_t *record, struct jm_err *err)
{
	const json_t *of_case = json_object_get(record, "case");
	const char *id = json_string_value(json_object_get(of_case, "id"));
	int repeat = (int)json_integer_value(json_object_get(of_case, "repeat"));
	struct count *c = arg;

	(void)err;
	if (id && !strcmp(id, c->id) && repeat > c->most)
		c->most = repeat;
	return 0;
}

json_t *jm_command_throughput(const struct jm_values *values)
{
	static const struct {
		const char *option, *key;
	} rows[] = {{"items-regex", "regex"}, {"items-json", "json"}, {"unit", "unit"}};
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

static int make_job(struct jm_measure_store *s, int repeat, struct jm_err *err)
{
	const struct jm_plan_case *c = &s->plan.cases[0];

	s->job = json_pack("{s:O, s:{s:s, s:O, s:i, s:i, s:i, s:b, s:i}, s:[]}", "parameters",
		c->parameters, "case", "id", c->id, "parameters", c->parameters, "repeat", repeat,
		"block", repeat, "position", 1, "reference", 0, "seed", 1, "settings");
	return s->job ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for the case of a command.");
}

int jm_measure_store_open(struct jm_measure_store *s, const char *path, json_t *command,
	json_t *throughput, struct jm_err *err)
{
	int rc = make_plan(s, command, throughput, err);
	struct count count = {0};

	if (rc)
		return rc;
	s->is_new = access(path, F_OK) != 0;
	rc = jm_store_open(path, JM_STORE_WRITE, &s->store, err);
	count.id = s->plan.cases[0].id;
	if (!rc)
		rc = jm_store_records(s->store, true, count_repeat, &count, err);
	return rc ? rc : make_job(s, count.most + 1, err);
}

int jm_measure_store_begin(
	struct jm_measure_store *s, const struct jm_meters *meters, struct jm_err *err)
{
	const struct jm_plan_case *c = &s->plan.cases[0];
	const json_t *of_case = json_object_get(s->job, "case");
	int rc = jm_store_add_case(s->store, c->id, c->parameters, err);

	if (!rc)
		rc = jm_store_begin(s->store, c->id,
			(int)json_integer_value(json_object_get(of_case, "repeat")), err);
	return rc ? rc : jm_store_add_signals(s->store, meters, err);
}

int jm_measure_store_chunk(void *arg, const struct jm_chunk *chunk, struct jm_err *err)
{
	struct jm_measure_store *s = arg;

	return jm_store_add_chunk(s->store, chunk, err);
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

int jm_measure_store_finish(struct jm_measure_store *s, json_t *record, struct jm_err *err)
{
	json_t *framed = jm_record_new(s->job, err);
	int rc;

	if (!framed)
		return err->code;
	json_object_del(record, "id");
	json_object_update_missing(record, framed);
	json_decref(framed);
	set_status(record);
	rc = jm_store_finish(s->store, record, err);
	s->finished = !rc;
	return rc;
}

int jm_measure_store_close(struct jm_measure_store *s, struct jm_err *err)
{
	char *path = s->store ? strdup(jm_store_path(s->store)) : NULL;
	int rc = s->store ? jm_store_close(s->store, err) : 0;

	if (path && s->is_new && !s->finished)
		unlink(path);
	free(path);
	jm_plan_done(&s->plan);
	json_decref(s->job);
	*s = (struct jm_measure_store){0};
	return rc;
}
