/* SPDX-License-Identifier: Apache-2.0 */
/* `run`: a workload or a command, once or as a sweep, measured, kept and reported. */
#include "run_parts.h"
#include "hold.h"

#include "base/output.h"
#include "base/state_folder.h"
#include "interrupts.h"
#include "report/report.h"
#include "run/case_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXIT_CASE_FAILED 1
#define EXIT_NOT_FOUND	 127 /* the command, as of a shell */

struct run_command {
	struct jm_cli *cli;
	struct jm_store *store;
	struct jm_guard *guard;
	json_t *request, *records;
	struct jm_plan plan;
	int cancel_fd;
	char controls[512]; /* see jm_run_controls */
	bool new_store;	    /* made by this call, and no plan is in it yet */
};

/* Each signal wakes the loop. */
static int catch_signals(struct run_command *r)
{
	signal(SIGXFSZ, SIG_IGN);
	return jm_catch_interrupts(&r->cli->ctx, &r->cancel_fd, &r->cli->err);
}

/* ---- files ---- */

/* What root makes for the user who called sudo belongs to that user. */
static void give_to_caller(const char *path)
{
	struct stat st;
	uid_t uid;
	gid_t gid;

	if (!jm_sudo_caller(&uid, &gid) || stat(path, &st) || st.st_uid)
		return;
	if (chown(path, uid, gid))
		return; /* it stays root's, which is no reason to stop */
}

static const char *text_of(const struct run_command *r, const char *name)
{
	return jm_values_text(&r->cli->values, name);
}

static bool flag(const struct run_command *r, const char *name)
{
	return jm_values_number(&r->cli->values, name) > 0;
}

static bool json_on_stdout(const struct run_command *r)
{
	const char *path = text_of(r, "json");

	return path && !strcmp(path, "-");
}

static int write_json(struct run_command *r)
{
	const char *path = text_of(r, "json");
	bool single = r->plan.n * r->plan.repeat == 1;
	const json_t *value = single ? json_array_get(r->records, 0) : r->records;
	int rc;

	if (!path || !value)
		return 0;
	rc = jm_output_json(path, value, &r->cli->err);
	if (!rc && !json_on_stdout(r))
		give_to_caller(path);
	return rc;
}

/* Before a store is opened, so that wrong usage does not create one. */
static int check_files(struct run_command *r)
{
	const char *store = text_of(r, "store"), *json = text_of(r, "json");

	if (!store && (flag(r, "resume") || flag(r, "retry")))
		return jm_err_set(&r->cli->err, JM_EUSAGE,
			"--%s continues the plan of a store; name the store with --store FILE.",
			flag(r, "resume") ? "resume" : "retry");
	if (!store)
		return 0;
	if (json && !strcmp(store, json))
		return jm_err_set(&r->cli->err, JM_EUSAGE,
			"--store and --json name the same file, %s; give each its own file.",
			store);
	if (flag(r, "resume") && access(store, F_OK))
		return jm_err_set(&r->cli->err, JM_ENOENT,
			"There is no store '%s' to continue: %s.", store, strerror(errno));
	return flag(r, "resume") ? jm_run_check_resume(r->cli) : 0;
}

static int open_store(struct run_command *r)
{
	const char *path = text_of(r, "store");
	int rc;

	if (!path)
		return 0;
	r->new_store = access(path, F_OK) != 0;
	rc = jm_store_open(path, JM_STORE_WRITE, &r->store, &r->cli->err);
	if (!rc)
		give_to_caller(path);
	return rc;
}

/* ---- the plan ---- */

static int start_guard(struct run_command *r)
{
	return jm_guard_start(&r->cli->ctx,
		jm_run_controls(r->cli, r->request, r->controls, sizeof(r->controls)), &r->guard,
		&r->cli->err);
}

/* What an earlier call found and drew stays as it was, or the cases would not be the same. */
static int take_over(struct run_command *r, const json_t *stored)
{
	const json_t *seed = json_object_get(stored, "seed"),
		     *found = json_object_get(stored, "found");
	const struct jm_value *asked = jm_values_get(&r->cli->values, "seed");

	if (asked->given && (json_int_t)asked->number != json_integer_value(seed))
		return jm_err_set(&r->cli->err, JM_EUSAGE,
			"The store '%s' holds this plan with --seed %lld; omit --seed, or give "
			"another file to --store.",
			jm_store_path(r->store), (long long)json_integer_value(seed));
	json_object_set(r->request, "seed", (json_t *)(uintptr_t)seed);
	json_object_set(r->request, "found", (json_t *)(uintptr_t)found);
	return 0;
}

