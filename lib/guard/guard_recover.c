/* SPDX-License-Identifier: Apache-2.0 */
/* Restores the settings of crashed holders and kept settings, and reports them. */
#include "base/clock.h"
#include "base/ctx.h"
#include "base/log_later.h"
#include "base/printable.h"
#include "guard/guard.h"
#include "guard/guard_apply.h"
#include "guard/journal.h"
#include "journal_each.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One pass over all journals. */
struct pass {
	struct jm_ctx *ctx;
	struct jm_log_later log; /* messages are passed on after the values have been restored */
	struct jm_patience patience;
	bool kept_too;
	char boot[40];
	struct jm_knob_table
		table; /* of the previous journal; most often the next one has the same control */
	char spec[JM_SPEC_MAX]; /* "" = none is open */
	int n_back;
	int failed; /* code of the first failure */
	struct jm_err *err;
};

static void close_table(struct pass *p)
{
	if (*p->spec)
		jm_knob_table_close(&p->table);
	*p->spec = '\0';
}

static const struct jm_knob_table *table_of(struct pass *p, const char *spec, struct jm_err *err)
{
	if (*p->spec && !strcmp(p->spec, spec))
		return &p->table;
	close_table(p);
	if (jm_knob_table_open_one(&p->log.ctx, spec, &p->table, err))
		return NULL;
	p->table.announce = p->ctx;
	snprintf(p->spec, sizeof(p->spec), "%s", spec);
	return &p->table;
}

static void tell_back(struct pass *p, const struct jm_journal_state *s, const struct jm_knob *knob,
	const struct jm_knob_value *back, const struct jm_knob_value *before)
{
	char value[JM_KNOB_TEXT], left[JM_KNOB_TEXT];

	p->n_back++;
	jm_knob_value_text(back, knob->unit, value, sizeof(value));
	jm_knob_value_text(before, knob->unit, left, sizeof(left));
	jm_log(&p->log.ctx, s->open ? JM_WARNING : JM_INFO,
		"%s of %s is back at %s; %s (process %d) had left it at %s.", s->knob, knob->label,
		value, s->open ? "a joulemark that was killed" : "'joulemark set'",
		(int)s->client.pid, left);
}

/* Sets the knob of the journal. */
static int put_back(struct pass *p, const struct jm_journal_state *s,
	const struct jm_knob_value *value, struct jm_err *err)
{
	const struct jm_knob_table *table = table_of(p, s->control, err);
	struct jm_knob_value now = jm_knob_value_of(NAN), enforced;
	int i, rc;

	if (!table)
		return err->code;
	i = jm_knob_table_find(table, s->knob, s->device);
	if (i < 0)
		return jm_err_set(
			err, JM_EGONE, "%s with its %s is not available now.", s->device, s->knob);
	jm_knob_table_get(table, i, &now, &enforced, NULL);
	rc = jm_put_back(table, i, value, err);
	if (!rc)
		tell_back(p, s, &table->knobs.knob[i], value, &now);
	return rc;
}

/* If the journal cannot be updated, the value stays restored, and the next start restores it
 * once more. */
static void write_down(struct pass *p, struct jm_journal *j, const struct jm_journal_state *s,
	enum jm_journal_verb verb)
{
	struct jm_err why = JM_ERR_INIT;

	if (jm_journal_write(j, s, verb, NULL, &why))
		jm_log(&p->log.ctx, JM_WARNING, "%s of %s is as it should be, but: %s", s->knob,
			s->device, why.text);
}

static int restore_values(struct pass *p, struct jm_journal *j, struct jm_err *err)
{
	struct jm_journal_state s = j->now;
	int rc = 0;

	if (s.open) {
		rc = put_back(p, &s, &s.found, err);
		if (!rc)
			write_down(p, j, &s, JM_JOURNAL_BACK);
	}
	s.open = false;
	if (!rc && s.kept && p->kept_too) {
		rc = put_back(p, &s, &s.base, err);
		if (!rc)
			write_down(p, j, &s, JM_JOURNAL_GONE);
	}
	return rc;
}

/* Something else than a restore has ended the setting. */
static int close_ended(struct pass *p, struct jm_journal *j, const char *end, struct jm_err *err)
{
	struct jm_journal_state s = j->now;

	jm_log(&p->log.ctx, JM_INFO,
		"%s since process %d set %s of %s, which has ended the setting.", end,
		(int)s.client.pid, s.knob, s.device);
	return jm_journal_write(j, &s, JM_JOURNAL_GONE, NULL, err);
}

