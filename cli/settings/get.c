/* SPDX-License-Identifier: Apache-2.0 */
/* The command `get`. */
#include "cli/frame/cli.h"
#include "cli/frame/device_option.h"
#include "cli/frame/json_option.h"
#include "guard/guard.h"
#include "guard/guard_requests.h"
#include "hold.h"
#include "knob_show.h"
#include "report/format/grid.h"
#include "report/format/text.h"

#include <stdio.h>
#include <stdlib.h>

struct get {
	const char *device, *control; /* NULL = not given */
};

static const struct jm_option options[] = {{JM_DEVICE_ROW, JM_BIND(JM_TEXT, struct get, device)},
	{JM_CONTROL_ROW, JM_BIND(JM_TEXT, struct get, control)}, JM_JSON_OPTION, {0}};

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
	struct get o = {0};
	int rc;

	JM_FILL(&cli->values, &o);
	rc = jm_hold_guard(cli, o.device, o.control, &guard);
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
	.options = options,
	.max_args = -1,
	.run = run_get,
};
