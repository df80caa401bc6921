/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/control.h"
#include "base/printable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/member.h"

JM_DEFINE_FIND(control)

int jm_knobs_add(struct jm_knobs *set, const struct jm_knob *knob, struct jm_err *err)
{
	struct jm_knob *grown = reallocarray(set->knob, (size_t)set->n + 1, sizeof(*grown));

	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for knob %s of %s.", knob->name,
			knob->device);
	set->knob = grown;
	grown[set->n] = *knob;
	jm_text_tame(grown[set->n].name);
	jm_text_tame(grown[set->n].device);
	jm_text_tame(grown[set->n].label);
	return set->n++;
}

/* Is the word one of a list that spaces separate? */
static bool is_listed(const char *list, const char *word)
{
	size_t n = strlen(word), length;

	for (; *list; list += length + (list[length] == ' ')) {
		length = strcspn(list, " ");
		if (length == n && !strncmp(list, word, n))
			return true;
	}
	return false;
}

bool jm_knob_takes_word(const struct jm_knob *knob, const char *word)
{
	return (knob->unlockable && !strcmp(word, JM_UNLOCKED)) || is_listed(knob->choices, word);
}

const struct jm_control *jm_control_of_knob(const char *name)
{
	for (int i = 0; jm_controls[i]; i++)
		if (jm_controls[i]->origin == JM_MEASURED && is_listed(jm_controls[i]->knobs, name))
			return jm_controls[i];
	return NULL;
}

/* "200W to 700W", "powersave performance", "0.01 to 2 or unlocked" */
void jm_knob_takes_text(const struct jm_knob *knob, char *out, size_t size)
{
	const struct jm_knob_value min = jm_knob_value_of(knob->min),
				   max = jm_knob_value_of(knob->max);
	char low[JM_KNOB_TEXT], high[JM_KNOB_TEXT];

	jm_knob_value_text(&min, knob->unit, low, sizeof(low));
	jm_knob_value_text(&max, knob->unit, high, sizeof(high));
	if (knob->kind == JM_KNOB_CHOICE)
		snprintf(out, size, "one of %s", knob->choices);
	else
		snprintf(out, size, "%s to %s%s", low, high,
			knob->unlockable ? " or " JM_UNLOCKED : "");
}

static bool takes(const struct jm_knob *knob, const struct jm_knob_value *v)
{
	if (*v->word)
		return jm_knob_takes_word(knob, v->word);
	return knob->kind != JM_KNOB_CHOICE && v->low >= knob->min && v->high <= knob->max &&
	       (v->low == v->high || (knob->kind == JM_KNOB_RANGE && v->low < v->high));
}

int jm_knob_check(const struct jm_knob *knob, const struct jm_knob_value *value, struct jm_err *err)
{
	char text[JM_KNOB_TEXT], range[JM_KNOB_TAKES];

	if (jm_knob_value_is(value, JM_DEFAULT) && !jm_knob_value_known(&knob->fallback))
		return jm_err_set(err, JM_EUSAGE,
			"The default of %s on %s (%s) is not known; give a value%s%s.", knob->name,
			knob->label, knob->device, *knob->unit ? " in " : "", knob->unit);
	if (jm_knob_value_is(value, JM_DEFAULT) || takes(knob, value))
		return 0;
	jm_knob_value_text(value, knob->unit, text, sizeof(text));
	jm_knob_takes_text(knob, range, sizeof(range));
	return jm_err_set(err, JM_ERANGE, "%s on %s (%s) takes %s, not %s.", knob->name,
		knob->label, knob->device, range, text);
}

int jm_knob_check_kind(
	const struct jm_knob *knob, const struct jm_knob_value *value, struct jm_err *err)
{
	bool choice = knob->kind == JM_KNOB_CHOICE;
	char text[JM_KNOB_TEXT];

	if (*value->word ? choice || (knob->unlockable && jm_knob_value_is(value, JM_UNLOCKED))
			 : !choice && value->low > 0 && isfinite(value->high) &&
				   value->low <= value->high)
		return 0;
	jm_knob_value_text(value, knob->unit, text, sizeof(text));
	return jm_err_set(err, JM_ERANGE, "%s on %s (%s) cannot be %s.", knob->name, knob->label,
		knob->device, text);
}

/* The refusal to set a knob whose present value is unknown. */
static int unknown(const struct jm_knob *knob, struct jm_err *err)
{
	if (!knob->unreadable)
		return jm_err_set(err, JM_ENOSUP,
			"%s of %s cannot be read, so it could not be put back; nothing was "
			"changed.",
			knob->name, knob->label);
	return jm_err_set(err, JM_ENOSUP,
		"%s of %s cannot be read, so it could not be put back; nothing was changed. If you "
		"know what it has, state it: --found %s=" JM_UNLOCKED ", or the range.",
		knob->name, knob->label, knob->name);
}

/* Does it stay the same through a journal? */
static bool can_be_journalled(const struct jm_knob_value *value)
{
	struct jm_knob_value again;
	char text[JM_KNOB_TEXT];

	jm_knob_value_write(value, text, sizeof(text));
	return jm_knob_value_read(text, &again) && jm_knob_value_same(&again, value);
}

int jm_knob_check_found(
	const struct jm_knob *knob, const struct jm_knob_value *found, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	char text[JM_KNOB_TEXT];

	if (!jm_knob_value_known(found))
		return unknown(knob, err);
	if (!jm_knob_check(knob, found, &why) && can_be_journalled(found))
		return 0;
	jm_knob_value_text(found, knob->unit, text, sizeof(text));
	return jm_err_set(err, JM_ENOSUP,
		"%s of %s is %s now, which could not be put back%s%s Nothing was changed; give it "
		"another value with the tool that made this one, and start again.",
		knob->name, knob->label, text, why.code ? ": " : ".", why.text);
}

bool jm_knobs_have(const struct jm_knobs *set, const char *name)
{
	for (int i = 0; i < set->n; i++)
		if (!strcmp(set->knob[i].name, name))
			return true;
	return false;
}

void jm_knobs_done(struct jm_knobs *set)
{
	free(set->knob);
	*set = (struct jm_knobs){0};
}