/* The journal is locked and has a value to restore. */
static int recover_knob(struct pass *p, struct jm_journal *j, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	int rc;

	if (*j->damage)
		jm_log(&p->log.ctx, JM_WARNING, JM_JOURNAL_MENDED, j->path, j->damage);
	if (jm_outlived(&j->now, p->boot))
		return close_ended(p, j, "The machine has been restarted", err);
	rc = restore_values(p, j, &why);
	if (rc == JM_EGONE && j->now.ends == JM_ENDS_PROCESS)
		return close_ended(p, j, "The device has been removed", err);
	return rc ? jm_err_set(err, rc, "%s", why.text) : 0;
}

static void note_failure(struct pass *p, int rc, const struct jm_err *why)
{
	jm_err_set(p->err, rc, "%s", why->text);
	p->failed = p->failed ? p->failed : rc;
}

/* Does the journal of another user show nothing that its owner's next start would have to restore? */
static bool is_in_order(const struct jm_journal_view *view)
{
	const struct jm_journal_state *s = &view->state;

	return !view->unreadable &&
	       (!s->open || jm_process_runs(&s->guard) || jm_process_runs(&s->client));
}

/* One journal; its failure is reported, and the others continue. */
static int visit(void *arg, const struct jm_journal_view *view, struct jm_err *err)
{
	struct pass *p = arg;
	struct jm_err why = JM_ERR_INIT;
	struct jm_journal j;
	struct jm_journal_state s;
	int rc = jm_journal_open_name(p->ctx, view->name, &p->patience, &j, &why);

	(void)err;
	/* the journal of a living holder is left alone; if the holder has died, its lock is
	 * awaited */
	if (rc == JM_ENOENT || (rc == JM_EBUSY && !p->kept_too) ||
		(rc == JM_EPERM && !p->kept_too && is_in_order(view)))
		return 0;
	if (rc) {
		if (!p->kept_too) /* the error reports it to the caller */
			jm_log(&p->log.ctx, JM_WARNING, "%s", why.text);
		note_failure(p, rc, &why);
		return 0;
	}
	s = j.now;
	rc = recover_knob(p, &j, &why);
	if (rc) {
		jm_log(&p->log.ctx, JM_WARNING,
			"%s of %s is NOT back: %s It stays in the journal %s; 'joulemark restore' "
			"tries again.",
			s.knob, s.device, why.text, j.path);
		note_failure(p, rc, &why);
	}
	jm_journal_close(&j);
	return 0;
}

static int run_pass(
	struct jm_ctx *ctx, bool kept_too, int64_t limit_ns, int *ret_n, struct jm_err *err)
{
	struct pass p = {.ctx = ctx, .kept_too = kept_too, .err = err};
	int rc;

	p.patience = (struct jm_patience){
		.ctx = ctx, .limit_ns = limit_ns, .interrupts = ctx->interrupts};
	jm_log_later_init(&p.log, ctx);
	jm_process_boot(ctx->root, p.boot, sizeof(p.boot));
	rc = jm_journal_each(ctx, visit, &p, err);
	close_table(&p);
	jm_log_later_done(&p.log);
	if (!rc)
		rc = p.failed;
	*ret_n = p.n_back;
	return rc;
}

int jm_guard_recover(struct jm_ctx *ctx, int *ret_n, struct jm_err *err)
{
	return run_pass(ctx, false, JM_LOCK_LIMIT_NS, ret_n, err);
}

int jm_guard_recover_soon(struct jm_ctx *ctx, int *ret_n, struct jm_err *err)
{
	return run_pass(ctx, false, JM_SECOND, ret_n, err);
}

int jm_guard_release(struct jm_ctx *ctx, int *ret_n, struct jm_err *err)
{
	return run_pass(ctx, true, JM_LOCK_LIMIT_NS, ret_n, err);
}

/* ---- the vendor's default, where nothing else is known ----------------------------------------------------- */

/* Under the lock of its journal. */
static int set_default(struct jm_ctx *ctx, const struct jm_knob_table *table, int i,
	struct jm_journal *j, struct jm_err *err)
{
	const struct jm_knob *knob = &table->knobs.knob[i];
	char aside[300], fallback[JM_KNOB_TEXT];
	int rc;

	if (!jm_knob_value_known(&knob->fallback))
		return jm_err_set(err, JM_ENOSUP,
			"The default of %s on %s is not known; its damaged journal %s stays.",
			knob->name, knob->label, j->path);
	rc = jm_put_back(table, i, &knob->fallback, err);
	if (!rc)
		rc = jm_journal_set_aside(j, aside, sizeof(aside), err);
	jm_knob_value_text(&knob->fallback, knob->unit, fallback, sizeof(fallback));
	if (!rc)
		jm_log(ctx, JM_WARNING,
			"%s of %s is at the vendor's default of %s: its original value is "
			"unknown, because its journal was damaged. The damaged journal is kept as "
			"%s.",
			knob->name, knob->label, fallback, aside);
	return rc;
}

