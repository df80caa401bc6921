/* SPDX-License-Identifier: Apache-2.0 */
/* The command `status`: running work, and settings that are held or left behind. */
#include "base/process/process_identity.h"
#include "base/text/json.h"
#include "cli/frame/cli.h"
#include "cli/frame/json_option.h"
#include "cli/frame/work_show.h"
#include "guard/guard_recover.h"
#include "knob_show.h"
#include "report/format/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct jm_option options[] = {JM_JSON_OPTION, {0}};

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
	.options = options,
	.run = run_status,
};
