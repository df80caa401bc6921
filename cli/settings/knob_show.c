/* SPDX-License-Identifier: Apache-2.0 */
#include "knob_show.h"
#include "base/text/json.h"

#include <stdio.h>
#include <string.h>

void jm_knob_show(const struct jm_knob_value *value, const char *unit, char *out, size_t size)
{
	struct jm_knob_value shown = *value;
	char text[JM_KNOB_TEXT];

	if (!strcmp(unit, "Hz")) {
		shown.low /= 1e6;
		shown.high /= 1e6;
		unit = "MHz";
	}
	if (*value->word || !jm_knob_value_known(value))
		unit = "";
	jm_knob_value_text(&shown, "", text, sizeof(text));
	snprintf(out, size, "%s%s%s", text, *unit ? " " : "", unit);
}

void jm_knob_show_number(double number, const char *unit, char *out, size_t size)
{
	const struct jm_knob_value value = jm_knob_value_of(number);

	jm_knob_show(&value, unit, out, size);
}

json_t *jm_knob_show_json(const struct jm_knob_value *value, const char *unit)
{
	char text[JM_KNOB_TEXT];

	if (!*value->word && (!jm_knob_value_known(value) || value->low == value->high))
		return jm_json_number(value->high);
	jm_knob_value_text(value, unit, text, sizeof(text));
	return json_string(text);
}

static const char *const kind_words[] = {
	[JM_KNOB_NUMBER] = "number",
	[JM_KNOB_RANGE] = "range",
	[JM_KNOB_CHOICE] = "choice",
};

static const char *const ends_words[] = {
	[JM_ENDS_NEVER] = "never",
	[JM_ENDS_REBOOT] = "reboot",
	[JM_ENDS_DRIVER] = "driver",
	[JM_ENDS_PROCESS] = "process",
};

/* The words that the knob takes besides "default". */
static json_t *words_json(const struct jm_knob *k)
{
	json_t *words = json_array();
	const char *at = k->choices;

	for (size_t n; *at; at += n + (at[n] == ' ')) {
		n = strcspn(at, " ");
		json_array_append_new(words, json_stringn(at, n));
	}
	if (k->unlockable)
		json_array_append_new(words, json_string(JM_UNLOCKED));
	return words;
}

const char *jm_knob_ends(const struct jm_knob *k)
{
	return ends_words[k->ends];
}

json_t *jm_knob_json(const struct jm_knob *k, const struct jm_applied *a)
{
	return json_pack("{ss ss ss ss ss ss so so so so so so ss*}", "knob", k->name, "device",
		k->device, "label", k->label, "unit", k->unit, "kind", kind_words[k->kind], "ends",
		jm_knob_ends(k), "words", words_json(k), "accepted",
		jm_knob_show_json(&a->accepted, k->unit), "enforced",
		jm_knob_show_json(&a->enforced, k->unit), "min", jm_json_number(k->min), "max",
		jm_json_number(k->max), "default", jm_knob_show_json(&k->fallback, k->unit),
		"reason", *a->why ? a->why : NULL);
}
