/* SPDX-License-Identifier: Apache-2.0 */
/* submit: the cases of a plan as jobs of Slurm. */
#include "base/files/output.h"
#include "base/text/json.h"
#include "cli/frame/cli.h"
#include "cli/frame/json_option.h"
#include "plan_file_options.h"
#include "report/format/text.h"
#include "run_words.h"
#include "submit_jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define EXIT_INCOMPLETE 1
#define REASONS		10 /* jobs of a run whose reason is printed */

/* ---- the folder ---- */

/* An absolute name of the folder, also where it is not there yet: its id and that of a link to it
 * are the same. */
static int name_folder(struct jm_submit_call *c)
{
	const char *store = c->given.store, *slash = strrchr(store, '/');
	char above[PATH_MAX], real[PATH_MAX];
	json_t *name;
	int rc;

	snprintf(above, sizeof(above), "%.*s", slash ? (int)(slash - store) + 1 : 1,
		slash ? store : ".");
	if (!realpath(above, real))
		return jm_err_set(&c->r.cli->err, JM_ENOENT,
			"The folder of the store '%s' is not there: %s.", store, strerror(errno));
	if ((size_t)snprintf(c->folder, sizeof(c->folder), "%s/%s.jobs", real,
		    slash ? slash + 1 : store) >= sizeof(c->folder))
		return jm_err_set(&c->r.cli->err, JM_ERANGE, "The path of the store is too long.");
	if (strpbrk(c->folder, "%\\"))
		return jm_err_set(&c->r.cli->err, JM_EUSAGE,
			"The path of the store, %s, has a '%%' or a backslash, which Slurm "
			"replaces "
			"in the names of files; give another --store.",
			store);
	name = json_string(c->folder);
	if (!name)
		return jm_err_set(&c->r.cli->err, JM_EFORMAT,
			"The path of the store is no UTF-8 text; give another --store.");
	rc = jm_json_hash(name, c->id, &c->r.cli->err);
	json_decref(name);
	return rc;
}

static int name_program(struct jm_submit_call *c)
{
	ssize_t n;

	if (c->given.program) {
		snprintf(c->program, sizeof(c->program), "%s", c->given.program);
		return 0;
	}
	n = readlink("/proc/self/exe", c->program, sizeof(c->program) - 1);
	if (n <= 0)
		return jm_err_set(&c->r.cli->err, JM_EIO,
			"The path of this program cannot be read: %s; give --program.",
			strerror(errno));
	c->program[n] = '\0';
	return 0;
}

/* One call at a time may decide what is missing. Closing the descriptor ends it. */
static int lock_folder(struct jm_submit_call *c, int *ret_fd)
{
	char path[PATH_MAX + 8];
	int rc = jm_output_folder(c->folder, &c->r.cli->err);

	if (rc)
		return rc;
	snprintf(path, sizeof(path), "%s/lock", c->folder);
	*ret_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (*ret_fd < 0)
		return jm_err_set(
			&c->r.cli->err, JM_EIO, "Cannot open %s: %s.", path, strerror(errno));
	if (!flock(*ret_fd, LOCK_EX | LOCK_NB))
		return 0;
	rc = jm_err_set(&c->r.cli->err, JM_EBUSY,
		"Another 'joulemark submit' is submitting to %s; call this again when it has "
		"ended.",
		c->folder);
	close(*ret_fd);
	return rc;
}

/* ---- what is printed ---- */

struct counts {
	int done, failed, run, wait, broke, new;
};

static struct counts count(const struct jm_submitted *s)
{
	struct counts n = {0};

	for (int i = 0; i < s->n; i++) {
		const struct jm_job *j = &s->jobs[i];

		n.done += j->state == JM_JOB_DONE;
		n.failed += j->state == JM_JOB_DONE && j->status;
		n.run += j->state == JM_JOB_RUNS;
		n.wait += j->state == JM_JOB_WAITS;
		n.broke += j->state == JM_JOB_BROKE;
		n.new += j->state == JM_JOB_NEW;
	}
	return n;
}