static int check_stored(struct run_command *r, const json_t *plan)
{
	char what[PATH_MAX + 32];

	snprintf(what, sizeof(what), "the plan in the store '%s'", jm_store_path(r->store));
	return jm_plan_check(plan, what, &r->cli->err);
}

static int look_for_stored(struct run_command *r, bool *ret_stored)
{
	struct jm_err none = JM_ERR_INIT;
	char key[JM_CASE_ID];
	json_t *stored;
	int rc = jm_json_hash(json_object_get(r->request, "what"), key, &r->cli->err);

	*ret_stored = false;
	if (rc || !r->store)
		return rc;
	rc = jm_store_plan(r->store, key, &stored, &none);
	if (rc == JM_ENOENT)
		return 0;
	if (rc)
		return jm_err_set(&r->cli->err, rc, "%s", none.text);
	rc = check_stored(r, stored);
	if (!rc)
		rc = take_over(r, stored);
	json_decref(stored);
	*ret_stored = true;
	return rc;
}

/* A guard that is killed meanwhile has changed nothing: another one looks again. */
static int find_found(struct run_command *r)
{
	const json_t *what = json_object_get(r->request, "what");
	struct jm_err *err = &r->cli->err;
	json_t *found;
	int rc = jm_run_found(&r->cli->ctx, r->guard, what, &found, err);

	for (int i = 0; i < 3 && rc == JM_EGONE && r->guard && !jm_guard_alive(r->guard); i++) {
		jm_guard_stop(r->guard, NULL);
		r->guard = NULL;
		*err = (struct jm_err)JM_ERR_INIT;
		rc = start_guard(r);
		if (!rc)
			rc = jm_run_found(&r->cli->ctx, r->guard, what, &found, err);
	}
	if (!rc)
		json_object_set_new(r->request, "found", found);
	return rc;
}

static int request_from_arguments(struct run_command *r)
{
	bool stored, set = jm_values_get(&r->cli->values, "set")->n_texts > 0;
	int rc = 0;

	if (set)
		rc = start_guard(r);
	if (!rc && set)
		rc = jm_run_request_settings(r->cli, jm_guard_knobs(r->guard), r->request);
	if (!rc)
		rc = look_for_stored(r, &stored);
	if (!rc && set && !stored)
		rc = find_found(r);
	return rc;
}

static bool has_settings(const struct run_command *r)
{
	const json_t *what = json_object_get(r->request, "what");

	return json_array_size(json_object_get(what, "settings")) > 0;
}

static int request_from_store(struct run_command *r)
{
	const struct jm_value *repeat = jm_values_get(&r->cli->values, "repeat");
	int rc = jm_store_last_plan(r->store, &r->request, &r->cli->err);

	if (!rc)
		rc = check_stored(r, r->request);
	if (rc)
		return rc;
	if (repeat->given)
		json_object_set_new(r->request, "repeat", json_integer((json_int_t)repeat->number));
	if (has_settings(r))
		rc = start_guard(r);
	return rc;
}

static int make_plan(struct run_command *r)
{
	struct jm_err lost = JM_ERR_INIT;
	int recovered, lost_rc = jm_guard_recover(&r->cli->ctx, &recovered, &lost), rc;

	if (!lost_rc && recovered)
		jm_log(&r->cli->ctx, JM_INFO, "Restored %d settings of a run that was killed.",
			recovered);
	jm_case_keeper_recover(&r->cli->ctx, true); /* two of a case must not run at once */
	rc = flag(r, "resume") ? request_from_store(r) : request_from_arguments(r);
	if (!rc && lost_rc && has_settings(r)) /* else the warning is enough */
		rc = jm_err_set(&r->cli->err, lost_rc, "%s", lost.text);
	return rc ? rc : jm_plan_new(r->request, &r->plan, &r->cli->err);
}

/* ---- the run ---- */

