/* SPDX-License-Identifier: Apache-2.0 */
#include "set_dry_run.h"
#include "base/text/json.h"
#include "cli/frame/json_option.h"
#include "guard/dry_run.h"
#include "guard/guard_requests.h"
#include "knob_show.h"
#include "report/format/text.h"
#include "set_words.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- as text ---- */

enum part { JOURNALS, WRITES, RESTORE };

struct print {
	struct jm_cli *cli;
	enum part part;
	int n; /* steps so far */
};

/* A step with its number, or without one a line about a knob. */
__attribute__((format(printf, 3, 4))) static void line(
	struct print *p, bool step, const char *format, ...)
{
	char text[2000];
	size_t n = 0;
	va_list args;

	if (step)
		n = (size_t)snprintf(text, sizeof(text), "%d. ", ++p->n);
	va_start(args, format);
	vsnprintf(text + n, sizeof(text) - n, format, args);
	va_end(args);
	jm_text_wrap(p->cli->out, text, step ? 2 : 0, 5, p->cli->width);
}

static const char *const ends_words[] = {
	[JM_ENDS_NEVER] = "nothing else ends the setting, not even a reboot",
	[JM_ENDS_REBOOT] = "a reboot ends the setting as well",
	[JM_ENDS_DRIVER] = "a reboot, or a driver that is unloaded, ends the setting as well",
	[JM_ENDS_PROCESS] = "the setting ends with the device as well",
};

static void tell_knob(void *arg, const struct jm_dry_knob *d)
{
	struct print *p = arg;
	const struct jm_knob *k = d->knob;
	char found[JM_KNOB_TEXT], value[JM_KNOB_TEXT], takes[JM_KNOB_TAKES];
	bool same = !k->unreadable && jm_knob_value_same(d->found, d->value);

	jm_knob_value_text(p->part == RESTORE && !p->cli->command ? d->base : d->found, k->unit,
		found, sizeof(found));
	jm_knob_value_text(d->value, k->unit, value, sizeof(value));
	jm_knob_takes_text(k, takes, sizeof(takes));
	if (p->part == JOURNALS)
		line(p, true, "write %s, and sync it: %s of %s is %s%s", d->journal, k->name,
			k->label, found, d->known_by == JM_KNOWN_STATED ? ", as stated" : "");
	else if (p->part == WRITES)
		line(p, false, "%s of %s (%s): %s -> %s, takes %s%s", k->name, k->label, k->device,
			found, value, takes, same ? "; it is so already: no write" : "");
	else
		line(p, false, "%s of %s: %s; %s", k->name, k->label, found, ends_words[k->ends]);
	if (p->part == WRITES && d->holder)
		line(p, false, "process %d holds it now, so that it would be refused", d->holder);
}

static void tell_write(void *arg, const struct jm_dry_write *w)
{
	struct print *p = arg;
	const char *who = w->allowed ? "this user may" : "this user may not: use sudo";

	if (p->part == WRITES && w->text)
		line(p, true, "write %s to %s (%s)", w->text, w->to, who);
	else if (p->part == WRITES)
		line(p, true, "call %s (%s)", w->to, who);
}

static int print_parts(
	struct jm_cli *cli, struct jm_dry_run *dry, const struct jm_setting *settings)
{
	struct print p = {.cli = cli};
	const struct jm_dry_report report = {tell_knob, tell_write, &p};
	int rc;

	line(&p, false, "Nothing is done. 'joulemark set' would first journal the values found:");
	rc = jm_dry_run(dry, settings, cli->n_args, &report, &cli->err);
	p.part = WRITES;
	if (!rc)
		line(&p, false, "then set, and read back:");
	if (!rc)
		rc = jm_dry_run(dry, settings, cli->n_args, &report, &cli->err);
	p.part = RESTORE;
	if (!rc)
		line(&p, false,
			cli->command ? "and put back when the command ends, or is killed with "
				       "joulemark:"
				     : "and put back at 'joulemark restore':");
	return rc ? rc : jm_dry_run(dry, settings, cli->n_args, &report, &cli->err);
}

/* ---- as JSON ---- */

struct listing {
	const struct jm_cli *cli;
	json_t *knobs, *writes; /* writes: of the last of the knobs */
};

static void list_knob(void *arg, const struct jm_dry_knob *d)
{
	static const char *const known_words[] = {JM_KNOWN_WORDS};
	struct listing *l = arg;
	const struct jm_knob *k = d->knob;
	json_t *knob = json_object();

	l->writes = json_array();
	jm_json_set_text(&knob, "knob", k->name);
	jm_json_set_text(&knob, "device", k->device);
	jm_json_set_text(&knob, "label", k->label);
	jm_json_set_text(&knob, "unit", k->unit);
	jm_json_set(&knob, "found", jm_knob_show_json(d->found, k->unit));
	jm_json_set_text(&knob, "found_by", known_words[d->known_by]);
	jm_json_set(&knob, "value", jm_knob_show_json(d->value, k->unit));
	jm_json_set(&knob, "restored",
		jm_knob_show_json(l->cli->command ? d->found : d->base, k->unit));
	jm_json_set_text(&knob, "ends", jm_knob_ends(k));
	jm_json_set_text(&knob, "journal", d->journal);
	jm_json_set(&knob, "holder_pid", d->holder ? json_integer(d->holder) : json_null());
	jm_json_set(&knob, "writes", l->writes);
	json_array_append_new(l->knobs, knob);
}

static void list_write(void *arg, const struct jm_dry_write *w)
{
	const struct listing *l = arg;

	json_array_append_new(l->writes,
		json_pack("{ss ss? sb}", "to", w->to, "text", w->text, "allowed", w->allowed));
}

static int list_parts(struct jm_cli *cli, struct jm_dry_run *dry, const struct jm_setting *settings)
{
	struct listing l = {.cli = cli, .knobs = json_array()};
	const struct jm_dry_report report = {list_knob, list_write, &l};
	int rc = jm_dry_run(dry, settings, cli->n_args, &report, &cli->err);

	if (!rc)
		return jm_json_put(cli, l.knobs);
	json_decref(l.knobs);
	return rc;
}

static int state_all(struct jm_cli *cli, struct jm_dry_run *dry, char *const *texts)
{
	struct jm_setting one;
	int rc = 0;

	for (; texts && *texts && !rc; texts++) {
		rc = jm_guard_parse_found(*texts, jm_dry_run_knobs(dry), &one, &cli->err);
		if (!rc)
			rc = jm_dry_run_state(dry, &one, 1, &cli->err);
	}
	return rc;
}

int jm_set_dry_run(struct jm_cli *cli, const char *controls, char *const *found)
{
	struct jm_setting *settings = calloc((size_t)cli->n_args + 1, sizeof(*settings));
	struct jm_dry_run *dry = NULL;
	int rc = settings ? jm_dry_run_open(&cli->ctx, controls, &dry, &cli->err)
			  : jm_err_set(&cli->err, JM_ENOMEM, "Out of memory for %d settings.",
				    cli->n_args);

	if (!rc)
		rc = jm_set_parse(cli, jm_dry_run_knobs(dry), settings);
	if (!rc)
		rc = state_all(cli, dry, found);
	if (!rc)
		rc = jm_json_wanted(cli) ? list_parts(cli, dry, settings)
					 : print_parts(cli, dry, settings);
	jm_dry_run_close(dry);
	free(settings);
	return rc;
}
