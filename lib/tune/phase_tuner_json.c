/* SPDX-License-Identifier: Apache-2.0 */
/* The key "policy" of a record: what was looked for, each phase and what it cost under each value,
 * the value of each class, why, what that saved. */
#include "tune/phase_tuner_json.h"
#include "base/text/json.h"
#include "guard/guard_requests.h"
#include "phase_tuner_private.h"

#include <math.h>
#include <stdio.h>

static double value_of(const struct jm_phase_tuner *t, int value)
{
	return value == JM_PHASE_KEEP ? NAN : t->value[value];
}

static json_t *devices_json(const struct jm_phase_tuner *t)
{
	const struct jm_knobs *knobs = jm_guard_knobs(t->o.guard);
	json_t *devices = json_array();

	for (int i = 0; i < t->knob.n; i++)
		json_array_append_new(devices, json_string(knobs->knob[t->knob.index[i]].device));
	return devices;
}

/* Energy and time per unit under each value that was seen. */
static json_t *curve_json(const struct jm_phase_tuner *t, const struct jm_phase_seen *p)
{
	json_t *curve = json_array();

	for (int v = 0; v < t->n_values; v++) {
		const struct jm_phase_sum *sum = &p->value[v];
		json_t *json = json_object();

		jm_json_set_bool(&json, "found", v == JM_PHASE_FOUND);
		jm_json_set_number(&json, "value", value_of(t, v));
		jm_json_set_int(&json, "visits", sum->n);
		jm_json_set_number(&json, "joules", sum->n ? sum->joules / sum->n : NAN);
		jm_json_set_number(&json, "seconds", sum->n ? sum->seconds / sum->n : NAN);
		json_array_append_new(curve, json);
	}
	return curve;
}

static json_t *phase_json(const struct jm_phase_tuner *t, const struct jm_phase_seen *p,
	const struct jm_phase_search_result *r)
{
	json_t *json = json_object();
	int value = p->counts && r->held ? r->value[p->class] : JM_PHASE_FOUND;
	bool short_ = p->kept == p->occurrences;

	jm_json_set_text(&json, "name", p->name);
	jm_json_set_text(&json, "class", jm_phase_class_names[p->class]);
	jm_json_set_text(&json, "class_by", jm_class_origin_names[p->class_origin]);
	jm_json_set_int(&json, "occurrences", p->occurrences);
	jm_json_set_int(&json, "too_short", p->kept);
	jm_json_set_number(&json, "seconds", p->occurrences ? p->seconds / p->occurrences : NAN);
	jm_json_set_bool(&json, "by_items", p->has_items);
	jm_json_set_bool(&json, "found", short_ || value == JM_PHASE_FOUND);
	jm_json_set_number(&json, "value", short_ ? NAN : value_of(t, value));
	jm_json_set(&json, "curve", curve_json(t, p));
	return json;
}

static json_t *phases_json(const struct jm_phase_tuner *t, const struct jm_phase_search_result *r)
{
	json_t *phases = json_array();

	for (int i = 0; i < jm_phase_search_phases(t->search); i++) {
		const struct jm_phase_seen *p = jm_phase_search_at(t->search, i);

		if (p->occurrences)
			json_array_append_new(phases, phase_json(t, p, r));
	}
	return phases;
}

/* Of the classes that a phase has whose values were all seen. */
static json_t *classes_json(const struct jm_phase_tuner *t, const struct jm_phase_search_result *r)
{
	json_t *classes = json_array();

	for (int c = 0; c < JM_CLASSES; c++) {
		bool any = false;
		json_t *json;

		for (int i = 0; i < jm_phase_search_phases(t->search); i++) {
			const struct jm_phase_seen *p = jm_phase_search_at(t->search, i);

			any = any || (p->counts && p->class == (enum jm_phase_class)c);
		}
		if (!any)
			continue;
		json = json_object();
		jm_json_set_text(&json, "class", jm_phase_class_names[c]);
		jm_json_set_bool(&json, "found", r->value[c] == JM_PHASE_FOUND);
		jm_json_set_number(&json, "value", value_of(t, r->value[c]));
		json_array_append_new(classes, json);
	}
	return classes;
}

