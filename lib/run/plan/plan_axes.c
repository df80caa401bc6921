/* SPDX-License-Identifier: Apache-2.0 */
/* The axes of a run: which lists are swept, which advance together, which combinations are
 * omitted. */
#include "plan_axes.h"
#include "base/text/value_list.h"
#include "plan_lookup.h"
#include "plan_text.h"
#include "run/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct maker {
	struct jm_plan_run *run;
	const struct jm_option *rows;
	struct jm_plan_axis *axis; /* the axis that is being filled */
	const struct jm_plan_key *key;
	struct jm_err *err;
};

static int no_memory(struct jm_err *err)
{
	return jm_err_set(err, JM_ENOMEM, "Out of memory for the axes of the plan.");
}

/* ---- axes ---- */

/* Is a comma part of a value of the option? */
static bool has_commas(const char *name)
{
	for (const struct jm_workload *const *w = jm_workloads; *w; w++) {
		const struct jm_option *row = jm_option_find((*w)->options, name);

		if (row && row->use & JM_OPTION_COMMAS)
			return true;
	}
	return false;
}

static int add_value(void *arg, const char *text, struct jm_err *err)
{
	struct maker *m = arg;
	struct jm_plan_axis *a = m->axis;

	if (m->key->kind == JM_PLAN_OPTION && strchr(text, ',') && !has_commas(m->key->name))
		return jm_err_set(err, JM_EUSAGE,
			"A value of the option '%s' cannot hold a comma, which separates values.",
			m->key->name);
	if (a->n == JM_VALUES_MOST)
		return jm_err_set(err, JM_ERANGE, "'%s' has more than %d values; give fewer.",
			m->key->name, JM_VALUES_MOST);
	if (!(a->n & (a->n - 1))) {
		char **grown = reallocarray(a->value, a->n ? 2 * (size_t)a->n : 1, sizeof(*grown));

		if (!grown)
			return no_memory(err);
		a->value = grown;
	}
	a->value[a->n] = strdup(text);
	return a->value[a->n++] ? 0 : no_memory(err);
}

/* "FILE:LINE: " before a sentence that has no place. */
static int placed(const struct jm_yaml *where, int rc, const struct jm_err *why, struct jm_err *err)
{
	return rc ? jm_yaml_fail(where, rc, err, "%s", why->text) : 0;
}

/* One element of a list, or a text alone; a range is several values. */
static int add_values(struct maker *m, const struct jm_yaml *node, bool commas)
{
	struct jm_err why = JM_ERR_INIT;
	struct jm_value_range r;
	char text[64];
	int rc = jm__plan_scalar(node, m->key->name, m->err);

	if (rc)
		return rc;
	if (commas && !strchr(node->text, '{'))
		return placed(
			node, jm_value_list(node->text, true, add_value, m, &why), &why, m->err);
	rc = jm_value_range(node->text, &r, &why);
	if (rc > 0)
		return placed(node, add_value(m, node->text, &why), &why, m->err);
	for (int i = 0; !rc && i < r.n; i++) {
		jm_value_of_range(&r, i, text, sizeof(text));
		rc = add_value(m, text, &why);
	}
	return placed(node, rc, &why, m->err);
}

/* Is a list of this key swept, and may a text be several values? */
static bool is_swept(const struct maker *m, bool *ret_commas)
{
	const struct jm_option *row = jm_option_find(m->rows, m->key->name);

	*ret_commas = m->key->kind == JM_PLAN_OPTION && strcmp(m->key->name, "work") != 0 &&
		      !has_commas(m->key->name);
	return m->key->kind == JM_PLAN_VARIABLE || !row || row->use & JM_OPTION_SWEPT;
}

static int check_single(const struct maker *m)
{
	const struct jm_option *row = jm_option_find(m->rows, m->key->name);

	if (m->key->value->kind == JM_YAML_LIST && !(row && row->repeat))
		return jm_yaml_fail(m->key->value, JM_EUSAGE, m->err,
			"'%s' takes one value and cannot be swept.", m->key->name);
	return 0;
}

