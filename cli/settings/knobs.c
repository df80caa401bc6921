/* SPDX-License-Identifier: Apache-2.0 */
/* The commands set, get, status and restore; and `guard`, the process that only joulemark itself
 * starts. */
#include "result/case_id.h"
#include "base/text/json.h"
#include "cli/frame/cli.h"
#include "cli/frame/device_option.h"
#include "cli/frame/json_option.h"
#include "base/process/process_identity.h"
#include "guard/guard.h"
#include "guard/guard_requests.h"
#include "guard/guard_recover.h"
#include "guard/guard_serve.h"
#include "guard/guard_wire.h"
#include "found_option.h"
#include "hold.h"
#include "knob_show.h"
#include "probe.h"
#include "set_words.h"
#include "base/process/child_process.h"
#include "cli/frame/interrupts.h"
#include "report/format/cells.h"
#include "report/format/text.h"
#include "cli/frame/work_show.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct call {
	const char *device, *control, *probe_load; /* NULL = not given */
	char *const *found;			   /* likewise */
	bool dry_run, use_default;
};

#define CONTROL_ROW                                                                                \
	{                                                                                          \
		JM_CONTROL_ROW, JM_BIND(JM_TEXT, struct call, control)                             \
	}

#define DEVICE_ROW                                                                                 \
	{                                                                                          \
		JM_DEVICE_ROW, JM_BIND(JM_TEXT, struct call, device)                               \
	}

static const struct jm_option control_options[] = {DEVICE_ROW, CONTROL_ROW, JM_JSON_OPTION, {0}};
static const struct jm_option set_options[] = {DEVICE_ROW, CONTROL_ROW,
	{JM_FOUND_ROW, JM_BIND(JM_TEXT, struct call, found)},
	{JM_PROBE_LOAD_ROW, JM_BIND(JM_TEXT, struct call, probe_load)},
	{.name = "dry-run",
		JM_BIND(JM_FLAG, struct call, dry_run),
		.help = "list each write in its order, whether this user may do it, the range of "
			"the knob and what restores it; write nothing"},
	{JM_JSON_ROW("with --dry-run: print it as JSON, or write it to this file"), .type = JM_TEXT,
		.needs = "dry-run"},
	{0}};
static const struct jm_option json_options[] = {JM_JSON_OPTION, {0}};

/* ---- set ------------------------------------------------------------------------------------- */

static void print_applied(
	const struct jm_knobs *knobs, const struct jm_applied *a, const struct jm_applied *before)
{
	const struct jm_knob *k = &knobs->knob[a->knob];
	char now[JM_KNOB_SHOWN], was[JM_KNOB_SHOWN], enforced[JM_KNOB_SHOWN], asked[JM_KNOB_SHOWN];

	jm_knob_show(&a->accepted, k->unit, now, sizeof(now));
	jm_knob_show(&before[a->knob].accepted, k->unit, was, sizeof(was));
	jm_knob_show(&a->enforced, k->unit, enforced, sizeof(enforced));
	jm_knob_show(&a->requested, k->unit, asked, sizeof(asked));
	fprintf(stderr, "joulemark: %s of %s: %s (was %s)", k->name, k->label, now, was);
	if (strcmp(now, asked) != 0)
		fprintf(stderr, ", asked for %s", asked);
	if (strcmp(enforced, now) != 0)
		fprintf(stderr, ", enforced %s", enforced);
	fputc('\n', stderr);
}