static void append(char *out, size_t size, int n, const char *what)
{
	char part[64];

	snprintf(part, sizeof(part), "%d %s", n, what);
	if (n)
		jm_text_append(out, size, ", ", part);
}

static void print_broken(const struct jm_submit_call *c, const struct jm_submitted *s, int n)
{
	int printed = 0;

	for (int i = 0; i < s->n; i++) {
		const struct jm_job *j = &s->jobs[i];
		char why[700], line[900];

		if (j->state != JM_JOB_BROKE)
			continue;
		if (++printed > REASONS) {
			fprintf(c->r.cli->out, "    and %d more\n", n - REASONS);
			return;
		}
		jm_job_why(c->folder, s->key, i, j, why, sizeof(why));
		snprintf(line, sizeof(line), "job %s%s%s: %s", j->name, *j->host ? " on " : "",
			j->host, why);
		jm_text_wrap(c->r.cli->out, line, 4, 8, c->r.cli->width);
	}
}

/* A reason for which the first job waits that is not the usual one. */
static void print_waiting(const struct jm_submit_call *c, const struct jm_submitted *s)
{
	static const char *const usual[] = {
		"", "None", "Priority", "Resources", "Dependency", "JobArrayTaskLimit"};
	char line[300];

	for (int i = 0; i < s->n; i++) {
		bool plain = s->jobs[i].state != JM_JOB_WAITS;

		for (size_t k = 0; k < sizeof(usual) / sizeof(*usual); k++)
			plain = plain || !strcmp(s->jobs[i].why, usual[k]);
		if (plain)
			continue;
		snprintf(line, sizeof(line), "job %s waits: Slurm says '%s'", s->jobs[i].name,
			s->jobs[i].why);
		jm_text_wrap(c->r.cli->out, line, 4, 8, c->r.cli->width);
		return;
	}
}

static void print_run(const struct jm_submit_call *c, const struct jm_submitted *s)
{
	const struct jm_plan *plan = &s->planned->plan;
	struct counts n = count(s);
	char states[300] = "", line[600], name[JM_PLAN_NAME + 1];

	append(states, sizeof(states), n.done, "done");
	append(states, sizeof(states), n.failed, "of these with failed cases");
	append(states, sizeof(states), n.run, n.run == 1 ? "runs" : "run");
	append(states, sizeof(states), n.wait, n.wait == 1 ? "waits" : "wait");
	append(states, sizeof(states), n.broke, "not complete");
	append(states, sizeof(states), n.new, "not submitted");
	jm_text_format(name, sizeof(name), "%s", s->planned->run->name);
	snprintf(line, sizeof(line), "%s: %d case%s x %d repeat%s in %d job%s: %s", name, plan->n,
		plan->n == 1 ? "" : "s", plan->repeat, plan->repeat == 1 ? "" : "s", s->n,
		s->n == 1 ? "" : "s", states);
	jm_text_wrap(c->r.cli->out, line, 2, 4, c->r.cli->width);
	if (s->omitted) {
		snprintf(line, sizeof(line),
			"omitted, because the run '%.*s', which it comes after, did not succeed",
			JM_PLAN_NAME, s->omitted->planned->run->name);
		jm_text_wrap(c->r.cli->out, line, 4, 4, c->r.cli->width);
		return;
	}
	print_broken(c, s, n.broke);
	print_waiting(c, s);
}

static void print_next(const struct jm_submit_call *c)
{
	char plan[PATH_MAX], store[PATH_MAX];

	if (c->r.cli->quiet)
		return;
	jm_run_quote(c->r.cli->args[0], plan, sizeof(plan));
	jm_run_quote(c->given.store, store, sizeof(store));
	fprintf(stderr,
		"\nNext:\n  joulemark submit %s --store %s --status  # how far it is\n"
		"  joulemark submit %s --store %s           # with the same options: merges, and "
		"submits "
		"what is missing\n",
		plan, store, plan, store);
}

/* ---- as JSON ---- */

