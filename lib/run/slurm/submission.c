/* SPDX-License-Identifier: Apache-2.0 */
#include "submission.h"
#include "base/files/output.h"
#include "base/printable.h"
#include "base/text/json.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOT_FOUND      127 /* exit status of a shell: there is no such program */
#define NOT_EXECUTABLE 126
#define TAIL	       4096 /* bytes of a log that are looked at */

/* ---- the file of a run ---- */

static json_t *to_json(const struct jm_submission *s)
{
	return json_pack("{s:s, s:s, s:i, s:O}", "joulemark", JM_VERSION, "folder", s->work_folder,
		"parts", s->parts, "request", s->request);
}

int jm_submission_write(const char *path, const struct jm_submission *s, struct jm_err *err)
{
	json_t *json = to_json(s);
	int rc = json ? jm_output_json(path, json, err)
		      : jm_err_set(err, JM_EFORMAT,
				"The name of the current folder or the plan is no UTF-8 text.");

	json_decref(json);
	return rc;
}

static int take_json(
	const char *path, const json_t *json, struct jm_submission *ret, struct jm_err *err)
{
	const char *version = jm_json_text(json, "joulemark");
	const char *folder = jm_json_text(json, "folder");
	json_t *request = json_object_get(json, "request");
	json_int_t parts = json_integer_value(json_object_get(json, "parts"));

	if (strcmp(version, JM_VERSION) != 0)
		return jm_err_set(err, JM_EFORMAT,
			"%s was submitted by joulemark %.20s, and this host has %s; install the "
			"same "
			"version on all hosts.",
			path, *version ? version : "of an unknown version", JM_VERSION);
	if (!json_is_object(json_object_get(request, "what")) || !*folder || parts < 1 ||
		parts > 1000000)
		return jm_err_set(err, JM_EFORMAT,
			"%s is no run that 'joulemark submit' wrote; submit the plan again.", path);
	ret->work_folder = strdup(folder);
	if (!ret->work_folder)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the plan.");
	ret->request = json_incref(request);
	ret->parts = (int)parts;
	return 0;
}

int jm_submission_read(const char *path, struct jm_submission *ret, struct jm_err *err)
{
	json_error_t why;
	json_t *json;
	int rc;

	*ret = (struct jm_submission){0};
	errno = 0;
	json = json_load_file(path, 0, &why);
	if (!json)
		return jm_err_set(err, errno == ENOENT ? JM_ENOENT : JM_EIO,
			"The submitted run %s cannot be read: %s.", path,
			errno ? strerror(errno) : why.text);
	rc = take_json(path, json, ret, err);
	json_decref(json);
	return rc;
}

bool jm_submission_same(const struct jm_submission *a, const struct jm_submission *b)
{
	return json_equal(a->request, b->request) && a->parts == b->parts &&
	       !strcmp(a->work_folder, b->work_folder);
}

void jm_submission_done(struct jm_submission *s)
{
	json_decref(s->request);
	free(s->work_folder);
	*s = (struct jm_submission){0};
}

/* ---- its jobs ---- */

/* $1 program, $2 key of the run, $3 group; the rest are options of `run`. Slurm starts it in the
 * folder. A caught signal ends the shell after the program, an ignored one would be ignored by the
 * program too. */
static const char script[] =
	"#!/bin/sh\n"
	"# one job of a plan that 'joulemark submit' has submitted\n"
	"program=$1 key=$2 group=$3\n"
	"shift 3\n"
	"part=$key.$group.$SLURM_ARRAY_TASK_ID\n"
	"place=\"${SLURMD_NODENAME:-$(uname -n)} ${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID\"\n"
	"trap : HUP INT TERM\n"
	"rm -f \"$part.end\"\n"
	"echo \"$place\" >\"$part.start\"\n"
	"\"$program\" run --job \"$PWD/$key.json:$((group * 1000 + SLURM_ARRAY_TASK_ID))\" "
	"--store \"$PWD/$part.db\" \"$@\"\n"
	"status=$?\n"
	"echo \"$status $place\" >\"$part.new\" && mv \"$part.new\" \"$part.end\"\n"
	"exit $status\n";