static int apply(struct jm_cli *cli, const struct call *call, struct jm_guard *guard)
{
	const struct jm_knobs *knobs = jm_guard_knobs(guard);
	struct jm_setting *settings = calloc((size_t)cli->n_args + 1, sizeof(*settings));
	struct jm_applied *before = calloc((size_t)knobs->n + 1, sizeof(*before));
	struct jm_applied *out = calloc((size_t)knobs->n + 1, sizeof(*out));
	int n = 0, rc = 0;

	if (!settings || !before || !out)
		rc = jm_err_set(
			&cli->err, JM_ENOMEM, "Out of memory for %d settings.", cli->n_args);
	if (!rc)
		rc = jm_set_parse(cli, knobs, settings);
	if (!rc)
		rc = jm_probe_state(cli, guard, call->found, call->probe_load, &cli->err);
	if (!rc)
		rc = jm_guard_get(guard, before, &cli->err);
	if (!rc && jm_last_interrupt())
		rc = jm_err_set(&cli->err, JM_EINTR, "Interrupted; nothing was set.");
	if (!rc)
		rc = jm_guard_set(guard, settings, cli->n_args, out, &n, &cli->err);
	for (int i = 0; i < n && !rc; i++)
		print_applied(knobs, &out[i], before);
	free(settings);
	free(before);
	free(out);
	return rc;
}

/* A value that is the one found before the first `set` leaves nothing to restore. */
static void say_what_stays(struct jm_cli *cli)
{
	struct jm_hold *holds = NULL;
	int n = 0;

	if (!jm_guard_holds(&cli->ctx, &holds, &n, NULL) && !n)
		jm_log(&cli->ctx, JM_INFO,
			"This is the setting that was found: there is nothing to restore.");
	else
		jm_log(&cli->ctx, JM_INFO, "The setting stays until 'joulemark restore'.");
	free(holds);
}

static int dry_run(struct jm_cli *cli, const struct call *call)
{
	char text[400];
	const char *controls;
	int rc = jm_device_controls(
		call->device, call->control, text, sizeof(text), &controls, &cli->err);

	if (!rc)
		rc = jm_set_dry_run(cli, controls, call->found);
	return rc ? jm_cli_fail(cli) : 0;
}

static int run_set(struct jm_cli *cli)
{
	struct jm_guard *guard = NULL;
	struct jm_err stop = JM_ERR_INIT;
	struct call call = {0};
	int status = 0, rc;

	JM_FILL(&cli->values, &call);
	if (cli->n_args && call.dry_run)
		return dry_run(cli, &call);
	if (jm_hold_check(cli->command, &cli->err)) {
		jm_cli_fail(cli);
		return jm_proc_status_of(cli->err.code);
	}
	jm_count_interrupts(&cli->ctx, -1);
	if (!cli->n_args)
		rc = jm_err_set(&cli->err, JM_EUSAGE,
			"Nothing to set; write knob=value, as in 'joulemark set gpu.power=300W'.");
	else
		rc = jm_hold_guard(cli, call.device, call.control, &guard);
	for (int i = 0; i < cli->n_args && !rc; i++)
		jm_guard_seek(guard, cli->args[i]);
	if (!rc)
		rc = apply(cli, &call, guard);
	if (!rc && jm_last_interrupt())
		rc = jm_err_set(&cli->err, JM_EINTR, "Interrupted.");
	if (!rc && cli->command)
		rc = jm_hold_command(&cli->ctx, cli->command, &status, &cli->err);
	else if (!rc)
		rc = jm_guard_keep(guard, &cli->err);
	if (jm_guard_stop(guard, &stop)) {
		cli->err = stop; /* it says what is not restored, which counts for more */
		rc = stop.code;
	}
	if (rc == JM_EINTR)
		return jm_cli_fail(cli), 128 + jm_last_interrupt();
	if (rc)
		return status == 126 || status == 127 ? (jm_cli_fail(cli), status)
						      : jm_cli_fail(cli);
	if (!cli->command)
		say_what_stays(cli);
	return status;
}

/* The first word that is not a setting, if at least one setting precedes it. */
static bool begins_command(const struct jm_cli *cli, const char *word)
{
	return cli->n_args && !strchr(word, '=');
}

