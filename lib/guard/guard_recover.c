/* SPDX-License-Identifier: Apache-2.0 */
/* Restores the settings of crashed holders and kept settings, and reports them. */
#include "guard/guard_recover.h"
#include "base/clock.h"
#include "base/ctx.h"
#include "base/log_later.h"
#include "base/printable.h"
#include "guard/guard_apply.h"
#include "guard/journal.h"
#include "journal_each.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 64 /* journals that are open at the same time */

/* A locked journal, and what it says is put back. */
struct entry {
	struct jm_journal j;
	struct jm_journal_state s;
	struct jm_knob_value value, before;
	bool last; /* nothing of the knob is journalled afterwards */
	int back;  /* -1 = its device is not available, for this reason: */
	int rc;
	struct jm_err why;
};

/* One pass over all journals. One knob may decide what another takes, so they are put back
 * together. */
struct pass {
	struct jm_ctx *ctx;
	struct jm_log_later log; /* messages are passed on after the values have been restored */
	struct jm_patience patience;
	bool kept_too;
	char boot[40];
	struct entry *entry;
	struct jm_back *back;
	int n;
	struct jm_knob_table table[BATCH];
	char spec[BATCH][JM_SPEC_MAX]; /* that opened it */
	int n_tables;
	int n_back;
	int failed; /* code of the first failure */
	struct jm_err *err;
};

static const struct jm_knob_table *table_of(struct pass *p, const char *spec, struct jm_err *err)
{
	struct jm_knob_table *table = &p->table[p->n_tables];

	for (int i = 0; i < p->n_tables; i++)
		if (!strcmp(p->spec[i], spec))
			return &p->table[i];
	if (jm_knob_table_open_one(&p->log.ctx, spec, table, err))
		return NULL;
	table->announce = p->ctx;
	snprintf(p->spec[p->n_tables++], sizeof(p->spec[0]), "%s", spec);
	return table;
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

/* Something else than a restore has ended the setting. */
static int close_ended(struct pass *p, struct jm_journal *j, const char *end, struct jm_err *err)
{
	struct jm_journal_state s = j->now;

	jm_log(&p->log.ctx, JM_INFO,
		"%s since process %d set %s of %s, which has ended the setting.", end,
		(int)s.client.pid, s.knob, s.device);
	return jm_journal_write(j, &s, JM_JOURNAL_GONE, NULL, err);
}

static void note_failure(struct pass *p, int rc, const struct jm_err *why)
{
	jm_err_set(p->err, rc, "%s", why->text);
	p->failed = p->failed ? p->failed : rc;
}

/* Finds the knob of an entry; what is not available now has a reason in the entry. */
static void find_knob(struct pass *p, struct entry *e, int *n)
{
	const struct jm_knob_table *table = table_of(p, e->s.control, &e->why);
	struct jm_knob_value enforced;
	int i = table ? jm_knob_table_find(table, e->s.knob, e->s.device) : -1;

	e->back = -1;
	e->rc = e->why.code;
	if (table && i < 0)
		e->rc = jm_err_set(&e->why, JM_EGONE, "%s with its %s is not available now.",
			e->s.device, e->s.knob);
	if (e->rc)
		return;
	e->before = jm_knob_value_of(NAN);
	jm_knob_table_get(table, i, &e->before, &enforced, NULL);
	e->back = *n;
	p->back[(*n)++] = (struct jm_back){.table = table, .i = i, .value = e->value};
}

static int conclude(struct pass *p, struct entry *e, struct jm_err *err)
{
	const struct jm_back *b = e->back < 0 ? NULL : &p->back[e->back];

	if (b && !b->rc) {
		tell_back(p, &e->s, &b->table->knobs.knob[b->i], &e->value, &e->before);
		write_down(p, &e->j, &e->s, e->last ? JM_JOURNAL_GONE : JM_JOURNAL_BACK);
		return 0;
	}
	if (!b && e->rc == JM_EGONE && e->s.ends == JM_ENDS_PROCESS)
		return close_ended(p, &e->j, "The device has been removed", err);
	return b ? jm_err_set(err, b->rc, "%s", b->why.text)
		 : jm_err_set(err, e->rc, "%s", e->why.text);
}

static void say_failure(
	struct pass *p, const struct jm_journal *j, int rc, const struct jm_err *why)
{
	jm_log(&p->log.ctx, JM_WARNING,
		"%s of %s is NOT back: %s It stays in the journal %s; 'joulemark restore' "
		"tries again.",
		j->now.knob, j->now.device, why->text, j->path);
	note_failure(p, rc, why);
}

/* Puts back what all entries say, and closes their journals. */
static void finish_batch(struct pass *p)
{
	int n = 0;

	for (int i = 0; i < p->n; i++)
		find_knob(p, &p->entry[i], &n);
	jm_put_back_all(p->back, n);
	for (int i = 0; i < p->n; i++) {
		struct jm_err why = JM_ERR_INIT;
		int rc = conclude(p, &p->entry[i], &why);

		if (rc)
			say_failure(p, &p->entry[i].j, rc, &why);
		jm_journal_close(&p->entry[i].j);
	}
	while (p->n_tables)
		jm_knob_table_close(&p->table[--p->n_tables]);
	p->n = 0;
}

/* The journal is locked; where it has a value to restore now, the pass takes it over. */
static void take(struct pass *p, struct jm_journal *j)
{
	struct jm_err why = JM_ERR_INIT;
	bool last = j->now.kept && p->kept_too;

	if (*j->damage)
		jm_log(&p->log.ctx, JM_WARNING, JM_JOURNAL_MENDED, j->path, j->damage);
	if (jm_outlived(&j->now, p->boot)) {
		if (close_ended(p, j, "The machine has been restarted", &why))
			say_failure(p, j, why.code, &why);
	} else if (j->now.open || last) {
		p->entry[p->n++] = (struct entry){.j = *j,
			.s = j->now,
			.value = last ? j->now.base : j->now.found,
			.last = last,
			.why = JM_ERR_INIT};
		return;
	}
	jm_journal_close(j);
}

/* Does the journal of another user show nothing that its owner's next start would have to
 * restore? */
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
	take(p, &j);
	if (p->n == BATCH || j.stand_in)
		finish_batch(p);
	return 0;
}