static json_t *broken_json(const struct jm_submit_call *c, const struct jm_submitted *s)
{
	json_t *list = json_array();

	for (int i = 0; i < s->n; i++) {
		const struct jm_job *j = &s->jobs[i];
		json_t *one = json_object();
		char why[700];

		if (j->state == JM_JOB_BROKE) {
			jm_job_why(c->folder, s->key, i, j, why, sizeof(why));
			jm_json_set_text(&one, "job", j->name);
			jm_json_set(&one, "host", jm_json_said(j->host));
			jm_json_set_text(&one, "reason", why);
			json_array_append(list, one);
		}
		json_decref(one);
	}
	return list;
}

static json_t *run_json(const struct jm_submit_call *c, const struct jm_submitted *s)
{
	const struct jm_plan *plan = &s->planned->plan;
	struct counts n = count(s);
	json_t *json = json_object();

	jm_json_set_text(&json, "name", s->planned->run->name);
	jm_json_set_int(&json, "cases", plan->n);
	jm_json_set_int(&json, "repeat", plan->repeat);
	jm_json_set_int(&json, "jobs", s->n);
	jm_json_set_int(&json, "done", n.done);
	jm_json_set_int(&json, "with_failed_cases", n.failed);
	jm_json_set_int(&json, "running", n.run);
	jm_json_set_int(&json, "waiting", n.wait);
	jm_json_set_int(&json, "not_complete", n.broke);
	jm_json_set_int(&json, "not_submitted", n.new);
	jm_json_set_text(
		&json, "omitted_after", s->omitted ? s->omitted->planned->run->name : NULL);
	jm_json_set(&json, "reasons", broken_json(c, s));
	return json;
}

static int put_json(const struct jm_submit_call *c)
{
	json_t *json = json_object(), *runs = json_array();

	for (int i = 0; i < c->r.n; i++)
		json_array_append_new(runs, run_json(c, &c->run[i]));
	jm_json_set_text(&json, "store", c->given.store);
	jm_json_set(&json, "runs", runs);
	return jm_json_put(c->r.cli, json);
}

static int put_one(const struct jm_submit_call *c, const char *key, json_t *value)
{
	json_t *json = json_object();

	jm_json_set(&json, key, value);
	return jm_json_put(c->r.cli, json);
}

/* ---- what a call does ---- */

static int show_all(const struct jm_submit_call *c)
{
	if (jm_json_wanted(c->r.cli))
		return put_json(c);
	for (int i = 0; i < c->r.n; i++)
		print_run(c, &c->run[i]);
	return 0;
}

/* Do jobs wait or run? */
static bool any_queued(const struct jm_submit_call *c)
{
	for (int i = 0; i < c->r.n; i++)
		for (int k = 0; k < c->run[i].n; k++)
			if (c->run[i].jobs[k].array)
				return true;
	return false;
}

static bool is_complete(const struct jm_submit_call *c)
{
	for (int i = 0; i < c->r.n; i++) {
		struct counts n = count(&c->run[i]);

		if (n.done < c->run[i].n || n.failed)
			return false;
	}
	return true;
}

static int ask_slurm(struct jm_submit_call *c, struct jm_err *err)
{
	jm_slurm_queue_done(&c->queue);
	return jm_slurm_queue_read(&c->r.cli->ctx, &c->queue, err);
}

static int merge(struct jm_submit_call *c)
{
	int n, rc = jm_submit_merge(c, &n);

	if (!rc && n && !c->r.cli->quiet)
		fprintf(stderr, "%s: %d record%s added.\n", c->given.store, n, n == 1 ? "" : "s");
	return rc;
}

/* Until none of the jobs is in the queue. A controller that does not answer is asked again. */
static int wait_for_jobs(struct jm_submit_call *c)
{
	bool told = false;
	int rc = 0, fd;

	while (!rc && any_queued(c)) {
		struct jm_err why = JM_ERR_INIT;

		if (!ask_slurm(c, &why)) {
			told = false;
			rc = jm_submit_look(c);
			continue;
		}
		if (!told)
			jm_log(&c->r.cli->ctx, JM_WARNING, "%s It is asked again.", why.text);
		told = true;
	}
	if (rc)
		return rc;
	rc = lock_folder(c, &fd);
	if (!rc) {
		rc = merge(c);
		close(fd);
	}
	return rc;
}