const struct jm_command jm_command_set = {
	.name = "set",
	.heading = "Settings",
	.summary = "set knobs, permanently or while a command runs",
	.usage = "[--device DEVICE] [--found KNOB=VALUE] [--dry-run] KNOB=VALUE... [[--] CMD...]",
	.description = "Sets each KNOB on all devices of this job that have it. KNOB@ID means the "
		       "devices whose id begins with ID, KNOB@0 the first device. With a command, "
		       "the values that were found are restored when the command has ended, even "
		       "if joulemark is killed. Without a command the setting stays, and "
		       "'joulemark restore' restores the values from before the first call of "
		       "'set'.\n\nA value is a number with its unit; a range such as "
		       "1200:1500MHz, of a knob that takes ranges; one of the knob's words, which "
		       "'get --json' lists; or the word default.",
	.example = "joulemark set gpu.power=300W -- python train.py\n"
		   "joulemark set --device sim:h100x4 gpu.power=400W",
	.options = set_options,
	.max_args = -1,
	.takes_command = true,
	.begins_command = begins_command,
	.run = run_set,
};

/* ---- get ------------------------------------------------------------------------------------- */

/* All are wanted when none is named. */
static bool wanted(const struct jm_setting *words, int n, const struct jm_knob *knob)
{
	for (int i = 0; i < n; i++)
		if (jm_setting_matches(&words[i], knob))
			return true;
	return n == 0;
}

static int put_knob(struct jm_grid *g, int row, const struct jm_knob *k, const struct jm_applied *a,
	struct jm_err *err)
{
	char now[JM_KNOB_SHOWN], enforced[JM_KNOB_SHOWN], min[JM_KNOB_SHOWN], max[JM_KNOB_SHOWN],
		fallback[JM_KNOB_SHOWN];
	const char *cells[] = {k->name, k->label, now, enforced, min, max, fallback, k->device};
	int rc = 0;

	jm_knob_show(&a->accepted, k->unit, now, sizeof(now));
	jm_knob_show(&a->enforced, k->unit, enforced, sizeof(enforced));
	jm_knob_show_number(k->min, k->unit, min, sizeof(min));
	jm_knob_show_number(k->max, k->unit, max, sizeof(max));
	if (k->kind == JM_KNOB_CHOICE)
		min[0] = max[0] = '\0';
	jm_knob_show(&k->fallback, k->unit, fallback, sizeof(fallback));
	for (int c = 0; c < g->columns && !rc; c++)
		rc = jm_grid_set(g, row, c, err, "%s", cells[c]);
	return rc;
}

/* A device that does not answer gets a row; if no requested device answers, the command fails. */
static int check_answers(struct jm_cli *cli, const struct jm_knobs *knobs,
	const struct jm_setting *words, const struct jm_applied *a)
{
	const char *why = NULL;

	for (int i = 0; i < knobs->n; i++) {
		if (!wanted(words, cli->n_args, &knobs->knob[i]))
			continue;
		if (!*a[i].why)
			return 0;
		why = why ? why : a[i].why;
	}
	return why ? jm_err_set(&cli->err, JM_EIO, "%s", why) : 0;
}

/* Below the table, as it is too long for a cell. */
static void print_reasons(const struct jm_cli *cli, const struct jm_knobs *knobs,
	const struct jm_setting *words, const struct jm_applied *a)
{
	char text[300];

	for (int i = 0; i < knobs->n; i++) {
		if (!*a[i].why || !wanted(words, cli->n_args, &knobs->knob[i]))
			continue;
		snprintf(text, sizeof(text), "%s of %s: %s", knobs->knob[i].name,
			knobs->knob[i].label, a[i].why);
		jm_text_wrap(cli->out, text, 0, 2, cli->width);
	}
}

static int print_table(struct jm_cli *cli, const struct jm_knobs *knobs,
	const struct jm_setting *words, const struct jm_applied *a, int rows)
{
	static const char *const titles[] = {
		"knob", "device", "accepted", "enforced", "min", "max", "default", "id"};
	const int columns = sizeof(titles) / sizeof(titles[0]);
	struct jm_grid g;
	int rc = jm_grid_new(&g, rows, columns, &cli->err);

	if (rc)
		return rc;
	g.n_setting = 2;
	g.left[0] = g.left[1] = g.left[columns - 1] = true;
	for (int c = 0; c < columns && !rc; c++)
		rc = jm_grid_set(&g, -1, c, &cli->err, "%s", titles[c]);
	for (int i = 0, row = 0; i < knobs->n && !rc; i++)
		if (wanted(words, cli->n_args, &knobs->knob[i]))
			rc = put_knob(&g, row++, &knobs->knob[i], &a[i], &cli->err);
	if (!rc) {
		jm_grid_print(&g, 0, cli->width, cli->out);
		print_reasons(cli, knobs, words, a);
	}
	jm_grid_done(&g);
	return rc;
}