static int fill_axis(struct maker *m, bool commas)
{
	const struct jm_yaml *value = m->key->value;
	int rc = 0;

	if (value->kind == JM_YAML_SCALAR)
		return add_values(m, value, commas);
	if (value->kind == JM_YAML_MAP)
		return jm__plan_scalar(value, m->key->name, m->err);
	for (int i = 0; i < value->n && !rc; i++)
		rc = add_values(m, value->item[i], false);
	if (!rc && !m->axis->n)
		rc = jm_yaml_fail(value, JM_EUSAGE, m->err,
			"The list of '%s' is empty, so that the run has no case; give a value.",
			m->key->name);
	return rc;
}

static void free_values(struct jm_plan_axis *a)
{
	for (int i = 0; i < a->n; i++)
		free(a->value[i]);
	free((void *)a->value);
	*a = (struct jm_plan_axis){0};
}

static int add_axis(struct maker *m, struct jm_plan_key *key)
{
	struct jm_plan_run *run = m->run;
	bool commas;
	int rc;

	m->key = key;
	if (jm_plan_key(run, key->name) != key || key->kind == JM_PLAN_DERIVED ||
		!strcmp(key->name, "command"))
		return 0;
	if (!is_swept(m, &commas))
		return check_single(m);
	if (run->n_axes == JM_PLAN_AXES)
		return jm_yaml_fail(key->value, JM_ERANGE, m->err,
			"A run has more than %d values or lists that may be swept.", JM_PLAN_AXES);
	m->axis = &run->axis[run->n_axes];
	*m->axis = (struct jm_plan_axis){.name = key->name, .where = key->value, .dial = -1};
	rc = fill_axis(m, commas);
	if (rc || (m->axis->n == 1 && key->value->kind == JM_YAML_SCALAR)) {
		free_values(m->axis);
		return rc;
	}
	key->axis = run->n_axes++;
	return 0;
}

/* ---- zip ---- */

static int find_axis(const struct jm_plan_run *run, const char *name)
{
	for (int i = 0; i < run->n_axes; i++)
		if (!strcmp(run->axis[i].name, name))
			return i;
	return -1;
}

static int no_axis(struct maker *m, const struct jm_yaml *where, const char *name, const char *word)
{
	const char *names[JM_PLAN_AXES], *near;

	for (int i = 0; i < m->run->n_axes; i++)
		names[i] = m->run->axis[i].name;
	near = jm_did_you_mean(name, names, (size_t)m->run->n_axes);
	if (near)
		return jm_yaml_fail(where, JM_EUSAGE, m->err,
			"'%s' names '%.80s', which is not a list of this run; did you mean '%s'?",
			word, name, near);
	return jm_yaml_fail(where, JM_EUSAGE, m->err,
		"'%s' names '%.80s', which is not a list of this run.", word, name);
}

static int zip_one(struct maker *m, const struct jm_yaml *name, int dial)
{
	struct jm_plan_run *run = m->run;
	int rc = jm__plan_scalar(name, "zip", m->err), i;

	if (rc)
		return rc;
	i = find_axis(run, name->text);
	if (i < 0)
		return no_axis(m, name, name->text, "zip");
	if (run->axis[i].dial >= 0)
		return jm_yaml_fail(
			name, JM_EUSAGE, m->err, "'zip' contains '%s' twice.", name->text);
	if (dial < run->n_dials && run->axis[i].n != run->dial_n[dial])
		return jm_yaml_fail(name, JM_EUSAGE, m->err,
			"Lists in 'zip' must have equal numbers of values; '%s' has %d, and those "
			"before it %d.",
			name->text, run->axis[i].n, run->dial_n[dial]);
	run->axis[i].dial = dial;
	run->dial_n[dial] = run->axis[i].n;
	run->n_dials = dial + 1;
	return 0;
}

