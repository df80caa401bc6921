/* SPDX-License-Identifier: Apache-2.0 */
/* Journals may be locked, missing or damaged: the known values are restored, and the journals
 * are then updated. */
#include "base/clock.h"
#include "guard/guard_apply.h"
#include "guard/guard_takeover.h"
#include "journal_each.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A knob to put back, with its locked journal if it could be had. */
struct entry {
	const struct jm_knob *knob;
	bool locked;
	struct jm_journal j;
	int rc; /* of locking it, and why not */
	struct jm_err why;
};

struct pass {
	const struct jm_takeover *t;
	struct jm_knob_table table;
	struct jm_patience patience;
	struct entry *entry; /* each with its place in: */
	struct jm_back *back;
	int n;
	char failed[400]; /* what was not restored, each with its reason */
	int n_failed, code;
};

static bool is_ours(const struct pass *p, const struct jm_journal_state *s)
{
	return s->open && s->guard.pid == p->t->guard.pid && s->guard.start == p->t->guard.start;
}

/* Has another joulemark, which holds the knob now, restored the value that this one had found? */
static bool is_settled(const struct pass *p, const struct jm_journal_state *s)
{
	return (s->open && !is_ours(p, s) && jm_process_runs(&s->guard)) ||
	       (!s->open && s->kept && s->guard.pid != p->t->guard.pid);
}

/* Writes to the locked journal that nothing is held any more. */
static void close_session(struct jm_journal *j)
{
	struct jm_journal_state s = j->now;

	if (s.open && jm_journal_write(j, &s, JM_JOURNAL_BACK, NULL, NULL))
		return; /* the next start restores the same value once more */
}

/* Sets the damaged journal aside: the value is known and has been restored. */
static void set_aside(struct pass *p, const struct jm_knob *knob)
{
	struct jm_journal j;
	char aside[300];

	if (jm_journal_open_damaged(p->t->ctx, knob->name, knob->device, &p->patience, &j, NULL))
		return;
	jm_journal_set_aside(&j, aside, sizeof(aside), NULL);
	jm_journal_close(&j);
}

/* The value is back; its journal could not be read. */
static void say_without(struct pass *p, const struct entry *e, const struct jm_knob_value *found)
{
	char text[JM_KNOB_TEXT];

	if (e->rc == JM_ENOENT)
		return;
	if (e->rc == JM_EFORMAT)
		set_aside(p, e->knob);
	jm_knob_value_text(found, e->knob->unit, text, sizeof(text));
	jm_log(p->t->ctx, JM_WARNING,
		"%s of %s was put back to %s, as found, without its journal: %s", e->knob->name,
		e->knob->label, text, e->why.text);
}

static void note_failure(struct pass *p, const struct jm_knob *knob,
	const struct jm_knob_value *found, int rc, const struct jm_err *why)
{
	size_t n = strlen(p->failed);
	char text[JM_KNOB_TEXT];

	p->code = p->code ? p->code : rc;
	p->n_failed++;
	jm_knob_value_text(found, knob->unit, text, sizeof(text));
	snprintf(p->failed + n, sizeof(p->failed) - n, "%s%s of %s is not back at %s: %s",
		n ? " " : "", knob->name, knob->label, text, why->text);
}

/* Locks the journal; false: another joulemark has put the value back. */
static bool take(struct pass *p, struct entry *e)
{
	char name[JM_JOURNAL_NAME];
	struct jm_journal_state seen;

	jm_journal_name(e->knob->name, e->knob->device, name, sizeof(name));
	e->rc = jm_journal_open_name(p->t->ctx, name, &p->patience, &e->j, &e->why);
	e->locked = !e->rc;
	if (e->rc)
		return e->rc != JM_EBUSY ||
		       jm_journal_peek(p->t->ctx, e->knob->name, e->knob->device, &seen) ||
		       !is_settled(p, &seen);
	if (!is_settled(p, &e->j.now))
		return true;
	jm_journal_close(&e->j);
	return false;
}

static void take_knob(struct pass *p, const struct jm_knob *knob, const struct jm_knob_value *found)
{
	int i = jm_knob_table_find(&p->table, knob->name, knob->device);
	struct jm_err gone = JM_ERR_INIT;

	if (i < 0 && knob->ends == JM_ENDS_PROCESS)
		return; /* the next start closes its journal */
	if (i < 0) {
		jm_err_set(&gone, JM_EGONE, "%s with its %s is not available now.", knob->label,
			knob->name);
		note_failure(p, knob, found, JM_EGONE, &gone);
		return;
	}
	p->entry[p->n] = (struct entry){.knob = knob, .why = JM_ERR_INIT};
	p->back[p->n] = (struct jm_back){.table = &p->table, .i = i, .value = *found};
	p->n += take(p, &p->entry[p->n]);
}

static void conclude(struct pass *p, struct entry *e, const struct jm_back *b)
{
	if (b->rc)
		note_failure(p, e->knob, &b->value, b->rc, &b->why);
	else if (e->locked)
		close_session(&e->j);
	else
		say_without(p, e, &b->value);
	if (e->locked)
		jm_journal_close(&e->j);
}

static void take_back_all(struct pass *p)
{
	const struct jm_takeover *t = p->t;

	for (int i = t->knobs->n - 1; i >= 0; i--)
		if (jm_knob_value_known(&t->found[i]))
			take_knob(p, &t->knobs->knob[i], &t->found[i]);
	jm_put_back_all(p->back, p->n);
	for (int i = 0; i < p->n; i++)
		conclude(p, &p->entry[i], &p->back[i]);
}

int jm_take_over(const struct jm_takeover *t, struct jm_err *err)
{
	struct pass p = {.t = t, .patience = {.limit_ns = JM_SECOND}};
	int rc = jm_knob_table_open_rest(t->ctx, t->controls, &p.table, err);

	if (rc)
		return rc;
	p.entry = calloc((size_t)t->knobs->n + 1, sizeof(*p.entry));
	p.back = calloc((size_t)t->knobs->n + 1, sizeof(*p.back));
	if (p.entry && p.back)
		take_back_all(&p);
	else
		p.code = jm_err_set(err, JM_ENOMEM, "Out of memory to put settings back.");
	free(p.entry);
	free(p.back);
	jm_knob_table_close(&p.table);
	return p.code ? jm_err_set(err, p.code, "%s", p.failed) : 0;
}
