/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adjacent series of one workload on one machine that were swept by the same knobs: model, device,
 * precision and options in which they differ are axes, which is to say columns of one table, in
 * place of a title each.
 */
#include "family.h"
#include "base/text/json.h"
#include "dimension.h"
#include "report/format/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool same_text(
	const struct jm_group_series *a, const struct jm_group_series *b, const char *key)
{
	return !strcmp(jm_json_text(a->record, key), jm_json_text(b->record, key));
}

static bool compatible(const struct jm_group_series *a, const struct jm_group_series *b)
{
	return same_text(a, b, "workload") && same_text(a, b, "unit") &&
	       *jm_json_text(a->record, "workload") && a->first_machine == b->first_machine &&
	       a->n_machines == 1 && b->n_machines == 1 && a->has_energy == b->has_energy &&
	       a->origin == b->origin && a->mixed_origin == b->mixed_origin &&
	       a->n_meters == b->n_meters && (a->reference < 0) == (b->reference < 0) &&
	       !strcmp(a->grade, b->grade);
}

/* How many series from `first` on share a table; 1 = it has its own. */
static int length_from(const struct jm_grouping *g, int first)
{
	int n = 1;

	while (jm_dim_has_knob(g) && first + n < g->n_series &&
		compatible(&g->series[first], &g->series[first + n]))
		n++;
	return n;
}

void jm_family_axis(const struct jm_group_series *s, const char *name, char *out, size_t size)
{
	const json_t *value = jm_dim_parameter(s->record, name);
	char *text = NULL;

	if (!value)
		value = json_object_get(s->record, name);
	if (value && !json_is_string(value) && !json_is_null(value))
		text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
	jm_text_format(out, size, "%s",
		json_is_string(value) ? json_string_value(value)
		: text		      ? text
				      : "-");
	free(text);
}

static void add_axis(struct jm_family *f, const struct jm_grouping *g, const char *name)
{
	char first[JM_AXIS_TEXT], other[JM_AXIS_TEXT];
	bool differs = false;

	for (int i = 0; i < f->n_axes; i++)
		if (!strcmp(f->axis[i], name))
			return;
	jm_family_axis(&g->series[f->first], name, first, sizeof(first));
	for (int i = 1; i < f->n; i++) {
		jm_family_axis(&g->series[f->first + i], name, other, sizeof(other));
		differs = differs || strcmp(first, other) != 0;
	}
	if (differs && f->n_axes < JM_FAMILY_AXES)
		f->axis[f->n_axes++] = name;
}

static void add_parameters(
	struct jm_family *f, const struct jm_grouping *g, const json_t *parameters)
{
	const json_t *value;
	const char *key;

	json_object_foreach((json_t *)parameters, key, value)
	{
		if (json_is_object(value))
			add_parameters(f, g, value);
		else if (!jm_dim_is(g, key) && strcmp(key, "command") != 0)
			add_axis(f, g, key);
	}
}

static bool has(const struct jm_family *f, const char *name)
{
	for (int i = 0; i < f->n_axes; i++)
		if (!strcmp(f->axis[i], name))
			return true;
	return false;
}

static void put_title(struct jm_family *f, const struct jm_group_series *s)
{
	const char *subject = has(f, "model") ? "" : "model";
	char text[JM_AXIS_TEXT];

	jm_text_format(
		f->all.title, sizeof(f->all.title), "%s", jm_json_text(s->record, "workload"));
	if (*subject && !jm_dim_parameter(s->record, subject))
		subject = has(f, "response") ? "" : "response";
	if (*subject && jm_dim_parameter(s->record, subject)) {
		jm_family_axis(s, subject, text, sizeof(text));
		jm_text_append(f->all.title, sizeof(f->all.title), " ", text);
	}
	if (!has(f, "device"))
		jm_text_append(f->all.title, sizeof(f->all.title), " on ",
			jm_json_text(s->record, "device"));
	if (!has(f, "precision"))
		jm_text_append(f->all.title, sizeof(f->all.title), ", ",
			jm_json_text(s->record, "precision"));
}

void jm_family_of(const struct jm_grouping *g, int first, struct jm_family *ret)
{
	struct jm_family f = {.first = first, .n = length_from(g, first)};

	f.all = g->series[first];
	for (int i = 1; i < f.n; i++) {
		const struct jm_group_series *s = &g->series[first + i];

		f.all.n_points += s->n_points;
		f.all.n_ok += s->n_ok;
		f.all.n_failed += s->n_failed;
	}
	for (int i = 0; i < f.n && f.n > 1; i++)
		add_parameters(&f, g, jm_dim_parameters(g->series[first + i].record));
	if (f.n > 1) {
		add_axis(&f, g, "device");
		add_axis(&f, g, "precision");
		put_title(&f, &g->series[first]);
	}
	*ret = f;
}

void jm_family_name(
	const struct jm_grouping *g, const struct jm_family *f, int member, char *out, size_t size)
{
	char text[JM_AXIS_TEXT];

	out[0] = '\0';
	for (int i = 0; i < f->n_axes; i++) {
		jm_family_axis(&g->series[f->first + member], f->axis[i], text, sizeof(text));
		jm_text_append(out, size, ", ", f->axis[i]);
		jm_text_append(out, size, " ", text);
	}
}

/* The number of a name among those seen, to which it is added; -1: no memory. */
static int number_of(json_t *seen, const char *name)
{
	const json_t *known = json_object_get(seen, name);
	int n = (int)json_object_size(seen);

	if (known)
		return (int)json_integer_value(known);
	return json_object_set_new_nocheck(seen, name, json_integer(n)) ? -1 : n;
}

int jm_family_gather(struct jm_grouping *g)
{
	json_t *seen = json_object();
	int *kind = calloc((size_t)g->n_series + 1, sizeof(*kind)), *place, n = 0;
	char name[200];

	place = calloc((size_t)g->n_series + 1, sizeof(*place));
	for (int i = 0; kind && i < g->n_cases; i++) {
		const json_t *r = g->c[i].record;

		snprintf(name, sizeof(name), "%.90s %.90s", jm_json_text(r, "workload"),
			jm_json_text(r, "unit"));
		kind[g->c[i].series] = number_of(seen, name);
	}
	for (size_t k = 0; kind && place && k < json_object_size(seen); k++)
		for (int i = 0; i < g->n_series; i++)
			if (kind[i] == (int)k)
				place[i] = n++;
	for (int i = 0; place && n == g->n_series && i < g->n_cases; i++)
		g->c[i].series = place[g->c[i].series];
	json_decref(seen);
	free(kind);
	free(place);
	return n == g->n_series ? 0 : -1;
}