static int zip_group(struct maker *m, const struct jm_yaml *group)
{
	int dial = m->run->n_dials, rc = 0;

	if (group->kind != JM_YAML_LIST || group->n < 2)
		return jm_yaml_fail(group, JM_EUSAGE, m->err,
			"'zip' is a list of at least two names, such as [batch, seq], or a list of "
			"such lists.");
	for (int i = 0; i < group->n && !rc; i++)
		rc = zip_one(m, group->item[i], dial);
	return rc;
}

static int read_zip(struct maker *m)
{
	const struct jm_yaml *zip = jm_yaml_get(m->run->where, "zip");
	int rc = 0;

	if (!zip)
		return 0;
	if (zip->kind != JM_YAML_LIST || !zip->n || zip->item[0]->kind != JM_YAML_LIST)
		return zip_group(m, zip);
	for (int i = 0; i < zip->n && !rc; i++)
		rc = zip_group(m, zip->item[i]);
	return rc;
}

/* ---- exclude ---- */

/* Values of one name, ranges as their values. */
static int add_excluded(void *arg, const char *text, struct jm_err *err)
{
	return json_array_append_new(arg, json_string(text)) ? no_memory(err) : 0;
}

static int read_excluded(
	struct maker *m, const char *name, const struct jm_yaml *node, json_t *texts)
{
	struct jm_err why = JM_ERR_INIT;
	int rc = jm__plan_scalar(node, name, m->err);

	return rc ? rc
		  : placed(node, jm_value_list(node->text, true, add_excluded, texts, &why), &why,
			    m->err);
}

static int exclude_values(struct maker *m, struct jm_plan_exclude *x, int axis,
	const struct jm_yaml *where, const json_t *texts)
{
	const struct jm_plan_axis *a = &m->run->axis[axis];
	const json_t *text;
	size_t k;

	x->mask[axis] = calloc((size_t)a->n, sizeof(bool));
	if (!x->mask[axis])
		return no_memory(m->err);
	json_array_foreach(texts, k, text)
	{
		bool any = false;

		for (int i = 0; i < a->n; i++) {
			bool same = jm__plan_same(a->value[i], json_string_value(text));

			x->mask[axis][i] |= same;
			any = any || same;
		}
		if (!any)
			return jm_yaml_fail(where, JM_EUSAGE, m->err,
				"'exclude' names %s=%.80s, which is not a value of that list.",
				a->name, json_string_value(text));
	}
	return 0;
}

static int exclude_derived(
	struct maker *m, struct jm_plan_exclude *x, const struct jm_plan_key *key, json_t *texts)
{
	struct jm__plan_condition *grown =
		reallocarray(x->derived, (size_t)x->n_derived + 1, sizeof(*grown));

	if (!grown)
		return no_memory(m->err);
	x->derived = grown;
	grown[x->n_derived++] = (struct jm__plan_condition){key, json_incref(texts)};
	return 0;
}

/* A name with a point in it is a knob, which the options of `run` read. */
static int exclude_name(struct maker *m, struct jm_plan_exclude *x, const struct jm_yaml *name,
	const struct jm_yaml *value)
{
	const struct jm_plan_key *key = jm_plan_key(m->run, name->text);
	int axis = find_axis(m->run, name->text), rc;
	json_t *texts = json_array();

	rc = texts ? 0 : no_memory(m->err);
	if (!rc && value->kind != JM_YAML_LIST)
		rc = read_excluded(m, name->text, value, texts);
	for (int i = 0; value->kind == JM_YAML_LIST && i < value->n && !rc; i++)
		rc = read_excluded(m, name->text, value->item[i], texts);
	if (!rc && axis >= 0) {
		rc = exclude_values(m, x, axis, value, texts);
	} else if (!rc && key && key->kind == JM_PLAN_DERIVED) {
		rc = exclude_derived(m, x, key, texts);
	} else if (!rc && strchr(name->text, '.')) {
		if (!x->settings)
			x->settings = json_object();
		if (json_object_set(x->settings, name->text, texts))
			rc = no_memory(m->err);
	} else if (!rc) {
		rc = no_axis(m, name, name->text, "exclude");
	}
	json_decref(texts);
	return rc;
}

