/* SPDX-License-Identifier: Apache-2.0 */
#include "submit_jobs.h"
#include "store/store_merge.h"
#include "base/printable.h"
#include "run_settings.h"
#include "run_words.h"
#include "store/store.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_JOBS 1000000
#define WORDS	  24 /* for sbatch, besides those of --sbatch */

static int no_memory(struct jm_submit_call *c)
{
	return jm_err_set(&c->r.cli->err, JM_ENOMEM, "Out of memory for the jobs.");
}

/* ---- the runs ---- */

static int check_run(struct jm_submit_call *c, const struct jm_planned *p)
{
	if (json_number_value(
		    json_object_get(json_object_get(p->request, "how"), "until_interval")) > 0)
		return jm_err_set(&c->r.cli->err, JM_EUSAGE,
			"The run '%s' repeats until its intervals are narrow (until-interval), "
			"which "
			"is known only where all repeats are; give it 'repeat' instead.",
			p->run->name);
	if (c->given.parts > 1 && jm_run_request_sets(p->request, "set"))
		return jm_err_set(&c->r.cli->err, JM_EUSAGE,
			"--parts %d divides the blocks of the run '%s', whose settings are "
			"compared "
			"with the reference of their block on one machine; omit --parts, or submit "
			"that run alone (--tag).",
			c->given.parts, p->run->name);
	return 0;
}

static int init_run(struct jm_submit_call *c, const struct jm_planned *p, struct jm_submitted *s)
{
	int rc = check_run(c, p);

	s->planned = p;
	if (!rc)
		rc = jm_json_hash(json_object_get(p->request, "what"), s->key, &c->r.cli->err);
	if (rc)
		return rc;
	s->now.request = json_deep_copy(p->request);
	s->now.work_folder = getcwd(NULL, 0);
	s->now.parts = c->given.parts;
	return s->now.request && s->now.work_folder ? 0 : no_memory(c);
}

int jm_submit_init(struct jm_submit_call *c)
{
	int rc = 0;

	c->run = calloc((size_t)c->r.n + 1, sizeof(*c->run));
	if (!c->run)
		return no_memory(c);
	for (int i = 0; i < c->r.n && !rc; i++)
		rc = init_run(c, &c->r.planned[i], &c->run[i]);
	return rc;
}

void jm_submit_done(struct jm_submit_call *c)
{
	for (int i = 0; c->run && i < c->r.n; i++) {
		jm_submission_done(&c->run[i].now);
		free(c->run[i].jobs);
	}
	free(c->run);
	jm_slurm_queue_done(&c->queue);
}

static void file_of(const struct jm_submit_call *c, const struct jm_submitted *s, char *out)
{
	snprintf(out, PATH_MAX + 64, "%s/%s.json", c->folder, s->key);
}

bool jm_submit_was_there(const struct jm_submit_call *c)
{
	char path[PATH_MAX + 64];

	for (int i = 0; i < c->r.n; i++) {
		file_of(c, &c->run[i], path);
		if (!access(path, F_OK))
			return true;
	}
	return false;
}

/* As before, where the run was submitted and --parts is not given. */
static int parts_of(const struct jm_submit_call *c, const struct jm_submitted *s)
{
	struct jm_err none = JM_ERR_INIT;
	struct jm_submission was = {0};
	char path[PATH_MAX + 64];
	int parts = c->given.parts;

	file_of(c, s, path);
	if (!parts && !jm_submission_read(path, &was, &none))
		parts = was.parts;
	jm_submission_done(&was);
	if (parts > s->planned->plan.n)
		parts = s->planned->plan.n;
	return parts > 1 ? parts : 1;
}

static int look_at(struct jm_submit_call *c, struct jm_submitted *s)
{
	int64_t n;

	s->now.parts = parts_of(c, s);
	n = (int64_t)s->planned->plan.repeat * s->now.parts;
	if (n > MOST_JOBS)
		return jm_err_set(&c->r.cli->err, JM_ERANGE,
			"The run '%s' would have %lld jobs, more than %d; give fewer --parts.",
			s->planned->run->name, (long long)n, MOST_JOBS);
	s->n = (int)n;
	free(s->jobs);
	s->jobs = calloc((size_t)s->n, sizeof(*s->jobs));
	if (!s->jobs)
		return no_memory(c);
	if (access(c->folder, F_OK))
		return 0;
	return jm_jobs_read(c->folder, c->id, s->key, &c->queue, s->jobs, s->n, &c->r.cli->err);
}

