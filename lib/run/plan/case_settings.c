/* SPDX-License-Identifier: Apache-2.0 */
/* From the texts of a case's settings to numbers for the guard. */
#include "case_settings.h"
#include "base/text/json.h"
#include "guard/guard_requests.h"
#include "plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELD_WITHIN 0.005 /* of the value that was accepted */

static const json_t *settings_of(const json_t *parameters)
{
	return json_object_get(parameters, "settings");
}

/* The knob of a setting's name where it is of this phase (NULL: of none), else NULL. */
static const char *knob_in(const char *name, const char *phase)
{
	char of[JM_PHASE_NAME];
	const char *knob = jm_case_knob(name, of, sizeof(of));

	return strcmp(of, phase ? phase : "") ? NULL : knob;
}

bool jm_case_sets(const json_t *parameters)
{
	return json_object_size(settings_of(parameters)) > 0;
}

bool jm_case_sets_in(const json_t *parameters, const char *phase)
{
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)settings_of(parameters), name, value)
	{
		if (phase ? knob_in(name, phase) != NULL : !knob_in(name, NULL))
			return true;
	}
	return false;
}

/* "gpu.power" of "gpu.power@GPU-8f" */
static bool same_knob(const char *a, const char *b)
{
	size_t n = strcspn(a, "@");

	return strcspn(b, "@") == n && !strncmp(a, b, n);
}

/* Does a phase set this knob, on whatever device? */
static bool changes(const json_t *parameters, const char *knob)
{
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)settings_of(parameters), name, value)
	{
		if (!knob_in(name, NULL) && same_knob(jm_case_knob(name, NULL, 0), knob))
			return true;
	}
	return false;
}

/* What the knob of a phase has without the phase: the case's own value, else the one found. */
static const char *value_without(const json_t *parameters, const char *knob)
{
	const json_t *settings = settings_of(parameters), *value = json_object_get(settings, knob);
	char bare[64];

	snprintf(bare, sizeof(bare), "%.*s", (int)strcspn(knob, "@"), knob);
	if (!value)
		value = json_object_get(settings, bare);
	return value ? json_string_value(value) : JM_AS_FOUND;
}

json_t *jm_case_in_force(const json_t *parameters, const char *phase)
{
	const json_t *settings = settings_of(parameters);
	json_t *all = json_object(), *value;
	const char *name;

	json_object_foreach((json_t *)(uintptr_t)settings, name, value)
	{
		const char *knob = jm_case_knob(name, NULL, 0), *own = knob_in(name, phase);

		if (!knob_in(name, NULL) && (own || !json_object_get(all, knob)))
			json_object_set_new(all, knob,
				json_string(own ? json_string_value(value)
						: value_without(parameters, knob)));
	}
	return all;
}

/* ---- as numbers ---- */

struct list {
	struct jm_guard *guard;
	const json_t *found, *parameters;
	struct jm_setting *setting;
	int n;
	int first_told; /* those before it are values found that the case does not name */
	int first_own;	/* from here on they are of the phase itself */
};

static int add_setting(struct list *l, const struct jm_setting *setting, struct jm_err *err)
{
	struct jm_setting *grown = reallocarray(l->setting, (size_t)l->n + 1, sizeof(*grown));

	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the settings of a case.");
	l->setting = grown;
	grown[l->n++] = *setting;
	return 0;
}

static int parse_setting(struct list *l, const char *name, const char *value,
	struct jm_setting *ret, struct jm_err *err)
{
	char text[256];
	struct jm_axis axis;
	int rc;

	snprintf(text, sizeof(text), "%s=%s", name, value);
	rc = jm_axis_parse(text, jm_guard_knobs(l->guard), &axis, err);
	if (rc)
		return rc;
	*ret = jm_axis_setting(&axis, 0);
	jm_axis_done(&axis);
	return 0;
}

/* NULL = none of the rows is of the knob */
static const json_t *row_for(const json_t *rows, const struct jm_knob *knob)
{
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		if (!strcmp(jm_json_text(row, "knob"), knob->name) &&
			!strcmp(jm_json_text(row, "device"), knob->device))
			return row;
	}
	return NULL;
}

/* Else a device that came later would keep the value of the case before. */
static int check_known(
	const struct list *l, const char *name, const char *selector, size_t n, struct jm_err *err)
{
	const struct jm_knobs *knobs = jm_guard_knobs(l->guard);

	for (int k = 0; k < knobs->n; k++) {
		const struct jm_knob *knob = &knobs->knob[k];

		if (strlen(knob->name) == n && !strncmp(knob->name, name, n) &&
			jm_selector_means(selector, knob->device) &&
			!jm_plan_other_node(l->parameters, knob->device) &&
			!json_object_get(row_for(l->found, knob), "value"))
			return jm_err_set(err, JM_EUSAGE,
				"What %s of %s had before the first case is not in the plan, so "
				"the case without a setting cannot be run; continue it with the "
				"devices that it began with, or give another --store.",
				knob->name, knob->label);
	}
	return 0;
}

