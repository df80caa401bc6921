/* SPDX-License-Identifier: Apache-2.0 */
/* The key "tune" of a record: what was looked for, each visit, what was chosen and why, what that
 * saved; and "budget". */
#include "tune/tuner_json.h"
#include "guard/guard_requests.h"
#include "base/text/json.h"
#include "tuner_private.h"

#include <math.h>
#include <stdio.h>

/* A ratio's logarithm as a change in percent. */
static json_t *percent(double log)
{
	return jm_json_number(100 * expm1(log));
}

/* Half the interval of such a change. */
static json_t *percent_half(const struct jm_tune_gain *g)
{
	return jm_json_number(100 * exp(g->log) * g->half);
}

/* Of the knob k. */
static json_t *value_or_null(const struct jm_tuner *t, struct jm_tune_setting s, int k)
{
	return jm_json_number(s.found ? t->knob[k].found : s.value[k]);
}

static json_t *visit_json(const struct jm_tuner *t, int i)
{
	const struct jm_visit *v = jm_search_visit(t->search, i);
	struct jm_tune_gain cost = jm_search_visit_cost(t->search, i);
	int64_t start = t->start_ns[i] - jm_session_began(t->o.session);
	json_t *json = json_object();

	jm_json_set_number(&json, "start_s", (double)start * 1e-9);
	jm_json_set_text(&json, "stage", jm_stage_names[v->stage]);
	jm_json_set_bool(&json, "found", v->setting.found);
	jm_json_set(&json, "value", value_or_null(t, v->setting, 0));
	if (t->n_knobs > 1)
		jm_json_set(&json, "second", value_or_null(t, v->setting, 1));
	jm_json_set_number(&json, "seconds", v->seconds);
	jm_json_set_number(&json, "items", v->items);
	jm_json_set_number(&json, "joules", v->joules);
	jm_json_set_number(&json, "error_sampling_joules", v->error_joules);
	jm_json_set_number(&json, "objective", exp(cost.log));
	jm_json_set_number(&json, "objective_error", exp(cost.log) * cost.half);
	jm_json_set_bool(&json, "aside", jm_search_visit_aside(t->search, i));
	return json;
}

static json_t *visits_json(const struct jm_tuner *t)
{
	json_t *visits = json_array();

	for (int i = 0; i < t->n_start; i++) {
		if (json_array_append_new(visits, visit_json(t, i))) {
			json_decref(visits);
			return NULL;
		}
	}
	return visits;
}

/* Why this setting is held, as a sentence. */
static void why_text(
	const struct jm_tuner *t, const struct jm_search_result *r, char *out, size_t size)
{
	switch (r->choice) {
	case JM_CHOICE_BETTER:
		snprintf(out, size,
			"Its objective is lower than that of the setting found; the interval of "
			"the difference excludes 0.");
		return;
	case JM_CHOICE_FLAT:
		snprintf(out, size,
			"The curve is flat: no setting differs from the setting found by more than "
			"%g %%.",
			100 * JM_TUNE_FLAT);
		return;
	case JM_CHOICE_FOUND:
		snprintf(out, size, "No other setting is better than the setting found.");
		return;
	case JM_CHOICE_UNCLEAR:
		snprintf(out, size,
			"The best other setting could not be told from the setting found.");
		return;
	case JM_CHOICE_OPEN:
		break;
	}
	if (*t->stopped)
		snprintf(out, size, "%s", t->stopped);
	else if (!t->left_ns)
		snprintf(out, size, "The work reported no items that a setting could be tuned by.");
	else
		snprintf(out, size, "The work ended before the search did.");
}

static json_t *devices_json(const struct jm_tuner *t, const struct jm_tuned_knob *knob)
{
	const struct jm_knobs *knobs = jm_guard_knobs(t->o.guard);
	json_t *devices = json_array();

	for (int i = 0; i < knob->n; i++)
		json_array_append_new(devices, json_string(knobs->knob[knob->index[i]].device));
	return devices;
}

static void set_knob(json_t **json, const struct jm_tuner *t, const struct jm_tuned_knob *knob)
{
	jm_json_set_text(json, "knob", knob->name);
	jm_json_set_text(json, "unit", knob->knob->unit);
	jm_json_set(json, "devices", devices_json(t, knob));
	jm_json_set_number(json, "min", knob->min);
	jm_json_set_number(json, "max", knob->max);
	jm_json_set_number(json, "step", knob->step);
	jm_json_set_number(json, "found", knob->found);
}

static json_t *second_json(const struct jm_tuner *t, struct jm_tune_setting chosen)
{
	json_t *json = json_object();

	set_knob(&json, t, &t->knob[1]);
	jm_json_set(&json, "chosen", value_or_null(t, chosen, 1));
	return json;
}

static json_t *what_json(const struct jm_tuner *t)
{
	char objective[40];
	json_t *json = json_object();

	jm_objective_text(&t->o.objective, objective, sizeof(objective));
	jm_json_set_text(&json, "objective", objective);
	set_knob(&json, t, &t->knob[0]);
	jm_json_set_text(&json, "progress", jm_tune_progress_names[t->o.progress]);
	jm_json_set_text(&json, "origin", jm_origin_name(t->energy.origin));
	jm_json_set_number(&json, "window_s", t->o.window_s);
	jm_json_set_number(&json, "within_s", t->o.within_s);
	return json;
}