static int run_plan(struct run_command *r)
{
	bool alone = r->plan.n * r->plan.repeat == 1;
	double width = jm_values_number(&r->cli->common, "width");
	struct jm_run_show show;
	struct jm_run_options o = {
		.plan = &r->plan,
		.store = r->store,
		.controls = jm_run_controls(r->cli, r->request, r->controls, sizeof(r->controls)),
		.retry = flag(r, "retry"),
		.fail_fast = flag(r, "fail-fast"),
		.cancel_fd = r->cancel_fd,
		.out_fd = alone && !json_on_stdout(r) ? STDOUT_FILENO : -1,
		.echo = alone || flag(r, "show-output"),
		.event = jm_run_show_event,
		.event_arg = &show,
	};
	int rc;

	if (o.out_fd < 0 && flag(r, "show-output"))
		o.out_fd = STDERR_FILENO;
	jm_run_show_init(
		&show, &r->cli->ctx, &r->plan, isnan(width) ? 0 : (int)width, r->cli->quiet);
	rc = jm_run_plan(&r->cli->ctx, &o, &r->guard, r->records, &r->cli->err);
	jm_run_show_done(&show);
	return rc;
}

static int count_failed(const struct run_command *r)
{
	const json_t *record;
	size_t i;
	int n = 0;

	json_array_foreach(r->records, i, record)
	{
		const char *status = json_string_value(json_object_get(record, "status"));

		n += !status || strcmp(status, "ok") != 0;
	}
	return n;
}

/* Has a device failed, rather than the work? A command's own status may be any number. */
static bool device_failed(const struct run_command *r)
{
	const json_t *record;
	size_t i;

	json_array_foreach(r->records, i, record)
	{
		if (!json_is_array(json_object_get(record, "command")) &&
			json_integer_value(json_object_get(record, "exit_status")) ==
				JM_EXIT_FAILURE)
			return true;
	}
	return false;
}

static void print_table(struct run_command *r)
{
	struct jm_err err = JM_ERR_INIT;
	const struct jm_cli *cli = r->cli;
	FILE *out = json_on_stdout(r) && !cli->output ? stderr : cli->out;
	const struct jm_report_options o = {.width = cli->width,
		.bold = cli->colour && out == stdout,
		.columns = text_of(r, "columns")};
	char *text = NULL;

	if (!json_array_size(r->records))
		return;
	if (jm_report_render(r->records, JM_REPORT_TABLE, &o, &text, &err))
		fprintf(stderr, "joulemark: The table cannot be printed: %s\n", err.text);
	else
		fprintf(out, "%s%s", cli->output ? "" : "\n", text);
	jm_run_print_profiles(out, r->records, cli->width);
	fflush(out);
	free(text);
}

/* One word of a shell. */
static void quote(const char *word, char *out, size_t size)
{
	bool plain = *word && !word[strspn(word, "abcdefghijklmnopqrstuvwxyz"
						 "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+:@%-")];
	size_t n = 0;

	if (plain) {
		snprintf(out, size, "%s", word);
		return;
	}
	for (out[n++] = '\''; *word && n + 12 < size; word++) {
		unsigned char c = (unsigned char)*word;

		if (c < ' ' || c == 0x7f) /* which a terminal would obey */
			n += (size_t)snprintf(out + n, size - n, "'$'\\%03o''", (unsigned int)c);
		else
			n += (size_t)snprintf(out + n, size - n, c == '\'' ? "'\\''" : "%c", c);
	}
	snprintf(out + n, size - n, "'");
}

static void print_next(const struct run_command *r, int failed, bool whole)
{
	char store[PATH_MAX];

	if (r->cli->quiet)
		return;
	if (!text_of(r, "store")) {
		if (r->plan.n * r->plan.repeat > 1)
			fprintf(stderr,
				"\nThe records were not stored; --store FILE stores them.\n");
		return;
	}
	quote(text_of(r, "store"), store, sizeof(store));
	fprintf(stderr, "\nNext:\n");
	if (!whole)
		fprintf(stderr, "  joulemark run --store %s --resume          # the rest\n", store);
	if (failed)
		fprintf(stderr, "  joulemark run --store %s --resume --retry  # %d failed\n", store,
			failed);
	fprintf(stderr, "  joulemark report %s --html report.html\n", store);
}

static int finish(struct run_command *r, int rc)
{
	bool whole = json_array_size(r->records) == (size_t)r->plan.n * (size_t)r->plan.repeat;
	struct jm_err first = r->cli->err;
	int failed = count_failed(r), status = failed ? EXIT_CASE_FAILED : 0;

	if (device_failed(r))
		status = JM_EXIT_FAILURE;
	if (rc == JM_EINTR)
		status = 128 + jm_last_interrupt();
	else if (rc == JM_ECHILD && failed) /* --fail-fast */
		fprintf(stderr, "joulemark: %s\n", first.text);
	else if (rc)
		status = jm_cli_fail(r->cli);
	r->cli->err = (struct jm_err)JM_ERR_INIT;
	if (write_json(r))
		status = jm_cli_fail(r->cli);
	print_table(r);
	print_next(r, failed, whole);
	return status;
}

