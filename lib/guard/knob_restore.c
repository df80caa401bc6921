/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/knob_restore.h"

#define PASSES 4 /* the third finds nothing to do, unless another program writes as well */

int jm_knob_now(
	const struct jm_knob_table *table, int i, struct jm_knob_value *ret, struct jm_err *err)
{
	struct jm_knob_value enforced;
	int rc = jm_knob_table_get(table, i, ret, &enforced, err);

	if (!rc && !jm_knob_value_known(ret))
		*ret = enforced;
	return rc;
}

static int read_back(const struct jm_knob_table *table, int i, const struct jm_knob_value *value,
	struct jm_err *err)
{
	const struct jm_knob *knob = &table->knobs.knob[i];
	char want[JM_KNOB_TEXT], is[JM_KNOB_TEXT];
	struct jm_knob_value now;
	int rc = jm_knob_now(table, i, &now, err);

	if (rc || jm_knob_value_same(&now, value))
		return rc;
	jm_knob_value_text(value, knob->unit, want, sizeof(want));
	jm_knob_value_text(&now, knob->unit, is, sizeof(is));
	if (!jm_knob_value_known(&now))
		return jm_err_set(err, JM_EIO, "%s of %s was set back to %s but cannot be read.",
			knob->name, knob->label, want);
	return jm_err_set(err, JM_EIO, "%s of %s was set back to %s but its value is %s.",
		knob->name, knob->label, want, is);
}

static int write_value(const struct jm_back *b, struct jm_err *err)
{
	int rc = jm_knob_table_set(b->table, b->i, &b->value, err);

	if (!rc)
		rc = read_back(b->table, b->i, &b->value, err);
	return rc == JM_EGONE && b->table->knobs.knob[b->i].ends == JM_ENDS_PROCESS ? 0 : rc;
}

/* True: the knob was written. Of an unreadable one it is only known what was said of it, so the
 * first pass writes it. */
static bool put_one(struct jm_back *b, bool first)
{
	bool unreadable = b->table->knobs.knob[b->i].unreadable;
	struct jm_err why = JM_ERR_INIT;

	if (unreadable ? b->untouched || (!first && !b->rc)
		       : !read_back(b->table, b->i, &b->value, NULL)) {
		b->rc = 0;
		return false;
	}
	b->rc = write_value(b, &why);
	b->why = why;
	return !b->rc;
}

void jm_put_back_all(struct jm_back *back, int n)
{
	bool wrote = true;

	for (int pass = 0; pass < PASSES && wrote; pass++) {
		wrote = false;
		for (int i = 0; i < n; i++)
			wrote = put_one(&back[i], pass == 0) || wrote;
	}
}

int jm_put_back(const struct jm_knob_table *table, int i, const struct jm_knob_value *value,
	struct jm_err *err)
{
	struct jm_back one = {.table = table, .i = i, .value = *value};

	put_one(&one, true);
	return one.rc ? jm_err_set(err, one.rc, "%s", one.why.text) : 0;
}