static int print_knobs(struct jm_cli *cli, const struct jm_knobs *knobs,
	const struct jm_setting *words, const struct jm_applied *a)
{
	json_t *array;
	int n = 0;

	for (int i = 0; i < knobs->n; i++)
		n += wanted(words, cli->n_args, &knobs->knob[i]);
	if (!jm_json_wanted(cli))
		return print_table(cli, knobs, words, a, n);
	array = json_array();
	for (int i = 0; i < knobs->n; i++)
		if (wanted(words, cli->n_args, &knobs->knob[i]))
			json_array_append_new(array, jm_knob_json(&knobs->knob[i], &a[i]));
	return jm_json_put(cli, array);
}

static int get(struct jm_cli *cli, struct jm_guard *guard)
{
	const struct jm_knobs *knobs = jm_guard_knobs(guard);
	struct jm_setting *words = calloc((size_t)cli->n_args + 1, sizeof(*words));
	struct jm_applied *now = calloc((size_t)knobs->n + 1, sizeof(*now));
	int rc = 0;

	if (!words || !now)
		rc = jm_err_set(&cli->err, JM_ENOMEM, "Out of memory for %d knobs.", knobs->n);
	for (int i = 0; i < cli->n_args && !rc; i++)
		rc = jm_target_parse(cli->args[i], knobs, &words[i], &cli->err);
	if (!rc)
		rc = jm_guard_get(guard, now, &cli->err);
	if (!rc)
		rc = print_knobs(cli, knobs, words, now);
	if (!rc)
		rc = check_answers(cli, knobs, words, now);
	free(words);
	free(now);
	return rc;
}

static int run_get(struct jm_cli *cli)
{
	struct jm_guard *guard = NULL;
	struct call call = {0};
	int rc;

	JM_FILL(&cli->values, &call);
	rc = jm_hold_guard(cli, call.device, call.control, &guard);
	if (!rc)
		rc = get(cli, guard);
	jm_guard_stop(guard, NULL);
	return rc ? jm_cli_fail(cli) : 0;
}

const struct jm_command jm_command_get = {
	.name = "get",
	.summary = "show knobs: the value that is set and the value that is enforced",
	.usage = "[--device DEVICE] [--json[=FILE]] [KNOB[@ID]...]",
	.description = "Prints each knob of each device with its value, range and default, and the "
		       "id that KNOB@ID takes. 'accepted' is the value that the device accepted at "
		       "the last request, 'enforced' the one that it applies; they differ where "
		       "another limit is lower.",
	.example = "joulemark get gpu.power",
	.options = control_options,
	.max_args = -1,
	.run = run_get,
};

/* ---- status, restore ------------------------------------------------------------------------- */

static const char *held_text(enum jm_held held)
{
	static const char *const names[] = {
		[JM_HELD_LIVE] = "held",
		[JM_HELD_ENDING] = "being restored",
		[JM_HELD_KEPT] = "kept",
		[JM_HELD_STALE] = "left behind",
		[JM_HELD_UNKNOWN] = "damaged",
	};

	return names[held];
}

