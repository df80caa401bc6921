/* SPDX-License-Identifier: Apache-2.0 */
/* Meters and signals as JSON and back. */
#include "meter/meters_json.h"

#include "base/text/json.h"
#include "base/text/keys.h"
#include "meter/source.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static json_t *signals_to_json(const struct jm_meters *set, const struct jm_meter *m)
{
	json_t *list = json_array();

	for (int i = m->first_signal; i < m->first_signal + m->n_signals; i++) {
		const struct jm_signal *s = &set->signal[i];

		json_t *one = json_object();

		jm_json_set_text(&one, "quantity", jm_quantity_name(s->quantity));
		jm_json_set_number(&one, "step", s->step);
		jm_json_set_number(&one, "wrap", s->wrap);
		jm_json_set_int(&one, "refresh_ns", s->refresh_ns);
		jm_json_set_int(&one, "window_ns", s->window_ns);
		jm_json_set_number(&one, "accuracy", s->accuracy);
		jm_json_set_bool(&one, "stamped", s->stamped);
		json_array_append_new(list, one);
	}
	return list;
}

json_t *jm_meters_to_json(const struct jm_meters *set)
{
	json_t *list = json_array();

	for (int i = 0; i < set->n; i++) {
		const struct jm_meter *m = &set->meter[i];
		json_t *one = json_object();

		jm_json_set_text(&one, "id", m->id);
		jm_json_set_text(&one, "label", m->label);
		jm_json_set_text(&one, "device", m->device);
		jm_json_set_text(&one, "source", m->source);
		jm_json_set_text(&one, "scope", jm_scope_name(m->scope));
		jm_json_set_text(&one, "origin", jm_origin_name(m->origin));
		jm_json_set_text(&one, "covers", m->covers);
		jm_json_set(&one, "signals", signals_to_json(set, m));
		if (json_array_append_new(list, one)) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

/* Index of the text among the words: it is one of them, for it was checked. */
static int index_of(const json_t *object, const char *key, const char *const *words)
{
	const char *text = jm_json_text(object, key);
	int i = 0;

	while (words[i + 1] && strcmp(words[i], text) != 0)
		i++;
	return i;
}

static void copy_text(char *out, size_t size, const json_t *from, const char *key)
{
	const char *text = json_string_value(json_object_get(from, key));

	snprintf(out, size, "%s", text ? text : "");
}

/* The name of a source outlives the set; one that this program does not have is "stored". */
static const char *static_name(const json_t *source)
{
	for (int i = 0; jm_sources[i] && json_is_string(source); i++)
		if (!strcmp(jm_sources[i]->name, json_string_value(source)))
			return jm_sources[i]->name;
	return "stored";
}

#define LONGEST_NS			(INT64_C(1) << 60)
#define MOST_METERS			4096
#define MOST_SIGNALS			64
#define NAME(name, text)		text,
#define QUANTITY_NAME(name, text, unit) text,
static const char *const scopes[] = {JM_SCOPES(NAME) NULL};
static const char *const origins[] = {JM_ORIGINS(NAME) NULL};
static const char *const quantities[] = {JM_QUANTITIES(QUANTITY_NAME) NULL};

static const struct jm_key signal_keys[] = {
	{.name = "quantity", .type = JM_KEY_WORD, .flags = JM_KEY_REQUIRED, .words = quantities},
	{.name = "step", .type = JM_KEY_NUMBER, .min = 0, .max = JM_KEY_HUGE},
	{.name = "wrap", .type = JM_KEY_NUMBER, .min = 0, .max = JM_KEY_HUGE},
	{.name = "refresh_ns", .type = JM_KEY_INTEGER, .min = 0, .max = LONGEST_NS},
	{.name = "window_ns", .type = JM_KEY_INTEGER, .min = -1, .max = LONGEST_NS},
	{.name = "accuracy",
		.type = JM_KEY_NUMBER,
		.flags = JM_KEY_NULL,
		.min = 0,
		.max = JM_KEY_HUGE},
	{.name = "stamped", .type = JM_KEY_FLAG},
	{0},
};

static const struct jm_key meter_keys[] = {
	{.name = "id", .type = JM_KEY_TEXT, .max = JM_ID_MAX - 1},
	{.name = "label", .type = JM_KEY_TEXT, .max = sizeof(((struct jm_meter *)0)->label) - 1},
	{.name = "device", .type = JM_KEY_TEXT, .max = JM_ID_MAX - 1},
	{.name = "source", .type = JM_KEY_TEXT},
	{.name = "scope", .type = JM_KEY_WORD, .flags = JM_KEY_REQUIRED, .words = scopes},
	{.name = "origin", .type = JM_KEY_WORD, .flags = JM_KEY_REQUIRED, .words = origins},
	{.name = "covers", .type = JM_KEY_TEXT},
	{.name = "signals", .type = JM_KEY_LIST, .keys = signal_keys, .max = MOST_SIGNALS},
	{0},
};

static const struct jm_key meters_keys[] = {
	{.name = "meters", .type = JM_KEY_LIST, .keys = meter_keys, .max = MOST_METERS},
	{0},
};

static int add_signal(struct jm_meters *set, const json_t *j, struct jm_err *err)
{
	struct jm_signal s = {
		.quantity = (enum jm_quantity)index_of(j, "quantity", quantities),
		.step = json_number_value(json_object_get(j, "step")),
		.wrap = json_number_value(json_object_get(j, "wrap")),
		.refresh_ns = json_integer_value(json_object_get(j, "refresh_ns")),
		.window_ns = json_integer_value(json_object_get(j, "window_ns")),
		.accuracy = jm_json_real(json_object_get(j, "accuracy")),
		.stamped = json_is_true(json_object_get(j, "stamped")),
	};

	return jm_meters_add_signal(set, &s, err);
}

static int add_meter(struct jm_meters *set, const json_t *j, struct jm_err *err)
{
	const json_t *signals = json_object_get(j, "signals"), *one;
	struct jm_meter m = {.source = static_name(json_object_get(j, "source")),
		.scope = (enum jm_scope)index_of(j, "scope", scopes),
		.origin = (enum jm_origin)index_of(j, "origin", origins)};
	size_t i;
	int rc;

	copy_text(m.id, sizeof(m.id), j, "id");
	copy_text(m.label, sizeof(m.label), j, "label");
	copy_text(m.device, sizeof(m.device), j, "device");
	m.covers = jm_json_text(j, "covers");
	rc = jm_meters_add(set, &m, err);
	json_array_foreach(signals, i, one)
	{
		if (rc >= 0)
			rc = add_signal(set, one, err);
	}
	return rc < 0 ? rc : 0;
}

int jm_meters_from_json(const json_t *json, struct jm_meters *ret, struct jm_err *err)
{
	struct jm_meters set = {0};
	const json_t *one;
	size_t i;
	json_t *all = json ? json_pack("{s:O}", "meters", json) : NULL;
	int rc = jm_keys_check(meters_keys, all, "a stored trace's signals", err);

	json_decref(all);
	if (rc)
		return rc;
	json_array_foreach(json, i, one)
	{
		rc = add_meter(&set, one, err);
		if (rc)
			break;
	}
	if (rc) {
		jm_meters_done(&set);
		return rc;
	}
	jm_meters_derive(&set);
	*ret = set;
	return 0;
}