static bool has_failed(const struct jm_submitted *s)
{
	bool failed = s->omitted != NULL;

	for (int i = 0; i < s->n && !failed; i++)
		failed = s->jobs[i].state == JM_JOB_DONE && s->jobs[i].status;
	return failed;
}

/* The runs that a run comes after stand before it in the plan. */
static void look_before(struct jm_submit_call *c, struct jm_submitted *s)
{
	const struct jm_plan_run *run = s->planned->run;

	s->omitted = NULL;
	for (int k = 0; k < run->n_after; k++)
		for (int i = 0; i < c->r.n; i++)
			if (c->run[i].planned->place == run->after[k] && has_failed(&c->run[i]))
				s->omitted = &c->run[i];
}

int jm_submit_look(struct jm_submit_call *c)
{
	int rc = 0;

	for (int i = 0; i < c->r.n && !rc; i++)
		rc = look_at(c, &c->run[i]);
	for (int i = 0; i < c->r.n && !rc; i++)
		look_before(c, &c->run[i]);
	return rc;
}

/* ---- what was submitted before ---- */

static int queued(const struct jm_submit_call *c, const struct jm_submitted *s)
{
	int n = 0;

	for (int i = 0; i < c->queue.n; i++)
		n += !strcmp(c->queue.job[i].folder, c->id) && !strcmp(c->queue.job[i].key, s->key);
	return n;
}

/* Jobs in the queue read the file when they begin, so it must not change under them. */
static int check_change(
	struct jm_submit_call *c, const struct jm_submitted *s, const struct jm_submission *was)
{
	const char *name = s->planned->run->name;
	int n = queued(c, s);

	if (was->parts != s->now.parts)
		return jm_err_set(&c->r.cli->err, JM_EUSAGE,
			"The run '%s' was submitted with --parts %d, so that other jobs have other "
			"cases; give --parts %d, or another --store.",
			name, was->parts, was->parts);
	if (!json_equal(
		    json_object_get(was->request, "seed"), json_object_get(s->now.request, "seed")))
		return jm_err_set(&c->r.cli->err, JM_EUSAGE,
			"The run '%s' was submitted with the seed %lld; give that seed, or another "
			"--store.",
			name, (long long)json_integer_value(json_object_get(was->request, "seed")));
	if (!n)
		return 0;
	return jm_err_set(&c->r.cli->err, JM_EBUSY,
		"The run '%s' has changed since it was submitted, and %d of its jobs wait or run, "
		"with the plan as it was. Wait until they have ended, or cancel them with "
		"--cancel, and submit it again.",
		name, n);
}

static int write_file(struct jm_submit_call *c, const struct jm_submitted *s)
{
	struct jm_err none = JM_ERR_INIT;
	struct jm_submission was = {0};
	char path[PATH_MAX + 64];
	int rc = 0;
	bool same = false;

	file_of(c, s, path);
	/* one that is damaged or of another version is replaced */
	if (!jm_submission_read(path, &was, &none)) {
		same = jm_submission_same(&was, &s->now);
		rc = same ? 0 : check_change(c, s, &was);
	}
	if (!rc && !same)
		rc = jm_submission_write(path, &s->now, &c->r.cli->err);
	jm_submission_done(&was);
	return rc;
}

/* ---- sbatch ---- */

static bool is_missing(const struct jm_job *j)
{
	return !j->array && j->state != JM_JOB_DONE;
}