/* The text of a row of `status` after knob and device. */
static void hold_text(const struct jm_hold *h, char *out, size_t size)
{
	char found[JM_KNOB_SHOWN + 16];

	jm_knob_show(&h->found, h->unit, found, sizeof(found));
	if (h->known_by == JM_KNOWN_STATED)
		strncat(found, ", as stated", sizeof(found) - strlen(found) - 1);
	if (h->held == JM_HELD_LIVE)
		snprintf(out, size, "held by process %d, which will restore %s.", h->pid, found);
	else if (h->held == JM_HELD_ENDING)
		snprintf(out, size,
			"process %d, which held it, has ended; its guard (process %d%s) has yet to "
			"restore %s.",
			h->pid, h->guard_pid,
			jm_process_stopped(h->guard_pid) ? ", stopped: use kill -CONT" : "", found);
	else if (h->held == JM_HELD_KEPT)
		snprintf(out, size, "set by 'joulemark set'; 'joulemark restore' restores %s.",
			found);
	else if (h->held == JM_HELD_STALE)
		snprintf(out, size,
			"left behind by process %d, which was killed; 'joulemark restore' tries "
			"again to restore %s.",
			h->pid, found);
	else
		snprintf(out, size, "unknown: %s", h->why);
}

static void print_hold(const struct jm_cli *cli, const struct jm_hold *h)
{
	char state[400], text[700];

	hold_text(h, state, sizeof(state));
	snprintf(text, sizeof(text), "%s of %s: %s", h->knob, h->device, state);
	jm_text_wrap(cli->out, text, 0, 2, cli->width);
}

static json_t *hold_json(const struct jm_hold *h)
{
	json_t *json = json_object();
	static const char *const known_words[] = {JM_KNOWN_WORDS};

	jm_json_set_text(&json, "knob", h->knob);
	jm_json_set_text(&json, "device", h->device);
	jm_json_set_text(&json, "unit", h->unit);
	jm_json_set_text(&json, "control", h->control);
	jm_json_set(&json, "found", jm_knob_show_json(&h->found, h->unit));
	jm_json_set_text(&json, "found_by", known_words[h->known_by]);
	jm_json_set_text(&json, "state", held_text(h->held));
	jm_json_set_int(&json, "pid", h->pid);
	jm_json_set_int(&json, "guard_pid", h->guard_pid);
	if (*h->why)
		jm_json_set_text(&json, "reason", h->why);
	return json;
}

static void print_holds(const struct jm_cli *cli, const struct jm_hold *holds, int n)
{
	for (int i = 0; i < n; i++)
		print_hold(cli, &holds[i]);
	if (!n)
		fprintf(cli->out, "Nothing is set by joulemark.\n");
}

static void print_work(const struct jm_cli *cli, const struct jm_work_list *list)
{
	jm_work_print(list, cli->out, cli->width);
	if (!list->n)
		fprintf(cli->out, "No run or measurement is under way.\n");
}

static void print_status_json(
	struct jm_cli *cli, const struct jm_hold *holds, int n, const struct jm_work_list *list)
{
	json_t *array = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(array, hold_json(&holds[i]));
	jm_json_put(cli, json_pack("{s:o, s:o}", "settings", array, "running", jm_work_json(list)));
}

/* A damaged journal fails the command, when all rows are out; a damaged status file is a
 * warning. */
static int print_status(
	struct jm_cli *cli, const struct jm_hold *holds, int n, const struct jm_work_list *list)
{
	if (jm_json_wanted(cli)) {
		print_status_json(cli, holds, n, list);
	} else {
		print_work(cli, list);
		print_holds(cli, holds, n);
	}
	if (list->n_unreadable)
		jm_log(&cli->ctx, JM_WARNING,
			"%d status %s of running work cannot be read and %s omitted: %s",
			list->n_unreadable, list->n_unreadable == 1 ? "file" : "files",
			list->n_unreadable == 1 ? "is" : "are", list->why);
	for (int i = 0; i < n; i++)
		if (holds[i].held == JM_HELD_UNKNOWN)
			jm_err_set(&cli->err, JM_EFORMAT, "%s", holds[i].why);
	return cli->err.code;
}

static int run_status(struct jm_cli *cli)
{
	struct jm_work_list list = {0};
	struct jm_hold *holds = NULL;
	int n = 0, rc = jm_guard_holds(&cli->ctx, &holds, &n, &cli->err);

	if (!rc)
		rc = jm_work_list_read(&cli->ctx, &list, &cli->err);
	if (!rc)
		rc = print_status(cli, holds, n, &list);
	jm_work_list_done(&list);
	free(holds);
	return rc ? jm_cli_fail(cli) : 0;
}