/* name: "gpu.power" or "gpu.power@GPU-8f" */
static int add_as_found(struct list *l, const char *name, struct jm_err *err)
{
	const char *at = strchr(name, '@'), *selector = at ? at + 1 : "";
	size_t n = at ? (size_t)(at - name) : strlen(name), i;
	const json_t *one;
	char full[256];
	int rc = check_known(l, name, selector, n, err);

	json_array_foreach(l->found, i, one)
	{
		const char *knob = json_string_value(json_object_get(one, "knob"));
		const char *device = json_string_value(json_object_get(one, "device"));
		const char *value = json_string_value(json_object_get(one, "value"));
		struct jm_setting setting;

		if (rc || !value || strlen(knob) != n || strncmp(knob, name, n) != 0 ||
			!jm_selector_means(selector, device) ||
			jm_plan_other_node(l->parameters, device))
			continue;
		snprintf(full, sizeof(full), "%s@%s", knob, device);
		rc = parse_setting(l, full, value, &setting, err);
		if (!rc)
			rc = add_setting(l, &setting, err);
	}
	return rc;
}

/* A setting for all devices means those of the case's node, where the guard holds several simulated
 * nodes. */
static void keep_to_node(const struct list *l, struct jm_setting *setting)
{
	const char *node = json_string_value(json_object_get(l->parameters, "device"));
	const struct jm_knobs *knobs = jm_guard_knobs(l->guard);
	bool several = false;

	for (int i = 0; i < knobs->n; i++)
		several = several || jm_plan_other_node(l->parameters, knobs->knob[i].device);
	if (several && !*setting->selector)
		snprintf(setting->selector, sizeof(setting->selector), "%s/", node);
}

static int add_text(struct list *l, const char *name, const char *value, struct jm_err *err)
{
	struct jm_setting setting;
	int rc;

	if (!strcmp(value, JM_AS_FOUND))
		return add_as_found(l, name, err);
	rc = parse_setting(l, name, value, &setting, err);
	if (rc)
		return rc;
	keep_to_node(l, &setting);
	return add_setting(l, &setting, err);
}

/* Knobs that phases set and that the case itself does not. */
static int add_unnamed(struct list *l, struct jm_err *err)
{
	json_t *all = jm_case_in_force(l->parameters, NULL), *value;
	const json_t *settings = settings_of(l->parameters);
	const char *name;
	int rc = all ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for the settings of a case.");

	json_object_foreach(all, name, value)
	{
		if (!rc && !json_object_get(settings, name) &&
			!strcmp(json_string_value(value), JM_AS_FOUND))
			rc = add_as_found(l, name, err);
	}
	json_decref(all);
	return rc;
}

/* Of the phase, or of none; in a phase knobs that no phase changes stay as they are. */
static int add_named(struct list *l, const char *phase, bool all, struct jm_err *err)
{
	const char *name;
	json_t *value;
	int rc = 0;

	json_object_foreach((json_t *)(uintptr_t)settings_of(l->parameters), name, value)
	{
		const char *knob = knob_in(name, phase);

		if (!rc && knob && (all || changes(l->parameters, knob)))
			rc = add_text(l, knob, json_string_value(value), err);
	}
	return rc;
}

static int fill(struct list *l, const char *phase, struct jm_err *err)
{
	int rc = add_unnamed(l, err);

	l->first_told = phase ? 0 : l->n;
	if (!rc)
		rc = add_named(l, NULL, !phase, err);
	l->first_own = l->n;
	return rc || !phase ? rc : add_named(l, phase, true, err);
}

/* The guard takes one value for each device: where several settings mean one, the last holds. */
static int one_for_each(const struct list *l, struct list *ret, struct jm_err *err)
{
	const struct jm_knobs *knobs = jm_guard_knobs(l->guard);
	int rc = 0;

	for (int k = 0; k < knobs->n && !rc; k++) {
		const struct jm_knob *knob = &knobs->knob[k];
		int i = l->n - 1;
		struct jm_setting one;

		while (i >= 0 && !jm_setting_matches(&l->setting[i], knob))
			i--;
		if (i < 0)
			continue;
		one = l->setting[i];
		snprintf(one.selector, sizeof(one.selector), "%s", knob->device);
		rc = add_setting(ret, &one, err);
	}
	return rc;
}

/* ---- the result ---- */

static bool is_meant(const struct list *l, int first, const struct jm_knob *knob)
{
	for (int i = first; i < l->n; i++)
		if (jm_setting_matches(&l->setting[i], knob))
			return true;
	return false;
}

