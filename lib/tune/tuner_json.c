/* SPDX-License-Identifier: Apache-2.0 */
/* The key "tune" of a record: what was looked for, each visit, what was chosen and why, what that saved; and "budget". */
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

static json_t *value_or_null(const struct jm_tuner *t, struct jm_tune_setting s)
{
	return jm_json_number(s.found ? t->knob.found : s.value);
}

static json_t *visit_json(const struct jm_tuner *t, int i)
{
	const struct jm_visit *v = jm_search_visit(t->search, i);
	struct jm_tune_gain cost = jm_search_visit_cost(t->search, i);
	int64_t start = t->start_ns[i] - jm_session_began(t->o.session);

	return json_pack("{s:f, s:s, s:b, s:o, s:f, s:f, s:f, s:o, s:o, s:o, s:b}", "start_s",
		(double)start * 1e-9, "stage", jm_stage_names[v->stage], "found", v->setting.found,
		"value", value_or_null(t, v->setting), "seconds", v->seconds, "items", v->items,
		"joules", v->joules, "error_sampling_joules", jm_json_number(v->error_joules),
		"objective", jm_json_number(exp(cost.log)), "objective_error",
		jm_json_number(exp(cost.log) * cost.half), "aside",
		jm_search_visit_aside(t->search, i));
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
	else if (!t->n_start)
		snprintf(out, size, "The work reported no items that a setting could be tuned by.");
	else
		snprintf(out, size, "The work ended before the search did.");
}

static json_t *devices_json(const struct jm_tuner *t)
{
	const struct jm_knobs *knobs = jm_guard_knobs(t->o.guard);
	json_t *devices = json_array();

	for (int i = 0; i < t->knob.n; i++)
		json_array_append_new(devices, json_string(knobs->knob[t->knob.index[i]].device));
	return devices;
}

static json_t *what_json(const struct jm_tuner *t)
{
	char objective[40];

	jm_objective_text(&t->o.objective, objective, sizeof(objective));
	return json_pack("{s:s, s:s, s:s, s:o, s:f, s:f, s:f, s:o, s:s, s:s, s:f, s:f}",
		"objective", objective, "knob", t->knob.name, "unit", t->knob.knob->unit, "devices",
		devices_json(t), "min", t->knob.min, "max", t->knob.max, "step", t->knob.step,
		"found", jm_json_number(t->knob.found), "progress",
		jm_tune_progress_names[t->o.progress], "origin", jm_origin_name(t->origin),
		"window_s", t->o.window_s, "within_s", t->o.within_s);
}

static json_t *gains_json(const struct jm_tuner *t, const struct jm_search_result *r)
{
	bool saved = t->saved != 0;

	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "objective_percent",
		percent(r->objective.log), "objective_error_percent", percent_half(&r->objective),
		"energy_percent", percent(r->energy.log), "energy_error_percent",
		percent_half(&r->energy), "time_percent", percent(r->time.log),
		"time_error_percent", percent_half(&r->time), "saved_joules",
		jm_json_number(saved ? t->saved : NAN), "saved_error_joules",
		jm_json_number(saved ? t->saved_half : NAN));
}

json_t *jm_tuner_json(const struct jm_tuner *t)
{
	struct jm_search_result r;
	json_t *tune = what_json(t), *more = NULL;
	char why[400];
	int rc;

	jm_search_result(t->search, &r);
	why_text(t, &r, why, sizeof(why));
	more = json_pack("{s:s, s:s, s:b, s:o, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:o, s:o}",
		"choice", jm_choice_names[r.choice], "why", why, "chosen_found", r.best.found,
		"chosen", value_or_null(t, r.best), "searches", r.searches, "drifts", r.drifts,
		"lost", t->lost, "outliers", r.outliers, "warmup_s", t->warm_s, "search_s",
		r.search_s, "hold_s", r.hold_s, "stopped",
		*t->stopped ? json_string(t->stopped) : json_null(), "visits", visits_json(t));
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
	json_t *limits = json_array();

	for (int i = 0; i < t->knob.n; i++)
		json_array_append_new(limits,
			json_pack("{s:s, s:o, s:f, s:o}", "device",
				knobs->knob[t->knob.index[i]].device, "found",
				jm_json_number(jm_knob_value_number(&t->knob.of_found[i].value)),
				"limit", r->limit[i], "watts",
				jm_json_number(r->visits ? t->budget.watts[i] : NAN)));
	return limits;
}

json_t *jm_tuner_budget_json(const struct jm_tuner *t)
{
	struct jm_budget_result r;

	jm_budget_result(t->budget.budget, &r);
	return json_pack(
		"{s:f, s:s, s:s, s:s, s:o, s:f, s:b, s:o, s:o, s:i, s:i, s:i, s:i, s:f, s:o}",
		"watts", t->budget.most, "share", jm_share_names[t->o.share], "knob", t->knob.name,
		"progress", jm_tune_progress_names[t->o.progress], "limits", limits_json(t, &r),
		"enforced_most_watts", t->budget.sum_most, "holds",
		jm_budget_holds(t->budget.budget), "first_rate", jm_json_number(r.first_rate),
		"rate", jm_json_number(r.rate), "visits", r.visits, "moves", r.tried, "moves_kept",
		r.kept, "lost", t->lost, "warmup_s", t->warm_s, "stopped",
		*t->stopped ? json_string(t->stopped) : json_null());
}
