/* SPDX-License-Identifier: Apache-2.0 */
#include "record_input.h"
#include "store/store_run.h"

#include "base/text/json_texts.h"
#include "base/files/store_file.h"
#include "base/printable.h"
#include "result/record_jobs.h"
#include "result/record_keys.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_JSON "%s is neither a store nor JSON: %s in line %d."

static void run_of(const json_t *record, char *out, size_t size)
{
	const json_t *of_case = json_object_get(record, "case");
	const char *id = json_string_value(json_object_get(of_case, "id"));
	const char *started = json_string_value(json_object_get(record, "started"));

	snprintf(out, size, "%.40s %lld %.40s", id ? id : "",
		(long long)json_integer_value(json_object_get(of_case, "repeat")),
		started ? started : "");
	jm_text_tame(out);
}

/* Is the record among these, one or an array of them? */
static bool is_among(const json_t *alike, const json_t *record)
{
	const json_t *other;
	size_t i;

	if (json_is_object(alike))
		return json_equal(alike, record);
	json_array_foreach(alike, i, other)
	{
		if (json_equal(other, record))
			return true;
	}
	return false;
}

/* Remembers a record by its run; of one that is alone no array is made. */
static int remember(struct jm_record_input *in, const char *run, json_t *alike, json_t *record)
{
	json_t *both;

	if (!alike)
		return json_object_set(in->by_run, run, record);
	if (json_is_array(alike))
		return json_array_append(alike, record);
	both = json_pack("[OO]", alike, record);
	return both ? json_object_set_new(in->by_run, run, both) : -1;
}

/* A run that is in a store and in a copy of the store counts once. */
static int add_record(
	struct jm_record_input *in, json_t *record, const char *path, struct jm_err *err)
{
	json_t *alike;
	char run[128];

	run_of(record, run, sizeof(run));
	alike = json_object_get(in->by_run, run);
	if (is_among(alike, record)) {
		in->n_twice++;
		return 0;
	}
	if (remember(in, run, alike, record) || json_array_append(in->records, record))
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the records of %s.", path);
	return 0;
}

/* What is another program's, or a version that is not known, is refused later by its schema. */
static bool is_ours(const json_t *record)
{
	const char *schema = json_string_value(json_object_get(record, "schema"));

	return schema && !strcmp(schema, JM_RECORD_SCHEMA);
}

static void note_damage(void *arg, struct jm_err *damage)
{
	struct jm_record_input *in = arg;

	fprintf(stderr, "joulemark: Omitted: %s\n", damage->text);
	*damage = (struct jm_err)JM_ERR_INIT;
	in->n_damaged++;
}

/* One value of a file. line: in which it begins. */
static int add_text(struct jm_record_input *in, const struct jm_json_texts *t, size_t number,
	const char *path, struct jm_err *err)
{
	json_error_t why = {.line = 0};
	struct jm_err damage = JM_ERR_INIT;
	char what[PATH_MAX + 32];
	json_t *record = *t->text == '{' ? jm_keys_read(in->reader, t->text, t->n) : NULL;
	int rc = 0;

	if (!record)
		record = json_loadb(t->text, t->n, JSON_DECODE_ANY, &why);
	if (!record)
		return jm_err_set(err, JM_EFORMAT, NO_JSON, path, why.text, t->line + why.line - 1);
	snprintf(what, sizeof(what), "record %zu of %s", number, path);
	if (is_ours(record) && jm_record_check(record, what, &damage))
		note_damage(in, &damage);
	else
		rc = add_record(in, record, path, err);
	json_decref(record);
	return rc;
}

/* A record, an array of them, or several one after the other. */
static int add_json(struct jm_record_input *in, FILE *f, const char *path, struct jm_err *err)
{
	struct jm_json_texts texts;
	size_t number = 0;
	int rc = 0, got = 1;

	jm_json_texts_init(&texts, f);
	while (!rc && (got = jm_json_texts_next(&texts)) > 0)
		rc = add_text(in, &texts, number++, path, err);
	if (!rc && ferror(f))
		rc = jm_err_set(err, JM_EIO, "%s cannot be read: %s.", path, strerror(errno));
	else if (got < 0)
		rc = jm_err_set(err, got, NO_JSON, path, texts.why, texts.line);
	jm_json_texts_done(&texts);
	return rc;
}

static int add_file(struct jm_record_input *in, const char *path, struct jm_err *err)
{
	bool is_stdin = !strcmp(path, "-");
	FILE *f = is_stdin ? stdin : fopen(path, "r");
	int rc;

	if (!f)
		return jm_err_set(err, JM_ENOENT, "%s cannot be read: %s; check the path.", path,
			strerror(errno));
	rc = add_json(in, f, path, err);
	if (!is_stdin)
		fclose(f);
	return rc;
}

struct stored {
	struct jm_record_input *in;
	const char *path;
};

static int add_stored(void *arg, json_t *record, struct jm_err *err)
{
	const struct stored *s = arg;

	return add_record(s->in, record, s->path, err);
}

static int add_store(struct jm_record_input *in, const char *path, struct jm_err *err)
{
	size_t first = json_array_size(in->records);
	struct stored stored = {in, path};
	struct jm_store *store;
	int rc = jm_store_open(path, JM_STORE_READ, &store, err);

	if (rc)
		return rc;
	jm_store_skip_damaged(store, note_damage, in);
	rc = jm_store_records(store, !in->full, add_stored, &stored, err);
	if (!rc && in->with_store)
		rc = in->with_store(in->arg, store, first, err);
	jm_store_close(store, NULL);
	return rc;
}

int jm_record_input_init(struct jm_record_input *in, bool full, struct jm_err *err)
{
	*in = (struct jm_record_input){.records = json_array(),
		.by_run = json_object(),
		.reader = jm_keys_reader_new(jm_record_keys, !full),
		.full = full};
	if (in->records && in->by_run && in->reader)
		return 0;
	return jm_err_set(err, JM_ENOMEM, "Out of memory for the records.");
}

int jm_record_input_add(struct jm_record_input *in, const char *path, struct jm_err *err)
{
	return jm_store_is(path) ? add_store(in, path, err) : add_file(in, path, err);
}

int jm_record_input_join(struct jm_record_input *in, size_t **ret_place, struct jm_err *err)
{
	struct jm_joined joined;
	int rc = jm_record_join_jobs(in->records, &joined, err);

	if (rc) {
		json_decref(joined.records);
	} else {
		json_decref(in->records);
		in->records = joined.records;
		in->n_parts = joined.n_parts;
		in->n_runs = joined.n_runs;
	}
	if (ret_place && !rc)
		*ret_place = joined.place;
	else
		free(joined.place);
	return rc;
}

void jm_record_input_warn(const struct jm_record_input *in, const char *status)
{
	if (in->n_twice)
		fprintf(stderr, "joulemark: Ignored %d repeated record%s; each run counts once.\n",
			in->n_twice, in->n_twice > 1 ? "s" : "");
	if (in->n_parts)
		fprintf(stderr,
			"joulemark: %d records are parts of %d run%s of a job; each is shown as "
			"one, with every meter of a machine once.\n",
			in->n_parts, in->n_runs, in->n_runs > 1 ? "s" : "");
	if (in->n_damaged)
		fprintf(stderr, "joulemark: %d damaged record%s omitted; the exit status is %s.\n",
			in->n_damaged, in->n_damaged > 1 ? "s were" : " was", status);
}

void jm_record_input_done(struct jm_record_input *in)
{
	json_decref(in->by_run);
	jm_keys_reader_free(in->reader);
	json_decref(in->records);
	*in = (struct jm_record_input){.records = NULL};
}