/* Each case must read the same, so that a command's standard input is empty; who gave some expects it to
 * arrive. */
static void say_input(const struct run_command *r)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	struct stat st;

	if (!r->cli->command || fstat(STDIN_FILENO, &st))
		return;
	if (S_ISREG(st.st_mode) ||
		(S_ISFIFO(st.st_mode) && poll(&in, 1, 0) > 0 && in.revents & POLLIN))
		jm_log(&r->cli->ctx, JM_WARNING,
			"The standard input of 'run' is not passed on: that of its command is "
			"empty (/dev/null), so that each case reads the same. Let the command open "
			"its file: run -- sh -c 'COMMAND < FILE'.");
}

static int run_all(struct run_command *r)
{
	int rc = catch_signals(r);

	if (!rc)
		say_input(r);

	if (!rc && jm_hold_check(r->cli->command, &r->cli->err)) {
		jm_cli_fail(r->cli);
		return EXIT_NOT_FOUND;
	}
	/* wrong usage must leave no files behind */
	if (!rc && !flag(r, "resume")) {
		r->request = jm_run_request(r->cli);
		rc = r->request ? 0 : r->cli->err.code;
	}
	if (!rc)
		rc = check_files(r);
	if (!rc)
		rc = open_store(r);
	if (!rc && text_of(r, "json"))
		rc = jm_output_try(text_of(r, "json"), &r->cli->err);
	if (!rc)
		rc = make_plan(r);
	if (rc)
		return jm_cli_fail(r->cli);
	r->new_store = false;
	return finish(r, run_plan(r));
}

static int run_run(struct jm_cli *cli)
{
	struct run_command r = {.cli = cli, .records = json_array(), .cancel_fd = -1};
	struct jm_err err = JM_ERR_INIT;
	int status = run_all(&r);

	if (jm_guard_stop(r.guard, &err)) {
		fprintf(stderr, "joulemark: %s\n", err.text);
		status = status ? status : JM_EXIT_FAILURE;
	}
	err = (struct jm_err)JM_ERR_INIT;
	if (jm_store_close(r.store, &err)) {
		fprintf(stderr, "joulemark: %s\n", err.text);
		status = status ? status : JM_EXIT_FAILURE;
	}
	if (r.new_store) /* a call that was refused leaves nothing behind */
		unlink(text_of(&r, "store"));
	jm_plan_done(&r.plan);
	json_decref(r.request);
	json_decref(r.records);
	return status;
}

const struct jm_command jm_command_run = {
	.name = "run",
	.summary = "run a workload or a command, or sweep settings, with power measured",
	.usage = "[options] WORKLOAD [workload's options] | [options] [--] CMD...",
	.description =
		"Runs a workload (see 'joulemark list') or a command, measures power in phases, "
		"and prints a table. Each case runs in its own process. --set sweeps knobs; an "
		"option of the workload that is given as a list (--batch 4,8) is swept as well. "
		"The cases run in complete blocks (--repeat) in random order; each block holds the "
		"reference. Settings are restored to the values that were found, even after a "
		"kill.\n\nWith --store the same command continues after an interruption: finished "
		"cases are not repeated, failed cases are repeated with --retry.\n\nA command "
		"reports its items by marks ('joulemark mark'), --items-regex or --items-json. Its "
		"standard input is empty (/dev/null) in every case. It "
		"begins with the first word that is no option and no workload; '--' may stand "
		"before it.\n\nExit status: 0 when all cases succeeded, 1 when a case failed (its "
		"record holds the reason), 127 when the command was not found, 130 after Ctrl-C, 2 "
		"for wrong usage, 125 for a failure of joulemark itself or of a device: it is "
		"absent, "
		"unfit, was lost, or computes wrongly (the other cases run nevertheless).",
	.example = "joulemark run sim --device sim:h100x4 --set gpu.power=200:700+100W --repeat 3 "
		   "--store h100.db\n"
		   "joulemark run --set gpu.power=300W,400W --repeat 5 --store mine.db -- python3 "
		   "train.py",
	.options = jm_run_options,
	.max_args = 1,
	.takes_command = true,
	.begins_command = jm_run_begins_command,
	.takes_extra = true,
	.help_of = jm_help_workload,
	.run = run_run,
};