static json_t *gains_json(const struct jm_tuner *t, const struct jm_search_result *r)
{
	bool saved = t->saved != 0;
	json_t *json = json_object();

	jm_json_set(&json, "objective_percent", percent(r->objective.log));
	jm_json_set(&json, "objective_error_percent", percent_half(&r->objective));
	jm_json_set(&json, "energy_percent", percent(r->energy.log));
	jm_json_set(&json, "energy_error_percent", percent_half(&r->energy));
	jm_json_set(&json, "time_percent", percent(r->time.log));
	jm_json_set(&json, "time_error_percent", percent_half(&r->time));
	jm_json_set_number(&json, "saved_joules", saved ? t->saved : NAN);
	jm_json_set_number(&json, "saved_error_joules", saved ? t->saved_half : NAN);
	return json;
}

json_t *jm_tuner_json(const struct jm_tuner *t)
{
	struct jm_search_result r;
	json_t *tune = what_json(t), *more = NULL;
	char why[400];
	int rc;

	jm_search_result(t->search, &r);
	why_text(t, &r, why, sizeof(why));
	more = json_object();
	jm_json_set_text(&more, "choice", jm_choice_names[r.choice]);
	jm_json_set_text(&more, "why", why);
	jm_json_set_bool(&more, "chosen_found", r.best.found);
	jm_json_set(&more, "chosen", value_or_null(t, r.best, 0));
	if (t->n_knobs > 1)
		jm_json_set(&more, "second", second_json(t, r.best));
	jm_json_set_int(&more, "searches", r.searches);
	jm_json_set_int(&more, "drifts", r.drifts);
	jm_json_set_int(&more, "lost", t->lost);
	jm_json_set_int(&more, "outliers", r.outliers);
	jm_json_set_number(&more, "warmup_s", t->warm_s);
	jm_json_set_number(&more, "search_s", r.search_s);
	jm_json_set_number(&more, "hold_s", r.hold_s);
	jm_json_set(&more, "stopped", jm_json_said(t->stopped));
	jm_json_set(&more, "visits", visits_json(t));
	rc = json_object_update_new(tune, more);
	rc |= json_object_update_new(tune, gains_json(t, &r));
	if (!rc)
		return tune;
	json_decref(tune);
	return NULL;
}

/* ---- a budget ---- */

static json_t *limits_json(const struct jm_tuner *t, const struct jm_budget_result *r)
{
	const struct jm_knobs *knobs = jm_guard_knobs(t->o.guard);
	const struct jm_tuned_knob *knob = &t->knob[0];
	json_t *limits = json_array();

	for (int i = 0; i < knob->n; i++)
		json_array_append_new(limits,
			json_pack("{s:s, s:o, s:f, s:o}", "device",
				knobs->knob[knob->index[i]].device, "found",
				jm_json_number(jm_knob_value_number(&knob->of_found[i].value)),
				"limit", r->limit[i], "watts",
				jm_json_number(r->visits ? t->budget.watts[i] : NAN)));
	return limits;
}

static json_t *changes_json(const struct jm_tuner *t)
{
	json_t *changes = json_array();

	for (int i = 0; i < t->budget.n_changes; i++) {
		const struct jm_budget_change *c = &t->budget.change[i];
		int64_t start = c->t_ns - jm_session_began(t->o.session);
		json_t *json = json_object(), *watts = json_array();

		for (int k = 0; k < t->budget.n; k++)
			json_array_append_new(watts, jm_json_number(c->watts[k]));
		jm_json_set_number(&json, "start_s", (double)start * 1e-9);
		jm_json_set(&json, "watts", watts);
		json_array_append_new(changes, json);
	}
	return changes;
}

json_t *jm_tuner_budget_json(const struct jm_tuner *t)
{
	struct jm_budget_result r;
	json_t *json = json_object();

	jm_budget_result(t->budget.budget, &r);
	jm_json_set_number(&json, "watts", t->budget.most);
	jm_json_set_text(&json, "share", jm_share_names[t->o.share]);
	jm_json_set_text(&json, "knob", t->knob[0].name);
	jm_json_set_text(&json, "progress", jm_tune_progress_names[t->o.progress]);
	jm_json_set(&json, "limits", limits_json(t, &r));
	jm_json_set_number(&json, "enforced_most_watts", t->budget.sum_most);
	jm_json_set(&json, "changes", changes_json(t));
	jm_json_set_bool(&json, "holds", jm_budget_holds(t->budget.budget));
	jm_json_set_number(&json, "first_rate", r.first_rate);
	jm_json_set_number(&json, "rate", r.rate);
	jm_json_set_int(&json, "visits", r.visits);
	jm_json_set_int(&json, "moves", r.tried);
	jm_json_set_int(&json, "moves_kept", r.kept);
	jm_json_set_int(&json, "lost", t->lost);
	jm_json_set_number(&json, "warmup_s", t->warm_s);
	jm_json_set(&json, "stopped", jm_json_said(t->stopped));
	return json;
}
