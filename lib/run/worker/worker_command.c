/* SPDX-License-Identifier: Apache-2.0 */
/* An outside command in a worker. */
#include "worker_command.h"
#include "measure/command/launch.h"
#include "run/plan/case_settings.h"
#include "run/plan/environment.h"
#include "worker_orders.h"
#include "worker_phases.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* The command is killed with the worker, and does not inherit that the worker ignores SIGPIPE. */
static int prepare_command(void *arg)
{
	(void)arg;
	signal(SIGPIPE, SIG_DFL);
	return prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static char **command_line(const json_t *command)
{
	char **argv = calloc(json_array_size(command) + 1, sizeof(*argv));
	const json_t *word;
	size_t i;

	if (!argv)
		return NULL;
	json_array_foreach(command, i, word)
	{
		argv[i] = (char *)(uintptr_t)json_string_value(word);
	}
	return argv;
}

static void record_command(struct jm__worker *w, const struct jm_outcome *o)
{
	const json_t *throughput = json_object_get(w->parameters, "throughput");
	const char *unit = json_string_value(json_object_get(throughput, "unit"));
	json_t *r = w->record;

	w->main_phase = o->marked;
	jm_record_set(r, "exit_status", json_integer(o->status));
	jm_record_set(r, "signal", o->signal ? json_integer(o->signal) : NULL);
	jm_record_set(r, "wall_s", jm_json_number(o->wall_s));
	/* a command without items is one item, which has no unit (see metric.h) */
	if (!unit && !isnan(o->items))
		unit = "item";
	jm_record_set(r, "unit", unit ? json_string(unit) : NULL);
	jm_record_set(r, "items", jm_json_number(o->marked_items));
	jm_record_set(r, "throughput", jm_json_number(o->throughput));
	if (o->items_kind)
		jm_record_set(r, "items_kind", json_string(jm_item_kind_names[o->items_kind - 1]));
}

/* Its rate is that of all its time: which part of it is steady is known at the end. */
static void on_tick(void *arg, double items, double seconds)
{
	jm__worker_progress(arg, "command", isnan(items) ? 0 : items, seconds, NAN);
}

static void on_phase(void *arg, int phase, const char *name)
{
	jm__worker_marked(arg, phase, name);
}

static void on_orders(void *arg)
{
	jm__worker_take_orders(arg);
}

/* What the settings of phases still need after the command. */
static int end_phases(struct jm__worker *w, const struct jm_outcome *outcome, struct jm_err *err)
{
	int rc = jm__worker_wait_settings(w, err);

	if (rc || outcome->signal || outcome->status)
		return rc;
	rc = jm__worker_check_marked(w, err);
	if (rc)
		jm_record_set_failure(w->record, JM_FAILURE_COMMAND);
	return rc;
}

/* rc: of the launch. */
static int judge(struct jm__worker *w, int rc, const struct jm_outcome *outcome, struct jm_err *err)
{
	if (rc || outcome->signal || outcome->status)
		jm_record_set_failure(
			w->record, !rc && outcome->signal ? JM_FAILURE_CRASH : JM_FAILURE_COMMAND);
	if (!rc && outcome->signal)
		return jm_err_set(err, JM_ECHILD, "The command was killed by SIG%s (signal %d).",
			sigabbrev_np(outcome->signal) ? sigabbrev_np(outcome->signal) : "?",
			outcome->signal);
	if (!rc && outcome->status)
		return jm_err_set(
			err, JM_ECHILD, "The command ended with status %d.", outcome->status);
	return rc;
}

int jm__worker_command(struct jm__worker *w, struct jm_err *err)
{
	const json_t *throughput = json_object_get(w->parameters, "throughput");
	struct jm_launch_options o = {
		.argv = command_line(json_object_get(w->parameters, "command")),
		.items_regex = json_string_value(json_object_get(throughput, "regex")),
		.items_json = json_string_value(json_object_get(throughput, "json")),
		.items_kind =
			jm_item_kind_of(json_string_value(json_object_get(throughput, "kind"))),
		.out_fd = STDOUT_FILENO,
		.before_exec = prepare_command,
		.tick = on_tick,
		.phase = jm_case_sets_in(w->parameters, NULL) ? on_phase : NULL,
		.arg = w,
		.extra_fd = w->orders.fd,
		.extra = on_orders,
	};
	char **env = jm_environment_new(json_object_get(w->parameters, "environment"), NULL);
	struct jm_outcome outcome = {.phase = -1, .marked = -1};
	int rc;

	if (!o.argv || !env) {
		free((void *)(uintptr_t)o.argv);
		jm_environment_free(env);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a command line.");
	}
	o.env = (const char *const *)env;
	rc = jm__worker_settle(w, err);
	w->unit = json_string_value(json_object_get(throughput, "unit"));
	jm__worker_progress(w, "command", 0, 0, NAN);
	if (!rc)
		rc = jm_launch(w->ctx, w->session, &o, &outcome, err);
	if (rc)
		jm_record_set(w->record, "exit_status", json_integer(jm_proc_status_of(rc)));
	else
		record_command(w, &outcome);
	free((void *)(uintptr_t)o.argv);
	jm_environment_free(env);
	rc = judge(w, rc, &outcome, err);
	return rc ? rc : end_phases(w, &outcome, err);
}