int jm_guard_default(struct jm_ctx *ctx, const char *controls, int *ret_n, struct jm_err *err)
{
	struct jm_patience patience = {.ctx = ctx, .limit_ns = JM_LOCK_LIMIT_NS};
	struct jm_knob_table table;
	int rc = jm_knob_table_open(ctx, controls, &table, err);

	*ret_n = 0;
	for (int i = 0; !rc && i < table.knobs.n; i++) {
		const struct jm_knob *knob = &table.knobs.knob[i];
		struct jm_journal_state seen;
		struct jm_journal j;

		if (jm_journal_peek(ctx, knob->name, knob->device, &seen) != JM_EFORMAT)
			continue;
		rc = jm_journal_open_damaged(ctx, knob->name, knob->device, &patience, &j, err);
		if (rc)
			break;
		rc = set_default(ctx, &table, i, &j, err);
		jm_journal_close(&j);
		*ret_n += !rc;
	}
	if (!rc)
		jm_knob_table_close(&table);
	return rc;
}

/* ---- reports ------------------------------------------------------------------------------------------- */

struct holds {
	struct jm_hold *hold;
	int n;
};

static enum jm_held held_now(const struct jm_journal_state *s)
{
	const struct jm_process *holder = s->guard.pid ? &s->guard : &s->client;

	if (!s->open)
		return JM_HELD_KEPT;
	if (!jm_process_runs(holder))
		return JM_HELD_STALE;
	return jm_process_runs(&s->client) ? JM_HELD_LIVE : JM_HELD_ENDING;
}

static void describe(const struct jm_journal_state *s, struct jm_hold *hold)
{
	snprintf(hold->knob, sizeof(hold->knob), "%s", s->knob);
	snprintf(hold->unit, sizeof(hold->unit), "%s", s->unit);
	snprintf(hold->device, sizeof(hold->device), "%s", s->device);
	snprintf(hold->control, sizeof(hold->control), "%s", s->control);
	hold->found = s->open ? s->found : s->base;
	hold->known_by = s->known_by;
	hold->held = held_now(s);
	hold->pid = (int)s->client.pid;
	hold->guard_pid = (int)s->guard.pid;
}

/* Only the name of a damaged journal is known. */
static void describe_damaged(const struct jm_journal_view *view, struct jm_hold *hold)
{
	const char *at = strchr(view->name, '@');
	size_t n = at ? (size_t)(at - view->name) : strlen(view->name);

	snprintf(hold->knob, sizeof(hold->knob), "%.*s", (int)(n < 31 ? n : 31), view->name);
	snprintf(hold->device, sizeof(hold->device), "%.127s", at ? at + 1 : "");
	jm_text_tame(hold->knob);
	jm_text_tame(hold->device);
	snprintf(hold->why, sizeof(hold->why), "%s", view->why);
	hold->found = jm_knob_value_of(NAN);
	hold->held = JM_HELD_UNKNOWN;
}

static int collect(void *arg, const struct jm_journal_view *view, struct jm_err *err)
{
	struct holds *h = arg;
	struct jm_hold *grown, hold = {0};

	if (view->forgotten)
		return 0;
	if (view->unreadable)
		describe_damaged(view, &hold);
	else
		describe(&view->state, &hold);
	grown = reallocarray(h->hold, (size_t)h->n + 1, sizeof(*grown));
	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d journals.", h->n + 1);
	h->hold = grown;
	grown[h->n++] = hold;
	return 0;
}

static int by_device(const void *a, const void *b)
{
	const struct jm_hold *x = a, *y = b;
	int order = strcmp(x->knob, y->knob);

	return order ? order : strcmp(x->device, y->device);
}

int jm_guard_holds(struct jm_ctx *ctx, struct jm_hold **ret, int *ret_n, struct jm_err *err)
{
	struct holds h = {0};
	int rc = jm_journal_each(ctx, collect, &h, err);

	if (!rc)
		rc = jm_journal_each_of_root(ctx, collect, &h, err);
	if (rc) {
		free(h.hold);
		return rc;
	}
	if (h.n)
		qsort(h.hold, (size_t)h.n, sizeof(*h.hold), by_device);
	*ret = h.hold;
	*ret_n = h.n;
	return 0;
}