static int read_exclude(struct maker *m, const struct jm_yaml *node)
{
	struct jm_plan_run *run = m->run;
	struct jm_plan_exclude *grown;
	int rc = 0;

	if (node->kind != JM_YAML_MAP || !node->n)
		return jm_yaml_fail(node, JM_EUSAGE, m->err,
			"'exclude' is a mapping of names to values, such as {batch: 64, seq: "
			"1024}, "
			"or a list of such mappings.");
	grown = reallocarray(run->exclude, (size_t)run->n_excludes + 1, sizeof(*grown));
	if (!grown)
		return no_memory(m->err);
	run->exclude = grown;
	grown[run->n_excludes] = (struct jm_plan_exclude){0};
	run->n_excludes++;
	for (int i = 0; i < node->n && !rc; i++)
		rc = exclude_name(
			m, &run->exclude[run->n_excludes - 1], node->key[i], node->item[i]);
	return rc;
}

static int read_excludes(struct maker *m)
{
	const struct jm_yaml *exclude = jm_yaml_get(m->run->where, "exclude");
	int rc = 0;

	if (!exclude)
		return 0;
	if (exclude->kind != JM_YAML_LIST)
		return read_exclude(m, exclude);
	for (int i = 0; i < exclude->n && !rc; i++)
		rc = read_exclude(m, exclude->item[i]);
	return rc;
}

/* ---- dials ---- */

/* Is the axis free, that is, does nothing in the run depend on which value it has? */
static bool is_free(const struct jm_plan_run *run, const struct jm_plan_key *key)
{
	const struct jm_plan_axis *a = &run->axis[key->axis];

	if (a->dial >= 0 || key->kind != JM_PLAN_OPTION || !strcmp(key->name, "work") ||
		(a->n > 1 && has_commas(key->name))) /* free values are joined by commas */
		return false;
	for (int i = 0; i < run->n_excludes; i++)
		if (run->exclude[i].mask[key->axis] || run->exclude[i].n_derived)
			return false;
	for (int i = 0; i < run->n_keys; i++)
		if (jm__plan_mentions(run->key[i].value, key->name))
			return false;
	for (int i = 0; i < a->n; i++)
		if (strchr(a->value[i], '{'))
			return false;
	return true;
}

static void make_dials(struct jm_plan_run *run)
{
	for (int i = 0; i < run->n_keys; i++) {
		struct jm_plan_axis *a;

		if (run->key[i].axis < 0)
			continue;
		a = &run->axis[run->key[i].axis];
		a->free = is_free(run, &run->key[i]);
		if (a->free || a->dial >= 0)
			continue;
		a->dial = run->n_dials;
		run->dial_n[run->n_dials++] = a->n;
	}
}

int jm__plan_axes(struct jm_plan_run *run, const struct jm_option *rows, struct jm_err *err)
{
	struct maker m = {.run = run, .rows = rows, .err = err};
	int rc = 0;

	for (int i = 0; i < run->n_keys && !rc; i++)
		rc = add_axis(&m, &run->key[i]);
	if (!rc)
		rc = read_zip(&m);
	if (!rc)
		rc = read_excludes(&m);
	if (!rc)
		make_dials(run);
	return rc;
}

void jm__plan_axes_done(struct jm_plan_run *run)
{
	for (int i = 0; i < run->n_axes; i++)
		free_values(&run->axis[i]);
	for (int i = 0; i < run->n_excludes; i++) {
		for (int k = 0; k < JM_PLAN_AXES; k++)
			free(run->exclude[i].mask[k]);
		for (int k = 0; k < run->exclude[i].n_derived; k++)
			json_decref(run->exclude[i].derived[k].texts);
		free(run->exclude[i].derived);
		json_decref(run->exclude[i].settings);
	}
	free(run->exclude);
}
