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

static bool is_choice(const char *choices, const char *word)
{
	size_t n = strlen(word), length;

	for (; *choices; choices += length + (choices[length] == ' ')) {
		length = strcspn(choices, " ");
		if (length == n && !strncmp(choices, word, n))
			return true;
	}
	return false;
}

bool jm_knob_takes_word(const struct jm_knob *knob, const char *word)
{
	return (knob->unlockable && !strcmp(word, JM_UNLOCKED)) || is_choice(knob->choices, word);
}

/* "200W to 700W", "powersave performance", "0.01 to 2 or unlocked" */
static void what_it_takes(const struct jm_knob *knob, char *out, size_t size)
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
	char text[JM_KNOB_TEXT], range[2 * JM_KNOB_TEXT + 40];

	if (jm_knob_value_is(value, JM_DEFAULT) && !jm_knob_value_known(&knob->fallback))
		return jm_err_set(err, JM_EUSAGE,
			"The default of %s on %s (%s) is not known; give a value%s%s.", knob->name,
			knob->label, knob->device, *knob->unit ? " in " : "", knob->unit);
	if (jm_knob_value_is(value, JM_DEFAULT) || takes(knob, value))
		return 0;
	jm_knob_value_text(value, knob->unit, text, sizeof(text));
	what_it_takes(knob, range, sizeof(range));
	return jm_err_set(err, JM_ERANGE, "%s on %s (%s) takes %s, not %s.", knob->name,
		knob->label, knob->device, range, text);
}

int jm_knob_unknown(const struct jm_knob *knob, struct jm_err *err)
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

void jm_knobs_done(struct jm_knobs *set)
{
	free(set->knob);
	*set = (struct jm_knobs){0};
}