static int run_with(
	struct pass *p, struct jm_ctx *ctx, bool kept_too, int64_t limit_ns, struct jm_err *err)
{
	int rc;

	p->ctx = ctx;
	p->kept_too = kept_too;
	p->err = err;
	p->patience = (struct jm_patience){
		.ctx = ctx, .limit_ns = limit_ns, .interrupts = ctx->interrupts};
	jm_log_later_init(&p->log, ctx);
	jm_process_boot(ctx->root, p->boot, sizeof(p->boot));
	rc = jm_journal_each(ctx, visit, p, err);
	finish_batch(p);
	jm_log_later_done(&p->log);
	return rc ? rc : p->failed;
}

static int run_pass(
	struct jm_ctx *ctx, bool kept_too, int64_t limit_ns, int *ret_n, struct jm_err *err)
{
	struct pass *p = calloc(1, sizeof(*p));
	int rc = JM_ENOMEM;

	*ret_n = 0;
	if (p) {
		p->entry = calloc(BATCH, sizeof(*p->entry));
		p->back = calloc(BATCH, sizeof(*p->back));
	}
	if (p && p->entry && p->back)
		rc = run_with(p, ctx, kept_too, limit_ns, err);
	else
		jm_err_set(err, rc, "Out of memory for the journals.");
	if (p) {
		*ret_n = p->n_back;
		free(p->entry);
		free(p->back);
	}
	free(p);
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

/* ---- the vendor's default, where nothing else is known --------------------------------------- */

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

/* Knob i, if its journal is damaged. */
static int mend_knob(struct jm_ctx *ctx, const struct jm_knob_table *table, int i,
	struct jm_patience *patience, int *ret_n, struct jm_err *err)
{
	const struct jm_knob *knob = &table->knobs.knob[i];
	struct jm_journal_state seen;
	struct jm_journal j;
	int rc;

	if (jm_journal_peek(ctx, knob->name, knob->device, &seen) != JM_EFORMAT)
		return 0;
	rc = jm_journal_open_damaged(ctx, knob->name, knob->device, patience, &j, err);
	if (rc)
		return rc;
	rc = set_default(ctx, table, i, &j, err);
	jm_journal_close(&j);
	*ret_n += !rc;
	return rc;
}

int jm_guard_default(struct jm_ctx *ctx, const char *controls, int *ret_n, struct jm_err *err)
{
	struct jm_patience patience = {.ctx = ctx, .limit_ns = JM_LOCK_LIMIT_NS};
	struct jm_knob_table table;
	int first = 0, rc = jm_knob_table_open(ctx, controls, NULL, &table, err);

	*ret_n = 0;
	if (rc)
		return rc;
	for (int i = 0; i < table.knobs.n; i++) { /* one that fails does not stop the others */
		struct jm_err why = JM_ERR_INIT;

		rc = mend_knob(ctx, &table, i, &patience, ret_n, &why);
		if (rc && first)
			jm_log(ctx, JM_WARNING, "%s", why.text);
		else if (rc)
			first = jm_err_set(err, rc, "%s", why.text);
	}
	jm_knob_table_close(&table);
	return first;
}

/* ---- reports --------------------------------------------------------------------------------- */

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