int jm_jobs_write_script(const char *folder, struct jm_err *err)
{
	char path[PATH_MAX + 16];

	snprintf(path, sizeof(path), "%s/job.sh", folder);
	return jm_output_text(path, script, err);
}

void jm_job_path(
	const char *folder, const char *key, int job, const char *suffix, char *out, size_t size)
{
	snprintf(out, size, "%s/%s.%d.%d%s", folder, key, job / JM_SLURM_GROUP,
		job % JM_SLURM_GROUP, suffix);
}

/* "HOST JOB" */
static void take_place(const char *text, struct jm_job *j)
{
	if (sscanf(text, "%63s %31s", j->host, j->name) < 1)
		*j->host = '\0';
	jm_text_tame(j->host);
	jm_text_tame(j->name);
}

static bool read_line(const char *folder, const char *name, char *out, size_t size)
{
	char path[4096 + 300];
	FILE *f;
	bool read;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "re");
	read = f && fgets(out, (int)size, f);
	if (f)
		fclose(f);
	return read;
}

/* What was submitted and has neither begun nor is in the queue any more. */
static void take_sent(const char *line, int group, struct jm_job *jobs, int n)
{
	long array;
	int sent, first = group * JM_SLURM_GROUP;

	if (sscanf(line, "%ld %d", &array, &sent) != 2)
		return;
	for (int i = first; i < first + JM_SLURM_GROUP && i < sent && i < n; i++)
		if (!*jobs[i].host) {
			jobs[i].sent = true;
			snprintf(jobs[i].name, sizeof(jobs[i].name), "%ld_%d", array, i - first);
		}
}

/* What one file of the folder says of a job of this run; its name is that of the key and this
 * rest. */
static void take_file(const char *folder, const char *name, const char *rest, struct jm_job *jobs,
	int n, bool *stored)
{
	int group = 0, index = 0, end = 0, at = 0, job;
	char line[256] = "";

	if (sscanf(rest, ".%6d.%3d%n", &group, &index, &end) != 2)
		end = 0;
	job = group * JM_SLURM_GROUP + index;
	if (group < 0 || index < 0 || job >= n)
		return;
	if (!end) {
		sscanf(rest, ".%6d.sent%n", &group, &end);
		if (end && !rest[end] && read_line(folder, name, line, sizeof(line)))
			take_sent(line, group, jobs, n);
	} else if (!strcmp(rest + end, ".db")) {
		stored[job] = true;
	} else if (!strcmp(rest + end, ".start") && !jobs[job].ended) {
		if (read_line(folder, name, line, sizeof(line)))
			take_place(line, &jobs[job]);
	} else if (!strcmp(rest + end, ".end") && read_line(folder, name, line, sizeof(line)) &&
		   sscanf(line, "%d %n", &jobs[job].status, &at) == 1 && at) {
		jobs[job].ended = true;
		take_place(line + at, &jobs[job]);
	}
}

static int read_folder(
	const char *folder, const char *key, struct jm_job *jobs, int n, struct jm_err *err)
{
	bool *stored = calloc((size_t)n + 1, sizeof(*stored));
	DIR *dir = opendir(folder);
	const struct dirent *entry;

	if (!dir || !stored) {
		free(stored);
		if (dir)
			closedir(dir);
		return jm_err_set(err, JM_EIO, "Cannot list the folder %s: %s.", folder,
			strerror(dir ? ENOMEM : errno));
	}
	while ((entry = readdir(dir)))
		if (!strncmp(entry->d_name, key, strlen(key)))
			take_file(folder, entry->d_name, entry->d_name + strlen(key), jobs, n,
				stored);
	for (int i = 0; i < n; i++) {
		struct jm_job *j = &jobs[i];

		if (j->ended && (j->status == 0 || j->status == 1) && stored[i])
			j->state = JM_JOB_DONE;
		else if (*j->host || j->sent)
			j->state = JM_JOB_BROKE;
	}
	closedir(dir);
	free(stored);
	return 0;
}