static int submit(struct jm_submit_call *c)
{
	int fd, rc = lock_folder(c, &fd);

	if (rc)
		return rc;
	if (jm_submit_was_there(c))
		rc = ask_slurm(c, &c->r.cli->err);
	if (!rc)
		rc = jm_submit_look(c);
	if (!rc)
		rc = merge(c);
	if (!rc)
		rc = jm_submit_missing(c);
	close(fd);
	if (!rc && c->given.wait)
		rc = wait_for_jobs(c);
	if (!rc)
		rc = show_all(c);
	if (rc)
		return rc;
	if (!is_complete(c) && !c->given.wait)
		print_next(c);
	return 0;
}

static int show_status(struct jm_submit_call *c)
{
	int rc = jm_submit_was_there(c) ? ask_slurm(c, &c->r.cli->err) : 0;

	if (!rc)
		rc = jm_submit_look(c);
	return rc ? rc : show_all(c);
}

static int cancel(struct jm_submit_call *c)
{
	int n, rc = ask_slurm(c, &c->r.cli->err);

	if (!rc)
		rc = jm_slurm_cancel(&c->r.cli->ctx, &c->queue, c->id, &n, &c->r.cli->err);
	if (!rc && jm_json_wanted(c->r.cli))
		return put_one(c, "cancelled", json_integer(n));
	if (!rc)
		fprintf(c->r.cli->out, "%d job%s cancelled.\n", n, n == 1 ? "" : "s");
	return rc;
}

static int list_commands(struct jm_submit_call *c)
{
	int rc = jm_submit_look(c);

	if (jm_json_wanted(c->r.cli))
		c->calls = json_array();
	if (!rc)
		rc = jm_submit_missing(c);
	if (!rc && c->calls)
		rc = put_one(c, "calls", json_incref(c->calls));
	json_decref(c->calls);
	return rc;
}

static int check_given(struct jm_submit_call *c)
{
	const struct jm_submit_given *g = &c->given;

	if (!jm_plan_is_file(c->r.cli->args[0]))
		return jm_err_set(&c->r.cli->err, JM_EUSAGE,
			"'submit' takes the name of a plan file, which ends in .yaml or .yml.");
	if (!g->store)
		return jm_err_set(&c->r.cli->err, JM_EUSAGE,
			"'submit' needs --store FILE, in which the records of all jobs are "
			"collected, on a file system that all nodes share.");
	if (g->wait + g->status + g->cancel + g->dry_run > 1)
		return jm_err_set(&c->r.cli->err, JM_EUSAGE,
			"--wait, --status, --cancel and --dry-run exclude each other; give one of "
			"them.");
	return 0;
}

static int serve(struct jm_submit_call *c)
{
	int rc = check_given(c);

	if (!rc)
		rc = name_folder(c);
	if (!rc && c->given.cancel)
		return cancel(c);
	if (!rc)
		rc = name_program(c);
	if (!rc)
		rc = jm_planned_read(&c->r);
	if (!rc)
		rc = jm_submit_init(c);
	if (!rc)
		rc = jm_planned_make(&c->r);
	if (rc)
		return rc;
	if (c->given.dry_run)
		return list_commands(c);
	return c->given.status ? show_status(c) : submit(c);
}

static int run_submit(struct jm_cli *cli)
{
	struct jm_submit_call c = {.r = {.cli = cli, .cancel_fd = -1, .given.dry_run = true}};
	int status = 0;

	JM_FILL(&cli->values, &c.given);
	c.r.given.plan = c.given.plan;
	cli->lacks = json_object();
	if (serve(&c))
		status = jm_cli_fail(cli);
	else if ((c.given.wait || c.given.status) && !is_complete(&c))
		status = EXIT_INCOMPLETE;
	jm_guard_stop(c.r.guard, NULL);
	jm_submit_done(&c);
	jm_planned_done(&c.r);
	json_decref(cli->lacks);
	cli->lacks = NULL;
	return status;
}