/* "0-3,7" of the group; "" = none is missing. For the caller to free; NULL = out of memory. */
static char *missing_list(const struct jm_submitted *s, int group)
{
	int first = group * JM_SLURM_GROUP, begin = -1;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	for (int i = 0; i <= JM_SLURM_GROUP; i++) {
		bool missing =
			i < JM_SLURM_GROUP && first + i < s->n && is_missing(&s->jobs[first + i]);

		if (missing && begin < 0)
			begin = i;
		if (missing || begin < 0)
			continue;
		fprintf(out, "%s%d", ftell(out) ? "," : "", begin);
		if (i - 1 > begin)
			fprintf(out, "-%d", i - 1);
		begin = -1;
	}
	fclose(out);
	return text;
}

/* Its arrays that wait or run, each after ":". */
static void add_arrays(const struct jm_submitted *s, FILE *out)
{
	long last = 0;

	for (int i = 0; i < s->n; i++) {
		const struct jm_job *j = &s->jobs[i];

		if (j->state == JM_JOB_DONE || !j->array || j->array == last)
			continue;
		last = j->array;
		fprintf(out, "%s:%ld", ftell(out) ? "" : "--dependency=afterok", last);
	}
}

/* "--dependency=afterok:17:18" of what the run comes after; "" = nothing of it is left. For the
 * caller to free. */
static int dependency(struct jm_submit_call *c, const struct jm_submitted *s, char **ret)
{
	size_t size;
	FILE *out = open_memstream(ret, &size);
	const struct jm_plan_run *run = s->planned->run;

	if (!out)
		return no_memory(c);
	for (int k = 0; k < run->n_after; k++)
		for (int i = 0; i < c->r.n; i++)
			if (c->run[i].planned->place == run->after[k])
				add_arrays(&c->run[i], out);
	fclose(out);
	return 0;
}

struct words {
	char *word[WORDS];
	int n;
};

static void add(struct words *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct words *w, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (w->n < WORDS && vasprintf(&w->word[w->n], format, args) >= 0)
		w->n++;
	va_end(args);
}

/* All but those of --sbatch, which come first, so that these hold where both say something. */
static void words_of(const struct jm_submit_call *c, const struct jm_submitted *s, int group,
	const char *list, const char *after, struct words *w)
{
	const struct jm_submit_given *g = &c->given;
	char name[JM_PLAN_NAME];

	snprintf(name, sizeof(name), "%s", s->planned->run->name);
	jm_text_tame(name);
	add(w, "--job-name=%s", name);
	if (g->at_once)
		add(w, "--array=%s%%%d", list, g->at_once);
	else
		add(w, "--array=%s", list);
	add(w, "--comment=joulemark:%s:%s:%d", c->id, s->key, group);
	add(w, "--chdir=%s", c->folder);
	add(w, "--output=%s.%d.%%a.log", s->key, group);
	add(w, "--open-mode=append");
	add(w, "--requeue");
	if (!isnan(g->time_limit))
		add(w, "--time=%.0f", ceil(g->time_limit / 60));
	if (g->nodes > 1)
		add(w, "--nodes=%d", g->nodes);
	if (g->nodes > 1 || g->tasks > 1)
		add(w, "--ntasks=%d", g->tasks > g->nodes ? g->tasks : g->nodes);
	if (*after) {
		add(w, "%s", after);
		add(w, "--kill-on-invalid-dep=yes");
	}
	add(w, "%s/job.sh", c->folder);
	add(w, "%s", c->program);
	add(w, "%s", s->key);
	add(w, "%d", group);
	if (g->nodes > 1 || g->tasks > 1)
		add(w, "--launcher=srun");
}

static void print_words(const struct jm_submit_call *c, char *const *words)
{
	char quoted[PATH_MAX * 2];
	json_t *call;

	if (c->calls) {
		call = json_pack("[s, s]", "sbatch", "--parsable");
		for (int i = 0; words[i]; i++)
			json_array_append_new(call, json_string(words[i]));
		json_array_append_new(c->calls, call);
		return;
	}
	fprintf(c->r.cli->out, "sbatch --parsable");
	for (int i = 0; words[i]; i++) {
		jm_run_quote(words[i], quoted, sizeof(quoted));
		fprintf(c->r.cli->out, " %s", quoted);
	}
	fputc('\n', c->r.cli->out);
}

