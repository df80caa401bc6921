/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/knob_restore.h"

#include <stdlib.h>
#include <string.h>

#define PASSES 4 /* the third finds nothing to do, unless another program writes as well */

/* Does the knob have the value again? */
static int read_back(const struct jm_back *b, const struct jm_knob_call *c, struct jm_err *err)
{
	const struct jm_knob *knob = &b->table->knobs.knob[b->i];
	const struct jm_knob_value *now = jm_knob_call_now(c);
	char want[JM_KNOB_TEXT], is[JM_KNOB_TEXT];

	if (c->rc)
		return jm_err_set(err, c->rc, "%s", c->err.text);
	if (jm_knob_value_same(now, &b->value))
		return 0;
	jm_knob_value_text(&b->value, knob->unit, want, sizeof(want));
	jm_knob_value_text(now, knob->unit, is, sizeof(is));
	if (!jm_knob_value_known(now))
		return jm_err_set(err, JM_EIO, "%s of %s was set back to %s but cannot be read.",
			knob->name, knob->label, want);
	return jm_err_set(err, JM_EIO, "%s of %s was set back to %s but its value is %s.",
		knob->name, knob->label, want, is);
}

/* Of an unreadable knob it is only known what was said of it, so the first pass writes it. */
static bool needs_nothing(const struct jm_back *b, bool first)
{
	return b->table->knobs.knob[b->i].unreadable && (b->untouched || (!first && !b->rc));
}

/* This process has changed the knob neither directly nor by a coupled one, and may not write it:
 * another process changed it. */
static bool is_others(const struct jm_back *b, bool coupled)
{
	return b->rc == JM_EPERM && b->untouched && !coupled;
}

/* Those of one table, in their order; true: one has been written. */
static bool put_some(
	struct jm_back *back, int n, bool first, bool coupled, struct jm_knob_call *call)
{
	bool wrote = false;
	int n_calls = 0;

	for (int i = 0; i < n; i++)
		if (!needs_nothing(&back[i], first))
			call[n_calls++] = (struct jm_knob_call){
				.act = JM_KNOB_PUT_BACK, .i = back[i].i, .value = back[i].value};
	jm_knob_table_call(back->table, call, n_calls, false);
	for (int i = 0, c = 0; i < n; i++) {
		struct jm_back *b = &back[i];

		if (needs_nothing(b, first)) {
			b->rc = 0;
			continue;
		}
		b->why = (struct jm_err)JM_ERR_INIT;
		if (first)
			b->seen = call[c].before;
		b->rc = read_back(b, &call[c++], &b->why);
		if (b->rc == JM_EGONE && b->table->knobs.knob[b->i].ends == JM_ENDS_PROCESS)
			b->rc = 0;
		if (is_others(b, coupled))
			b->rc = 0;
		wrote = wrote || (!b->rc && call[c - 1].wrote);
	}
	return wrote;
}

/* Has a device more than one of these knobs, of which one may change another? */
static bool are_coupled(const struct jm_back *back, int n)
{
	for (int i = 0; i < n; i++)
		for (int o = 0; o < i; o++)
			if (!strcmp(back[i].table->knobs.knob[back[i].i].device,
				    back[o].table->knobs.knob[back[o].i].device))
				return true;
	return false;
}

void jm_put_back_all(struct jm_back *back, int n)
{
	struct jm_knob_call *call = malloc(((size_t)n + 1) * sizeof(*call)), one;
	const bool coupled = are_coupled(back, n);
	bool wrote = true;

	for (int pass = 0; pass < (coupled ? PASSES : 1) && wrote; pass++) {
		wrote = false;
		for (int i = 0, next; i < n; i = next) {
			for (next = i + 1; call && next < n && back[next].table == back[i].table;)
				next++;
			wrote = put_some(&back[i], next - i, pass == 0, coupled,
					call ? call : &one) ||
				wrote;
		}
	}
	free(call);
}

void jm_put_back_tell(
	const struct jm_back *b, const struct jm_knob_value *left, const struct jm_ctx *log)
{
	const struct jm_knob *knob = &b->table->knobs.knob[b->i];
	char seen[JM_KNOB_TEXT], set[JM_KNOB_TEXT];

	if (!jm_knob_value_known(left) || !jm_knob_value_known(&b->seen) ||
		jm_knob_value_same(&b->seen, left) || jm_knob_value_same(&b->seen, &b->value))
		return;
	jm_knob_value_text(&b->seen, knob->unit, seen, sizeof(seen));
	jm_knob_value_text(left, knob->unit, set, sizeof(set));
	jm_log(log, JM_WARNING,
		"%s of %s was %s in the end, and had been set to %s: something else has changed it "
		"meanwhile.",
		knob->name, knob->label, seen, set);
}

int jm_put_back(const struct jm_knob_table *table, int i, const struct jm_knob_value *value,
	struct jm_err *err)
{
	struct jm_back one = {.table = table, .i = i, .value = *value};

	jm_put_back_all(&one, 1);
	return one.rc ? jm_err_set(err, one.rc, "%s", one.why.text) : 0;
}