/* Of a word or a range there is no one number, so its text is there, too. */
static json_t *row_of(const struct jm_guard *guard, const struct jm_applied *applied)
{
	const struct jm_knob *knob = &jm_guard_knobs(guard)->knob[applied->knob];
	json_t *row = json_object();
	const struct jm_knob_value *a = &applied->accepted;
	bool plain = !*a->word && (!jm_knob_value_known(a) || a->low == a->high);
	char text[JM_KNOB_TEXT];

	jm_knob_value_text(a, knob->unit, text, sizeof(text));
	jm_json_set_text(&row, "knob", knob->name);
	jm_json_set_text(&row, "device", knob->device);
	jm_json_set_text(&row, "unit", knob->unit);
	jm_json_set_number(&row, "requested", jm_knob_value_number(&applied->requested));
	jm_json_set_number(&row, "accepted", jm_knob_value_number(a));
	jm_json_set_number(&row, "enforced", jm_knob_value_number(&applied->enforced));
	if (!(plain))
		jm_json_set_text(&row, "value", text);
	if (applied->known_by == JM_KNOWN_STATED)
		jm_json_set_text(
			&row, "found", jm_guard_was_probed(guard, knob) ? "probed" : "stated");
	jm_json_set_text(&row, "state", "unknown");
	return row;
}

static json_t *rows_of(
	const struct list *l, const char *phase, const struct jm_applied *applied, int n)
{
	const struct jm_knobs *knobs = jm_guard_knobs(l->guard);
	json_t *rows = json_array();

	for (int i = 0; i < n; i++) {
		const struct jm_knob *knob = &knobs->knob[applied[i].knob];
		json_t *row;

		if (!is_meant(l, l->first_told, knob))
			continue;
		row = row_of(l->guard, &applied[i]);
		if (phase) {
			json_object_set_new(row, "phase", json_string(phase));
			json_object_set_new(
				row, "own", json_boolean(is_meant(l, l->first_own, knob)));
		}
		json_array_append_new(rows, row);
	}
	return rows;
}

int jm_case_apply(struct jm_guard *guard, const json_t *found, const json_t *parameters,
	const char *phase, json_t **ret_rows, struct jm_err *err)
{
	struct list l = {.guard = guard, .found = found, .parameters = parameters}, each = l;
	bool phases = jm_case_sets_in(parameters, NULL);
	struct jm_applied *applied;
	const char *name;
	json_t *value;
	int n = 0, rc;

	/* a guard that was started again has this user's own knobs */
	json_object_foreach((json_t *)(uintptr_t)settings_of(parameters), name, value)
		jm_guard_seek(guard, name);
	applied = calloc((size_t)jm_guard_knobs(guard)->n + 1, sizeof(*applied));
	rc = applied ? fill(&l, phase, err) : JM_ENOMEM;
	if (!applied)
		jm_err_set(err, JM_ENOMEM, "Out of memory for the settings of a case.");
	if (!rc && phases)
		rc = one_for_each(&l, &each, err);
	if (!rc)
		rc = jm_guard_set(guard, phases ? each.setting : l.setting, phases ? each.n : l.n,
			applied, &n, err);
	if (!rc)
		*ret_rows = rows_of(&l, phase, applied, n);
	free(applied);
	free(each.setting);
	free(l.setting);
	return rc;
}

static int check_row(const json_t *row, const struct jm_knob *knob, const struct jm_knob_value *now,
	struct jm_err *err)
{
	double set = jm_json_real_of(row, "accepted"), has = jm_knob_value_number(now);
	const char *value = jm_json_text(row, "value");
	char text[JM_KNOB_TEXT], was[JM_KNOB_TEXT];

	jm_knob_value_text(now, knob->unit, text, sizeof(text));
	if (*value)
		snprintf(was, sizeof(was), "%s", value);
	else
		jm_knob_value_text(&(struct jm_knob_value){.low = set, .high = set}, knob->unit,
			was, sizeof(was));
	if (*value ? !strcmp(value, text) : !(fabs(has - set) > HELD_WITHIN * fabs(set)))
		return 0;
	return jm_err_set(err, JM_EIO,
		"%s of %s had %s when the work began, and %s at its end: another program, or the "
		"device, changed it meanwhile, so that the figures are of no one setting.",
		knob->name, knob->label, was, text);
}

int jm_case_check_held(struct jm_guard *guard, const json_t *rows, struct jm_err *err)
{
	const struct jm_knobs *knobs = jm_guard_knobs(guard);
	struct jm_applied *now = calloc((size_t)knobs->n + 1, sizeof(*now));
	int rc = 0;

	if (!now)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the knobs.");
	if (jm_guard_get(guard, now, NULL)) {
		free(now);
		return 0;
	}
	for (int k = 0; k < knobs->n && !rc; k++) {
		const json_t *row = row_for(rows, &knobs->knob[k]);

		if (row && !knobs->knob[k].unreadable && !*now[k].why &&
			jm_knob_value_known(&now[k].accepted))
			rc = check_row(row, &knobs->knob[k], &now[k].accepted, err);
	}
	free(now);
	return rc;
}

json_t *jm_case_found(const struct jm_knob *knob, const struct jm_knob_value *value)
{
	char text[JM_KNOB_TEXT] = "";

	if (jm_knob_value_known(value))
		jm_knob_value_text(value, knob->unit, text, sizeof(text));
	return json_pack("{s:s, s:s, s:s, s:s*}", "knob", knob->name, "device", knob->device,
		"unit", knob->unit, "value", *text ? text : NULL);
}