static void note_submitted(struct jm_submitted *s, int group, long array)
{
	int first = group * JM_SLURM_GROUP;

	for (int i = first; i < first + JM_SLURM_GROUP && i < s->n; i++) {
		struct jm_job *j = &s->jobs[i];

		if (!is_missing(j))
			continue;
		*j = (struct jm_job){.state = JM_JOB_WAITS, .array = array};
		snprintf(j->name, sizeof(j->name), "%ld_%d", array, i - first);
	}
}

static int submit_group(struct jm_submit_call *c, struct jm_submitted *s, int group,
	const char *list, const char *after)
{
	struct words w = {.n = 0};
	int given = 0, rc = 0;
	char **all;
	long array = ++c->n_arrays;

	while (c->given.sbatch && c->given.sbatch[given])
		given++;
	words_of(c, s, group, list, after, &w);
	all = calloc((size_t)(given + w.n) + 1, sizeof(*all));
	if (!all) {
		rc = no_memory(c);
	} else {
		for (int i = 0; i < given; i++)
			all[i] = c->given.sbatch[i];
		memcpy(all + given, w.word, (size_t)w.n * sizeof(*all));
		if (c->given.dry_run)
			print_words(c, all);
		else
			rc = jm_slurm_submit(&c->r.cli->ctx, all, &array, &c->r.cli->err);
	}
	if (!rc)
		note_submitted(s, group, array);
	if (!rc && !c->given.dry_run)
		rc = jm_jobs_note_sent(c->folder, s->key, group, array, s->n, &c->r.cli->err);
	for (int i = 0; i < w.n; i++)
		free(w.word[i]);
	free(all);
	return rc;
}

static int submit_run(struct jm_submit_call *c, struct jm_submitted *s)
{
	char *after = NULL, *list;
	int rc = dependency(c, s, &after);

	if (!rc && !s->omitted && !c->given.dry_run)
		rc = write_file(c, s);
	for (int g = 0; g * JM_SLURM_GROUP < s->n && !rc && !s->omitted; g++) {
		list = missing_list(s, g);
		if (!list)
			rc = no_memory(c);
		else if (*list)
			rc = submit_group(c, s, g, list, after);
		free(list);
	}
	free(after);
	return rc;
}

int jm_submit_missing(struct jm_submit_call *c)
{
	int rc = c->given.dry_run ? 0 : jm_jobs_write_script(c->folder, &c->r.cli->err);

	for (int i = 0; i < c->r.n && !rc; i++)
		rc = submit_run(c, &c->run[i]);
	return rc;
}

/* ---- the stores ---- */

static int merge_job(struct jm_submit_call *c, const struct jm_submitted *s, int job,
	struct jm_store **to, int *ret_n)
{
	char path[PATH_MAX + 64];
	struct jm_err why = JM_ERR_INIT;
	struct jm_store *from;
	int there = 0, rc;

	jm_job_path(c->folder, s->key, job, ".db", path, sizeof(path));
	rc = jm_store_open(path, JM_STORE_READ, &from, &why);
	if (rc == JM_ENOENT) /* the job was killed before it had stored anything */
		return 0;
	if (rc)
		return jm_err_set(&c->r.cli->err, rc, "%s", why.text);
	if (!*to)
		rc = jm_store_open(c->given.store, JM_STORE_WRITE, to, &c->r.cli->err);
	if (!rc)
		rc = jm_store_merge(*to, from, ret_n, &there, &c->r.cli->err);
	jm_store_close(from, NULL);
	return rc;
}

int jm_submit_merge(struct jm_submit_call *c, int *ret_n)
{
	struct jm_store *to = NULL;
	int rc = 0, closed;

	*ret_n = 0;
	for (int i = 0; i < c->r.n; i++)
		for (int k = 0; k < c->run[i].n && !rc; k++) {
			const struct jm_job *j = &c->run[i].jobs[k];

			/* a job that runs may write to its store */
			if (!j->array && (j->state == JM_JOB_DONE || j->state == JM_JOB_BROKE))
				rc = merge_job(c, &c->run[i], k, &to, ret_n);
		}
	closed = jm_store_close(to, rc ? NULL : &c->r.cli->err);
	return rc ? rc : closed;
}
