/* SPDX-License-Identifier: Apache-2.0 */
/* The points of a run: one after the other, how many, and which are left out. */
#include "plan_points.h"
#include "base/text/value_list.h"
#include "plan_axes.h"
#include "plan_lookup.h"
#include "plan_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LOOKED_AT 2e7 /* points among which those excluded are counted */
#define MAX_COMPUTED  2e4 /* the same where derived values decide */

static int no_memory(struct jm_err *err)
{
	return jm_err_set(err, JM_ENOMEM, "Out of memory for the points of the plan.");
}

static bool derived_match(const struct jm_plan_run *run, const struct jm_plan_point *point,
	const struct jm__plan_condition *c)
{
	struct jm_err none = JM_ERR_INIT;
	const json_t *text;
	char *value = NULL;
	bool match = false;
	size_t i;

	if (jm__plan_value(run, point, c->key, &value, &none))
		return false; /* the same error comes when the point is worked out */
	json_array_foreach(c->texts, i, text)
	{
		match = match || jm__plan_same(value, json_string_value(text));
	}
	free(value);
	return match;
}

/* All that the exclude says of axes and derived values. */
static bool matches(const struct jm_plan_run *run, const struct jm_plan_point *point,
	const struct jm_plan_exclude *x)
{
	for (int i = 0; i < run->n_axes; i++)
		if (x->mask[i] && !x->mask[i][jm__plan_at(run, point, i)])
			return false;
	for (int i = 0; i < x->n_derived; i++)
		if (!derived_match(run, point, &x->derived[i]))
			return false;
	return true;
}

static bool is_excluded(const struct jm_plan_run *run, const struct jm_plan_point *point)
{
	for (int i = 0; i < run->n_excludes; i++)
		if (!run->exclude[i].settings && matches(run, point, &run->exclude[i]))
			return true;
	return false;
}

/* Marks the dials that decide whether a point is excluded. */
static bool mark_dials(const struct jm_plan_run *run, bool *ret_wanted)
{
	bool computed = false;

	for (int i = 0; i < run->n_excludes; i++) {
		const struct jm_plan_exclude *x = &run->exclude[i];

		if (x->settings)
			continue;
		for (int k = 0; k < run->n_axes; k++)
			if (x->mask[k])
				ret_wanted[run->axis[k].dial] = true;
		computed = computed || x->n_derived;
	}
	for (int d = 0; d < run->n_dials && computed; d++)
		ret_wanted[d] = true;
	return computed;
}

/* The next position of the dials whose `wanted` equals `which`; the last one advances fastest. */
static bool turn(
	const struct jm_plan_run *run, const bool *wanted, bool which, struct jm_plan_point *point)
{
	for (int d = run->n_dials - 1; d >= 0; d--) {
		if (wanted[d] != which)
			continue;
		if (++point->at[d] < run->dial_n[d])
			return true;
		point->at[d] = 0;
	}
	return false;
}

/* The dials that decide about exclusion advance slowest, so that all points of an excluded position
 * are skipped at once. */
bool jm_plan_next(const struct jm_plan_run *run, struct jm_plan_point *point)
{
	bool wanted[JM_PLAN_AXES] = {false};

	mark_dials(run, wanted);
	if (turn(run, wanted, false, point))
		return true;
	do {
		if (!turn(run, wanted, true, point))
			return false;
	} while (is_excluded(run, point));
	return true;
}

bool jm_plan_first(const struct jm_plan_run *run, struct jm_plan_point *ret)
{
	bool wanted[JM_PLAN_AXES] = {false};

	*ret = (struct jm_plan_point){0};
	mark_dials(run, wanted);
	while (is_excluded(run, ret))
		if (!turn(run, wanted, true, ret))
			return false;
	return true;
}

int jm_plan_excluded_settings(const struct jm_plan_run *run, const struct jm_plan_point *point,
	json_t *ret, struct jm_err *err)
{
	for (int i = 0; i < run->n_excludes; i++) {
		json_t *settings = run->exclude[i].settings;

		if (settings && matches(run, point, &run->exclude[i]) &&
			json_array_append(ret, settings))
			return no_memory(err);
	}
	return 0;
}

/* ---- counting ---- */

static int count_one(void *arg, const char *value, struct jm_err *err)
{
	(void)value;
	(void)err;
	++*(double *)arg;
	return 0;
}

/* Values of the settings; what is wrong with them is found when they are read. */
static double count_settings(const struct jm_plan_run *run)
{
	const struct jm_plan_key *set = jm_plan_key(run, "set");
	struct jm_plan_point first = {0};
	struct jm_err none = JM_ERR_INIT;
	json_t *texts = json_array(), *text;
	double all = 1;
	size_t i;

	if (set && texts)
		jm_plan_texts(run, &first, set, texts, &none);
	json_array_foreach(texts, i, text)
	{
		const char *values = strchr(json_string_value(text), '=');
		double n = 0;

		if (values && !jm_value_list(values + 1, true, count_one, &n, &none))
			all *= n;
	}
	json_decref(texts);
	return all;
}

static double count_left(const struct jm_plan_run *run, const bool *wanted)
{
	struct jm_plan_point point = {0};
	double n = 0;

	do {
		n += !is_excluded(run, &point);
	} while (turn(run, wanted, true, &point));
	return n;
}

double jm_plan_count(const struct jm_plan_run *run, bool *ret_exact)
{
	bool wanted[JM_PLAN_AXES] = {false}, computed = mark_dials(run, wanted);
	double looked_at = 1, rest = count_settings(run);

	for (int d = 0; d < run->n_dials; d++)
		*(wanted[d] ? &looked_at : &rest) *= run->dial_n[d];
	for (int i = 0; i < run->n_axes; i++)
		if (run->axis[i].free)
			rest *= run->axis[i].n;
	*ret_exact = looked_at <= (computed ? MAX_COMPUTED : MAX_LOOKED_AT);
	return rest * (*ret_exact ? count_left(run, wanted) : looked_at);
}

void jm_plan_axes_text(const struct jm_plan_run *run, char *out, size_t size)
{
	size_t used = 0;

	*out = '\0';
	for (int i = 0; i < run->n_axes && used < size; i++)
		used += (size_t)snprintf(out + used, size - used, "%s%s (%d)", used ? " x " : "",
			run->axis[i].name, run->axis[i].n);
	if (count_settings(run) > 1 && used < size)
		snprintf(out + used, size - used, "%sset (%.0f)", used ? " x " : "",
			count_settings(run));
}
