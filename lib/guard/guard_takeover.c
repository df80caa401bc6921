/* SPDX-License-Identifier: Apache-2.0 */
/* Journals may be locked, missing or damaged: the known values are restored, and the journals
 * are then updated. */
#include "base/clock.h"
#include "guard/guard_apply.h"
#include "guard/guard_takeover.h"
#include "journal_each.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct pass {
	const struct jm_takeover *t;
	struct jm_knob_table table;
	struct jm_patience patience;
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

static int with_journal(struct pass *p, int i, struct jm_journal *j,
	const struct jm_knob_value *found, struct jm_err *err)
{
	int rc;

	if (is_settled(p, &j->now))
		return 0;
	rc = jm_put_back(&p->table, i, found, err);
	if (!rc)
		close_session(j);
	return rc;
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

/* why: the reason why the journal was not available. */
static int without_journal(struct pass *p, int i, int why, const struct jm_err *sentence,
	const struct jm_knob_value *found, struct jm_err *err)
{
	const struct jm_knob *knob = &p->table.knobs.knob[i];
	struct jm_journal_state seen;
	char text[JM_KNOB_TEXT];
	int rc;

	if (why == JM_EBUSY && !jm_journal_peek(p->t->ctx, knob->name, knob->device, &seen) &&
		is_settled(p, &seen))
		return 0;
	rc = jm_put_back(&p->table, i, found, err);
	if (rc || why == JM_ENOENT)
		return rc;
	if (why == JM_EFORMAT)
		set_aside(p, knob);
	jm_knob_value_text(found, knob->unit, text, sizeof(text));
	jm_log(p->t->ctx, JM_WARNING,
		"%s of %s was put back to %s, as found, without its journal: %s", knob->name,
		knob->label, text, sentence->text);
	return 0;
}

static int take_back(struct pass *p, const struct jm_knob *knob, const struct jm_knob_value *found,
	struct jm_err *err)
{
	int i = jm_knob_table_find(&p->table, knob->name, knob->device), rc;
	struct jm_err why = JM_ERR_INIT;
	char name[JM_JOURNAL_NAME];
	struct jm_journal j;

	if (i < 0 && knob->ends == JM_ENDS_PROCESS)
		return 0; /* the next start closes its journal */
	if (i < 0)
		return jm_err_set(err, JM_EGONE, "%s with its %s is not available now.",
			knob->label, knob->name);
	jm_journal_name(knob->name, knob->device, name, sizeof(name));
	rc = jm_journal_open_name(p->t->ctx, name, &p->patience, &j, &why);
	if (rc)
		return without_journal(p, i, rc, &why, found, err);
	rc = with_journal(p, i, &j, found, err);
	jm_journal_close(&j);
	return rc;
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

static void take_back_all(struct pass *p)
{
	const struct jm_takeover *t = p->t;

	for (int i = t->knobs->n - 1; i >= 0; i--) {
		struct jm_err why = JM_ERR_INIT;
		int rc;

		if (!jm_knob_value_known(&t->found[i]))
			continue;
		rc = take_back(p, &t->knobs->knob[i], &t->found[i], &why);
		if (rc)
			note_failure(p, &t->knobs->knob[i], &t->found[i], rc, &why);
	}
}

int jm_take_over(const struct jm_takeover *t, struct jm_err *err)
{
	struct pass p = {.t = t, .patience = {.limit_ns = JM_SECOND}};
	int rc = jm_knob_table_open_rest(t->ctx, t->controls, &p.table, err);

	if (rc)
		return rc;
	take_back_all(&p);
	jm_knob_table_close(&p.table);
	return p.code ? jm_err_set(err, p.code, "%s", p.failed) : 0;
}