static const struct jm_option options[] = {
	{.name = "store",
		.usual = true,
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_TEXT, struct jm_submit_given, store),
		.argument = "FILE",
		.help = "collect the records of all jobs in this store; what the jobs read and "
			"write is in the folder FILE.jobs beside it, which all nodes must share"},
	{.name = "sbatch",
		.usual = true,
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_TEXT, struct jm_submit_given, sbatch),
		.argument = "OPTION",
		.repeat = true,
		.help = "one option for sbatch, as one word: --sbatch=--gres=gpu:4"},
	{.name = "parts",
		.usual = true,
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_INT, struct jm_submit_given, parts),
		.min = 1,
		.max = 100000,
		.help = "divide each block into so many jobs, 1 without it; cases of different "
			"jobs "
			"may run on different machines, which reports keep apart"},
	{.name = "time-limit",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_DURATION, struct jm_submit_given, time_limit),
		.unit = "s",
		.min = 60,
		.max = 1e8,
		.help = "longest time of a job, rounded up to minutes; without it that of the "
			"partition"},
	{.name = "at-once",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_INT, struct jm_submit_given, at_once),
		.min = 1,
		.max = 1000,
		.help = "run at most so many jobs of an array at the same time"},
	{.name = "nodes",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_INT, struct jm_submit_given, nodes),
		.min = 1,
		.max = 10000,
		.fallback = "1",
		.help = "nodes of a job, whose ranks srun starts (docs/hosts.md); each case has "
			"one "
			"record of all of them"},
	{.name = "tasks",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_INT, struct jm_submit_given, tasks),
		.min = 1,
		.max = 100000,
		.fallback = "1",
		.help = "tasks of a job, as many as the plan has --ranks; without it one for each "
			"node"},
	{.name = "program",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_TEXT, struct jm_submit_given, program),
		.argument = "PATH",
		.help = "joulemark on the nodes, of this version; without it the path of this one"},
	JM_PLAN_FILE_OPTIONS(struct jm_submit_given, plan, NULL, ""),
	{.name = "wait",
		.usual = true,
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_FLAG, struct jm_submit_given, wait),
		.help = "wait until all jobs have ended, and merge their records"},
	{.name = "status",
		.usual = true,
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_FLAG, struct jm_submit_given, status),
		.help = "only print how far the jobs are; submit nothing"},
	{.name = "cancel",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_FLAG, struct jm_submit_given, cancel),
		.help = "cancel the jobs of this store that wait or run"},
	{.name = "dry-run",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_FLAG, struct jm_submit_given, dry_run),
		.help = "print the calls of sbatch, and submit nothing"},
	{JM_JSON_ROW("print JSON, or write it to this file: the jobs of each run, with --dry-run "
		     "the words of each call, with --cancel how many were cancelled"),
		.use = JM_OPTION_OF_CALL, .type = JM_TEXT},
	{0},
};

const struct jm_command jm_command_submit = {
	.name = "submit",
	.summary = "run the cases of a plan file as jobs of Slurm",
	.usage = "[options] PLAN.yaml --store FILE",
	.description =
		"Submits each run of a plan as an array of jobs: one job for each block "
		"(--repeat), since the cases of a block are compared on one machine; --parts "
		"divides blocks further. Each job writes a store of its own and is put back into "
		"the queue when its node fails; it then goes on where it was. The jobs run the "
		"plan "
		"as it was when it was submitted. A run waits for those that it comes after "
		"('after').\n\nThe same command, called again, merges the records of the jobs that "
		"have ended into --store and submits what is missing; jobs that wait or run are "
		"not "
		"submitted twice. Slurm is asked by squeue, at most once in 10 s; accounting is "
		"not "
		"needed.\n\nExit status: 0; with --wait or --status 1 when a case failed or a job "
		"is not complete; 2 for wrong usage, 125 for a failure.",
	.example = "joulemark submit suites/capping-simulated.yaml --store caps.db --dry-run",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.run = run_submit,
};
