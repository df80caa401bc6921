/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/dry_run.h"

#include "base/files/state_folder.h"
#include "guard/guard_apply.h"
#include "guard/journal_each.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct jm_dry_run {
	struct jm_knob_holder holder; /* it holds nothing */
};

int jm_dry_run_open(
	struct jm_ctx *ctx, const char *controls, struct jm_dry_run **ret, struct jm_err *err)
{
	struct jm_dry_run *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the settings.");
	rc = jm_knob_holder_open(&d->holder, ctx, controls, NULL, getpid(), err);
	if (rc)
		free(d);
	else
		*ret = d;
	return rc;
}

void jm_dry_run_close(struct jm_dry_run *d)
{
	if (d)
		jm_knob_holder_close(&d->holder);
	free(d);
}

const struct jm_knobs *jm_dry_run_knobs(const struct jm_dry_run *d)
{
	return &d->holder.table.knobs;
}

int jm_dry_run_state(
	struct jm_dry_run *d, const struct jm_setting *stated, int n, struct jm_err *err)
{
	return jm_knob_holder_state(&d->holder, stated, n, err);
}

static int tell_write(void *arg, const char *to, const char *text, struct jm_err *err)
{
	const struct jm_dry_report *report = arg;
	const struct jm_dry_write write = {
		.to = to, .text = text, .allowed = text ? !access(to, W_OK) : !geteuid()};

	(void)err;
	report->write(report->arg, &write);
	return 0;
}

/* What its journal says: the living process that holds the knob, and the value from before an
 * earlier session. */
static void look_at_journal(
	const struct jm_ctx *ctx, struct jm_dry_knob *told, struct jm_knob_value *base)
{
	struct jm_journal_state s;

	if (jm_journal_peek(ctx, told->knob->name, told->knob->device, &s))
		return;
	if (s.open && jm_process_runs(&s.guard))
		told->holder = s.client.pid;
	if (s.kept)
		*base = s.base;
}

static void find_journal(
	const struct jm_ctx *ctx, const struct jm_knob *knob, char out[JM_JOURNAL_PATH])
{
	char name[JM_JOURNAL_NAME], folder[900];

	jm_journal_name(knob->name, knob->device, name, sizeof(name));
	if (jm_state_path(ctx, JM_JOURNAL_FOLDER, folder, sizeof(folder), NULL))
		*folder = '\0';
	snprintf(out, JM_JOURNAL_PATH, "%.800s/%s" JM_JOURNAL_END, folder, name);
}

static int tell_knob(struct jm_dry_run *d, const struct jm_applied *line,
	const struct jm_applied *now, const struct jm_dry_report *report, struct jm_err *err)
{
	struct jm_knob_holder *k = &d->holder;
	const struct jm_knob *knob = &k->table.knobs.knob[line->knob];
	const struct jm_knob_member *m = jm_knob_table_member(&k->table, line->knob);
	const struct jm_knob_value *found =
		jm_knob_value_known(&now->accepted) ? &now->accepted : &now->enforced;
	char journal[JM_JOURNAL_PATH];
	struct jm_knob_value base = *found;
	struct jm_dry_knob told = {.knob = knob,
		.found = found,
		.value = &line->requested,
		.known_by = k->known_by[line->knob],
		.base = &base,
		.journal = journal};
	int rc = *now->why ? jm_err_set(err, JM_EIO, "%s", now->why)
			   : jm_knob_check_found(knob, found, err);

	if (rc)
		return rc;
	find_journal(k->ctx, knob, journal);
	look_at_journal(k->ctx, &told, &base);
	report->knob(report->arg, &told);
	if (!m->control->writes ||
		(!knob->unreadable && jm_knob_value_same(found, &line->requested)))
		return 0;
	return m->control->writes(m->state, line->knob - m->first, &line->requested, tell_write,
		(void *)(uintptr_t)report, err);
}

int jm_dry_run(struct jm_dry_run *d, const struct jm_setting *settings, int n,
	const struct jm_dry_report *report, struct jm_err *err)
{
	struct jm_applied *now = calloc((size_t)d->holder.table.knobs.n + 1, sizeof(*now));
	struct jm_applied *plan = NULL;
	int n_plan = 0, rc;

	if (!now)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d settings.", n);
	rc = jm_knob_holder_plan(&d->holder, settings, n, &plan, &n_plan, err);
	if (!rc)
		jm_knob_holder_get(&d->holder, now);
	for (int p = 0; p < n_plan && !rc; p++)
		rc = tell_knob(d, &plan[p], &now[plan[p].knob], report, err);
	free(plan);
	free(now);
	return rc;
}
