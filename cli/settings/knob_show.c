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
	json_t *json = json_object();

	jm_json_set_text(&json, "knob", k->name);
	jm_json_set_text(&json, "device", k->device);
	jm_json_set_text(&json, "label", k->label);
	jm_json_set_text(&json, "unit", k->unit);
	jm_json_set_text(&json, "kind", kind_words[k->kind]);
	jm_json_set_text(&json, "ends", jm_knob_ends(k));
	jm_json_set(&json, "words", words_json(k));
	jm_json_set(&json, "accepted", jm_knob_show_json(&a->accepted, k->unit));
	jm_json_set(&json, "enforced", jm_knob_show_json(&a->enforced, k->unit));
	jm_json_set_number(&json, "min", k->min);
	jm_json_set_number(&json, "max", k->max);
	jm_json_set(&json, "default", jm_knob_show_json(&k->fallback, k->unit));
	if (*a->why)
		jm_json_set_text(&json, "reason", a->why);
	return json;
}