static void take_queued(const struct jm_slurm_job *q, struct jm_job *j)
{
	j->array = q->array;
	if (j->state == JM_JOB_DONE)
		return;
	j->state = strcmp(q->state, "PENDING") != 0 ? JM_JOB_RUNS : JM_JOB_WAITS;
	snprintf(j->why, sizeof(j->why), "%s", q->reason);
	if (j->state == JM_JOB_RUNS)
		snprintf(j->host, sizeof(j->host), "%s", q->node);
	snprintf(j->name, sizeof(j->name), "%ld_%d", q->array, q->index);
}

int jm_jobs_note_sent(
	const char *folder, const char *key, int group, long array, int n, struct jm_err *err)
{
	char path[4096 + 300], text[64];

	snprintf(path, sizeof(path), "%s/%s.%d.sent", folder, key, group);
	snprintf(text, sizeof(text), "%ld %d\n", array, n);
	return jm_output_text(path, text, err);
}

int jm_jobs_read(const char *folder, const char *folder_id, const char *key,
	const struct jm_slurm_queue *q, struct jm_job *jobs, int n, struct jm_err *err)
{
	int rc;

	memset(jobs, 0, (size_t)n * sizeof(*jobs));
	rc = read_folder(folder, key, jobs, n, err);
	for (int i = 0; i < q->n && !rc; i++) {
		const struct jm_slurm_job *one = &q->job[i];
		int job = one->group * JM_SLURM_GROUP + one->index;

		if (one->index >= 0 && job < n && !strcmp(one->folder, folder_id) &&
			!strcmp(one->key, key))
			take_queued(one, &jobs[job]);
	}
	return rc;
}

/* ---- why a job broke ---- */

/* The last line with one of these words. */
static bool line_with(const char *text, const char *word, char *out, size_t size)
{
	const char *found = NULL;

	for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
		found = at;
	if (found)
		snprintf(out, size, "%.*s", (int)strcspn(found, "\n"), found);
	return found != NULL;
}

static bool read_tail(const char *path, char out[TAIL + 1])
{
	FILE *f = fopen(path, "re");
	size_t n;

	if (!f)
		return false;
	if (fseek(f, -TAIL, SEEK_END))
		rewind(f);
	n = fread(out, 1, TAIL, f);
	fclose(f);
	for (size_t i = 0; i < n; i++) /* one text */
		if (!out[i])
			out[i] = '?';
	out[n] = '\0';
	return n > 0;
}

void jm_job_why(const char *folder, const char *key, int job, const struct jm_job *j, char *out,
	size_t size)
{
	char path[4096 + 300], text[TAIL + 1], line[400] = "";

	jm_job_path(folder, key, job, ".log", path, sizeof(path));
	if (read_tail(path, text) && (line_with(text, "joulemark: ", line, sizeof(line)) ||
					     line_with(text, "CANCELLED AT", line, sizeof(line))))
		jm_text_tame(line);
	if (j->ended && (j->status == NOT_FOUND || j->status == NOT_EXECUTABLE))
		snprintf(out, size,
			"there is no joulemark that can be executed at the path given by "
			"--program; "
			"see %s.",
			path);
	else if (j->ended)
		snprintf(out, size, "it ended with status %d: %s", j->status,
			*line ? line : "it printed no reason.");
	else if (!*j->host)
		snprintf(out, size,
			"it never began: it was cancelled while it waited, or Slurm could not "
			"start "
			"it; the log of slurmctld has the reason.");
	else
		snprintf(out, size,
			"it was cancelled, reached its time limit, or was lost with its host%s%s%s",
			*line ? " (" : "", line, *line ? ")." : ".");
}
