/* SPDX-License-Identifier: Apache-2.0 */
/* Meters and signals as JSON and back. */
#include "meter/meters_json.h"

#include "base/json.h"
#include "meter/source.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static json_t *signals_to_json(const struct jm_meters *set, const struct jm_meter *m)
{
	json_t *list = json_array();

	for (int i = m->first_signal; i < m->first_signal + m->n_signals; i++) {
		const struct jm_signal *s = &set->signal[i];

		json_array_append_new(
			list, json_pack("{s:s, s:f, s:f, s:I, s:I, s:o, s:b}", "quantity",
				      jm_quantity_name(s->quantity), "step", s->step, "wrap",
				      s->wrap, "refresh_ns", (json_int_t)s->refresh_ns, "window_ns",
				      (json_int_t)s->window_ns, "accuracy",
				      jm_json_number(s->accuracy), "stamped", s->stamped));
	}
	return list;
}

json_t *jm_meters_to_json(const struct jm_meters *set)
{
	json_t *list = json_array();

	for (int i = 0; i < set->n; i++) {
		const struct jm_meter *m = &set->meter[i];
		json_t *one = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o}", "id", m->id,
			"label", m->label, "device", m->device, "source", m->source, "scope",
			jm_scope_name(m->scope), "origin", jm_origin_name(m->origin), "covers",
			m->covers, "signals", signals_to_json(set, m));

		if (json_array_append_new(list, one)) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

#define COUNT(X)		       (0 X)
#define ONE_SCOPE(name, text)	       +1
#define ONE_QUANTITY(name, text, unit) +1
enum {
	N_SCOPES = COUNT(JM_SCOPES(ONE_SCOPE)),
	N_ORIGINS = COUNT(JM_ORIGINS(ONE_SCOPE)),
	N_QUANTITIES = COUNT(JM_QUANTITIES(ONE_QUANTITY)),
};

/* Index of the text among n names, or -1. */
static int index_of(const json_t *text, int n, const char *(*name)(int))
{
	for (int i = 0; i < n && json_is_string(text); i++)
		if (!strcmp(name(i), json_string_value(text)))
			return i;
	return -1;
}

static const char *scope_name(int i)
{
	return jm_scope_name((enum jm_scope)i);
}

static const char *origin_name(int i)
{
	return jm_origin_name((enum jm_origin)i);
}

static const char *quantity_name(int i)
{
	return jm_quantity_name((enum jm_quantity)i);
}

static int damaged(struct jm_err *err)
{
	return jm_err_set(err, JM_EFORMAT,
		"The description of a stored trace's signals is damaged; its chunks cannot be "
		"read.");
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

static int add_signal(struct jm_meters *set, const json_t *j, struct jm_err *err)
{
	int quantity = index_of(json_object_get(j, "quantity"), N_QUANTITIES, quantity_name);
	struct jm_signal s = {
		.step = json_number_value(json_object_get(j, "step")),
		.wrap = json_number_value(json_object_get(j, "wrap")),
		.refresh_ns = json_integer_value(json_object_get(j, "refresh_ns")),
		.window_ns = json_integer_value(json_object_get(j, "window_ns")),
		.accuracy = jm_json_real(json_object_get(j, "accuracy")),
		.stamped = json_is_true(json_object_get(j, "stamped")),
	};

	if (quantity < 0)
		return damaged(err);
	s.quantity = (enum jm_quantity)quantity;
	return jm_meters_add_signal(set, &s, err);
}

static int add_meter(struct jm_meters *set, const json_t *j, struct jm_err *err)
{
	int scope = index_of(json_object_get(j, "scope"), N_SCOPES, scope_name);
	int origin = index_of(json_object_get(j, "origin"), N_ORIGINS, origin_name);
	const json_t *signals = json_object_get(j, "signals"), *one;
	struct jm_meter m = {.source = static_name(json_object_get(j, "source"))};
	size_t i;
	int rc;

	if (scope < 0 || origin < 0)
		return damaged(err);
	m.scope = (enum jm_scope)scope;
	m.origin = (enum jm_origin)origin;
	copy_text(m.id, sizeof(m.id), j, "id");
	copy_text(m.label, sizeof(m.label), j, "label");
	copy_text(m.device, sizeof(m.device), j, "device");
	m.covers = json_string_value(json_object_get(j, "covers"));
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
	int rc = json_is_array(json) ? 0 : damaged(err);

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