const struct jm_command jm_command_status = {
	.name = "status",
	.summary = "show running work, and the settings that joulemark will restore",
	.usage = "[--json[=FILE]]",
	.description = "Shows each running 'run' and 'measure' of this user and of root: the case, "
		       "its phase, items per second, watts with their origin, the time left and "
		       "the store, as they were at most one second ago.\n\n"
		       "Shows settings that a running joulemark holds, that 'joulemark set' has "
		       "made, or that a killed joulemark has left behind, from the state folders "
		       "of this user and of root. It fails when they cannot be determined.\n\n"
		       "--json prints an object with the lists 'running' and 'settings'; unknown "
		       "values are null.",
	.example = "watch -n 1 joulemark status\n"
		   "joulemark status --json | jq '.running[] | .work, .watts'",
	.options = json_options,
	.run = run_status,
};

static const struct jm_option restore_options[] = {
	{.name = "default",
		JM_BIND(JM_FLAG, struct call, use_default),
		.help = "if the original value is unknown because a journal is damaged: set the "
			"vendor's default, and keep the journal under another name"},
	CONTROL_ROW, JM_JSON_OPTION, {0}};

static int print_restored(struct jm_cli *cli, int n, int n_default)
{
	json_t *json;

	if (jm_json_wanted(cli)) {
		json = json_object();
		jm_json_set_int(&json, "restored", n);
		jm_json_set_int(&json, "set_to_default", n_default);
		jm_json_set_bool(&json, "complete", !cli->err.code);
		return jm_json_put(cli, json);
	}
	if (n_default)
		fprintf(cli->out, "Set %d %s to the vendor's default.\n", n_default,
			n_default == 1 ? "knob" : "knobs");
	if (n)
		fprintf(cli->out, "Restored %d %s.\n", n, n == 1 ? "setting" : "settings");
	else if (!cli->err.code && !n_default)
		fprintf(cli->out, "Nothing to restore.\n");
	return 0;
}

static int run_restore(struct jm_cli *cli)
{
	struct call call = {0};
	int n = 0, n_default = 0;

	signal(SIGPIPE, SIG_IGN); /* a closed pipe must not end the restoring half-way */
	JM_FILL(&cli->values, &call);
	if (call.use_default)
		jm_guard_default(&cli->ctx, call.control, &n_default, &cli->err);
	jm_guard_release(&cli->ctx, &n, &cli->err);
	print_restored(cli, n, n_default);
	return cli->err.code ? jm_cli_fail(cli) : 0;
}

const struct jm_command jm_command_restore = {
	.name = "restore",
	.summary = "restore all settings that joulemark has changed",
	.usage = "[--default [--control NAME]] [--json[=FILE]]",
	.description = "Restores what 'joulemark set' has changed and what a killed joulemark has "
		       "left behind. Run it at boot and after a batch job; when there is nothing "
		       "to restore it does nothing. When a setting cannot be restored, the command "
		       "fails and keeps the journal.\n\nA damaged journal is replaced by its copy. "
		       "If both are damaged, the original value is unknown: restore then fails and "
		       "leaves the setting as it is, unless --default is given.",
	.example = "joulemark restore",
	.options = restore_options,
	.no_recovery = true, /* it does that itself, and counts */
	.run = run_restore,
};

/* ---- the guard's process --------------------------------------------------------------------- */

static int run_guard(struct jm_cli *cli)
{
	return jm_guard_serve(&cli->ctx, JM_WIRE_FD, &cli->err) ? jm_cli_fail(cli) : 0;
}

const struct jm_command jm_command_guard = {
	.name = "guard",
	.summary = "the process that changes knobs and restores them",
	.usage = "",
	.description = "Started by joulemark.",
	.hidden = true,
	.run = run_guard,
};
