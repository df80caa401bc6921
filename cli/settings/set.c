/* SPDX-License-Identifier: Apache-2.0 */
/* The command `set`. */
#include "cli/frame/cli.h"
#include "cli/frame/device_option.h"
#include "cli/frame/json_option.h"
#include "cli/frame/interrupts.h"
#include "base/process/child_process.h"
#include "guard/guard.h"
#include "guard/guard_requests.h"
#include "guard/guard_recover.h"
#include "found_option.h"
#include "hold.h"
#include "knob_show.h"
#include "probe.h"
#include "set_dry_run.h"
#include "set_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct set {
	const char *device, *control, *probe_load; /* NULL = not given */
	char *const *found;			   /* likewise */
	bool dry_run;
};

static const struct jm_option options[] = {{JM_DEVICE_ROW, JM_BIND(JM_TEXT, struct set, device)},
	{JM_CONTROL_ROW, JM_BIND(JM_TEXT, struct set, control)},
	{JM_FOUND_ROW, JM_BIND(JM_TEXT, struct set, found)},
	{JM_PROBE_LOAD_ROW, JM_BIND(JM_TEXT, struct set, probe_load)},
	{.name = "dry-run",
		JM_BIND(JM_FLAG, struct set, dry_run),
		.help = "list each write in its order, whether this user may do it, the range of "
			"the knob and what restores it; write nothing"},
	{JM_JSON_ROW("with --dry-run: print it as JSON, or write it to this file"), .type = JM_TEXT,
		.needs = "dry-run"},
	{0}};

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

static int apply(struct jm_cli *cli, const struct set *set, struct jm_guard *guard)
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
		rc = jm_probe_state(cli, guard, set->found, set->probe_load, &cli->err);
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

static int dry_run(struct jm_cli *cli, const struct set *set)
{
	char text[400];
	const char *controls;
	int rc = jm_device_controls(
		set->device, set->control, text, sizeof(text), &controls, &cli->err);

	if (!rc)
		rc = jm_set_dry_run(cli, controls, set->found);
	return rc ? jm_cli_fail(cli) : 0;
}

static int run_set(struct jm_cli *cli)
{
	struct jm_guard *guard = NULL;
	struct jm_err stop = JM_ERR_INIT;
	struct set set = {0};
	int status = 0, rc;

	JM_FILL(&cli->values, &set);
	if (cli->n_args && set.dry_run)
		return dry_run(cli, &set);
	if (jm_hold_check(cli->command, &cli->err)) {
		jm_cli_fail(cli);
		return jm_proc_status_of(cli->err.code);
	}
	jm_count_interrupts(&cli->ctx, -1);
	if (cli->output && strcmp(cli->output, "-") != 0)
		rc = jm_err_set(&cli->err, JM_EUSAGE,
			"'set' has results for --output only with --dry-run; what it sets is on "
			"standard error.");
	else if (!cli->n_args)
		rc = jm_err_set(&cli->err, JM_EUSAGE,
			"Nothing to set; write knob=value, as in 'joulemark set gpu.power=300W'.");
	else
		rc = jm_hold_guard(cli, set.device, set.control, &guard);
	for (int i = 0; i < cli->n_args && !rc; i++)
		jm_guard_seek(guard, cli->args[i]);
	if (!rc)
		rc = apply(cli, &set, guard);
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
	.options = options,
	.max_args = -1,
	.takes_command = true,
	.begins_command = begins_command,
	.run = run_set,
};