static const char *choice_text(enum jm_choice choice)
{
	switch (choice) {
	case JM_CHOICE_BETTER:
		return "With these values the objective of all phases together is lower than with "
		       "the setting found; the interval of the difference excludes 0.";
	case JM_CHOICE_FLAT:
		return "No choice of values differs from the setting found by more than 2 %.";
	case JM_CHOICE_FOUND:
	case JM_CHOICE_UNCLEAR:
		return "The best choice of values could not be told from the setting found.";
	case JM_CHOICE_OPEN:
		break;
	}
	return "The work ended before the search did.";
}

static bool any_counts(const struct jm_phase_tuner *t)
{
	bool any = false;

	for (int i = 0; i < jm_phase_search_phases(t->search); i++)
		any = any || jm_phase_search_at(t->search, i)->counts;
	return any;
}

/* Why these values are held, as a sentence. */
static const char *why(const struct jm_phase_tuner *t, const struct jm_phase_search_result *r)
{
	if (*t->stopped)
		return t->stopped;
	if (!jm_phase_search_phases(t->search))
		return "The work marked no phase.";
	if (r->choice == JM_CHOICE_UNCLEAR && !any_counts(t))
		return "No phase that is long enough to be switched was seen under all values; "
		       "give a longer --within, or fewer values by --knob.";
	return choice_text(r->choice);
}

static void set_gain(json_t **json, const char *name, const struct jm_tune_gain *g)
{
	char key[40];

	snprintf(key, sizeof(key), "%s_percent", name);
	jm_json_set_number(json, key, 100 * expm1(g->log));
	snprintf(key, sizeof(key), "%s_error_percent", name);
	jm_json_set_number(json, key, 100 * exp(g->log) * g->half);
}

static void set_gains(json_t **json, const struct jm_phase_search_result *r)
{
	set_gain(json, "objective", &r->objective);
	set_gain(json, "energy", &r->energy);
	set_gain(json, "time", &r->time);
	jm_json_set_number(json, "saved_joules", r->saved);
	jm_json_set_number(json, "saved_error_joules", isnan(r->saved) ? NAN : r->saved_half);
}

json_t *jm_phase_tuner_json(const struct jm_phase_tuner *t)
{
	struct jm_phase_search_result r;
	char objective[40];
	json_t *json = json_object();

	jm_phase_search_result(t->search, &r);
	jm_objective_text(&t->o.objective, objective, sizeof(objective));
	jm_json_set_text(&json, "objective", objective);
	jm_json_set_text(&json, "knob", t->knob.name);
	jm_json_set_text(&json, "unit", t->knob.knob->unit);
	jm_json_set(&json, "devices", devices_json(t));
	jm_json_set_number(&json, "min", t->knob.min);
	jm_json_set_number(&json, "max", t->knob.max);
	jm_json_set_number(&json, "step", t->knob.step);
	jm_json_set_number(&json, "found", t->knob.found);
	jm_json_set_text(&json, "origin", jm_origin_name(t->energy.origin));
	jm_json_set_number(&json, "within_s", t->o.within_s);
	jm_json_set_number(&json, "latency_s", jm__phase_latency(t));
	jm_json_set_int(&json, "switches", t->switches);
	jm_json_set_int(&json, "too_short", r.kept);
	jm_json_set_int(&json, "lost", t->lost);
	jm_json_set_number(&json, "search_s", r.search_s);
	jm_json_set_text(&json, "choice", jm_choice_names[r.choice]);
	jm_json_set_text(&json, "why", why(t, &r));
	jm_json_set_bool(&json, "held", r.held);
	jm_json_set(&json, "stopped", jm_json_said(t->stopped));
	set_gains(&json, &r);
	jm_json_set_bool(&json, "one_found", r.one == JM_PHASE_FOUND);
	jm_json_set_number(&json, "one", value_of(t, r.one));
	jm_json_set(&json, "classes", classes_json(t, &r));
	jm_json_set(&json, "phases", phases_json(t, &r));
	return json;
}
