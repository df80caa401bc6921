/* SPDX-License-Identifier: Apache-2.0 */
/* The summary, joulemark.report/1: series, points with statistics, verdicts, cases. Unknown is
 * null. */
#include "summary.h"
#include "base/text/json.h"
#include "report/format/text.h"
#include "report/judge/capacity.h"
#include "report/judge/meaning.h"
#include "report/judge/sentence.h"
#include "report/judge/signature.h"
#include "report/judge/soft_control.h"
#include "report/judge/verdict.h"
#include "report/model/dimension.h"
#include "report/model/warnings.h"
#include "report/systems/published.h"

#include <math.h>
#include <string.h>

static json_t *stat_json(const struct jm_stat *s)
{
	json_t *json = json_object();

	jm_json_set_int(&json, "n", s->n);
	jm_json_set_number(&json, "mean", s->mean);
	jm_json_set_number(&json, "median", s->median);
	jm_json_set_number(&json, "sd", s->sd);
	jm_json_set_number(&json, "low95", s->mean - s->half_width);
	jm_json_set_number(&json, "high95", s->mean + s->half_width);
	jm_json_set_number(&json, "min", s->min);
	jm_json_set_number(&json, "max", s->max);
	return json;
}

static json_t *values_json(const struct jm_grouping *g, const double *value)
{
	json_t *all = json_object();
	char name[64];

	for (int m = 0; m < JM_M_EDS + g->options.n_k; m++) {
		if (jm_metric_of_requests(m) && isnan(value[m]))
			continue;
		jm_group_metric_name(g, m, name, sizeof(name));
		json_object_set_new(all, name, jm_json_number(value[m]));
	}
	return all;
}

static json_t *settings_json(const struct jm_grouping *g, const struct jm_group_point *p)
{
	json_t *all = json_array();

	for (int i = 0; i < g->n_dims; i++) {
		json_t *one = json_object();

		jm_json_set_text(&one, "text", p->value[i].text);
		jm_json_set_number(&one, "x", p->value[i].x);
		jm_json_set_number(&one, "requested", p->value[i].requested);
		jm_json_set_number(&one, "accepted", p->accepted[i]);
		jm_json_set_number(&one, "enforced_min", p->enforced_min[i]);
		jm_json_set_number(&one, "enforced_max", p->enforced_max[i]);
		jm_json_set_text(&one, "state", jm_group_state_name(p->value[i].state));
		json_array_append_new(all, one);
	}
	return all;
}

static json_t *point_json(const struct jm_grouping *g, const struct jm_group_point *p)
{
	json_t *metrics = json_object();
	char name[64];
	json_t *json = json_object();

	for (int m = 0; m < JM_M_EDS + g->options.n_k; m++) {
		if (jm_metric_of_requests(m) && !p->stat[m].n)
			continue;
		jm_group_metric_name(g, m, name, sizeof(name));
		json_object_set_new(metrics, name, stat_json(&p->stat[m]));
	}
	jm_json_set_bool(&json, "pareto", p->pareto);
	jm_json_set(&json, "capacity", jm_capacity(g, p));
	jm_json_set_text(&json, "label", p->label);
	jm_json_set_number(&json, "x", p->x);
	jm_json_set(&json, "settings", settings_json(g, p));
	jm_json_set_bool(&json, "reference", p->reference);
	jm_json_set_text(&json, "state", jm_group_state_name(p->state));
	jm_json_set_int(&json, "runs_ok", p->n_ok);
	jm_json_set_int(&json, "runs_failed", p->n_failed);
	jm_json_set_int(&json, "outliers", p->n_outliers);
	jm_json_set_bool(&json, "eligible", p->eligible);
	jm_json_set_bool(&json, "late", p->late);
	jm_json_set_text(&json, "why_not", p->why_not);
	jm_json_set(&json, "metrics", metrics);
	return json;
}

/* repeats: a verdict that says the same, or NULL. */
static json_t *verdict_json(const struct jm_grouping *g, const struct jm_group_series *s,
	const struct jm_verdict *v, const struct jm_verdict *repeats)
{
	char name[64], title[80], value[160] = "", sentence[400], other[64] = "";
	json_t *tied = json_array();
	json_t *json = json_object();

	jm_group_metric_name(g, v->metric, name, sizeof(name));
	jm_text_question(g, s, v->metric, title, sizeof(title));
	if (repeats)
		jm_group_metric_name(g, repeats->metric, other, sizeof(other));
	jm_text_verdict(g, s, v, sentence, sizeof(sentence));
	for (int i = s->first_point; i < s->first_point + s->n_points; i++)
		if (v->kind == JM_VERDICT_TIE && jm_verdict_tied(g, v, i))
			json_array_append_new(tied, json_integer(i - s->first_point));
	if (v->leading >= 0)
		jm_text_metric_value(
			s, v->metric, &g->point[v->leading].stat[v->metric], value, sizeof(value));
	jm_text_together(value);
	jm_json_set_text(&json, "metric", name);
	jm_json_set(&json, "repeats", repeats ? json_string(other) : json_null());
	jm_json_set_text(&json, "title", title);
	jm_json_set_text(&json, "kind", jm_verdict_kind_name(v->kind));
	jm_json_set(&json, "leading",
		v->leading < 0 ? json_null() : json_integer(v->leading - s->first_point));
	jm_json_set(&json, "tied", tied);
	jm_json_set_text(&json, "text", v->text);
	jm_json_set_text(&json, "value", value);
	jm_json_set_number(&json, "improvement_percent", v->improvement);
	jm_json_set_text(&json, "why", v->why);
	jm_json_set_text(&json, "sentence", sentence);
	return json;
}

static json_t *metrics_json(const struct jm_grouping *g, const struct jm_group_series *s)
{
	char name[64], title[80], unit[48];
	json_t *all = json_object();

	for (int m = 0; m < JM_M_EDS + g->options.n_k; m++) {
		jm_group_metric_name(g, m, name, sizeof(name));
		jm_group_metric_title(g, s, m, title, sizeof(title));
		jm_group_metric_unit(s, m, unit, sizeof(unit));
		json_object_set_new(all, name,
			json_pack("{s:o, s:o, s:i}", "title", json_string(title), "unit",
				json_string(unit), "better", jm_group_metric_better(m)));
	}
	return all;
}

static json_t *parameters_json(const json_t *record)
{
	const json_t *parameters = jm_dim_parameters(record);
	json_t *copy = parameters ? json_copy((json_t *)parameters) : json_object();

	if (json_object_get(copy, "command"))
		json_object_set(copy, "command", (json_t *)jm_dim_command(record));
	return copy;
}

static json_t *series_json(const struct jm_grouping *g, const struct jm_group_series *s)
{
	struct jm_verdict v[JM_VERDICT_MAX];
	json_t *points = json_array(), *verdicts = json_array();
	char energy[200], machine[900];
	int n = jm_verdicts(g, s, v);
	json_t *json = json_object();

	for (int i = s->first_point; i < s->first_point + s->n_points; i++)
		json_array_append_new(points, point_json(g, &g->point[i]));
	for (int i = 0; i < n && s->n_points > 1; i++) {
		int same = jm_verdict_repeats(g, v, n, i);

		json_array_append_new(
			verdicts, verdict_json(g, s, &v[i], same < 0 ? NULL : &v[same]));
	}
	jm_text_energy(g, s, energy, sizeof(energy));
	jm_text_machine(g, s, machine, sizeof(machine));
	jm_json_set(&json, "warnings", jm_warnings(g, s));
	jm_json_set(&json, "soft", jm_soft_json(g, s));
	jm_json_set_number(&json, "devices", jm_json_real_of(s->record, "devices"));
	jm_json_set_text(&json, "title", s->title);
	jm_json_set_text(&json, "item", s->item);
	jm_json_set(&json, "origin",
		s->has_energy ? json_string(s->mixed_origin ? "mixed" : jm_origin_name(s->origin))
			      : json_null());
	jm_json_set_text(&json, "energy", energy);
	jm_json_set_text(&json, "machine", machine);
	jm_json_set_int(&json, "machines", s->n_machines);
	jm_json_set_int(&json, "meters", s->n_meters);
	jm_json_set(&json, "reference",
		s->reference < 0 ? json_null() : json_integer(s->reference - s->first_point));
	jm_json_set(&json, "parameters", parameters_json(s->record));
	jm_json_set(&json, "metrics", metrics_json(g, s));
	jm_json_set_text(&json, "grade", s->grade);
	jm_json_set(&json, "grade_reasons", jm_text_reasons(g, s));
	jm_json_set_int(&json, "runs_ok", s->n_ok);
	jm_json_set_int(&json, "runs_failed", s->n_failed);
	jm_json_set(&json, "points", points);
	jm_json_set(&json, "verdicts", verdicts);
	return json;
}

static json_t *case_json(const struct jm_grouping *g, const struct jm_group_case *c)
{
	const json_t *of_case = json_object_get(c->record, "case");
	const json_t *reason = json_object_get(c->record, "reason");
	const json_t *quality = json_object_get(c->record, "quality");
	static const char *const keys[] = {"id", "repeat", "block", "position", "reference"};
	json_t *out = json_object();

	jm_json_set_int(&out, "series", c->series);
	jm_json_set_int(&out, "point", c->point - g->series[c->series].first_point);
	jm_json_set_bool(&out, "ok", c->ok);
	jm_json_set_bool(&out, "outlier", c->outlier);
	jm_json_set_text(&out, "state", jm_group_state_name(c->state));
	jm_json_set(&out, "values", values_json(g, c->m.value));
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (json_object_get(of_case, keys[i]))
			json_object_set(out, keys[i], json_object_get(of_case, keys[i]));
	jm_json_set(&out, "reason", reason ? json_incref((json_t *)reason) : json_null());
	jm_json_set(&out, "quality", quality ? json_incref((json_t *)quality) : json_null());
	jm_json_set_int(&out, "record", c->index);
	jm_json_set_text(&out, "origin", c->m.has_energy ? jm_origin_name(c->m.origin) : NULL);
	jm_json_set_number(&out, "joules", c->m.joules);
	jm_json_set_number(&out, "items", c->m.items);
	jm_json_set_number(&out, "seconds", c->m.seconds);
	return out;
}

static json_t *figures_json(const struct jm_report_options *o)
{
	const struct jm_figures *f = &o->figures;
	json_t *json = json_object();

	jm_json_set_number(&json, "price_per_kwh", f->price);
	jm_json_set_text(&json, "currency", o->currency);
	jm_json_set_number(&json, "carbon_g_per_kwh", f->carbon);
	jm_json_set_text(&json, "from", o->figures_from);
	jm_json_set_number(&json, "pue", f->pue);
	jm_json_set_number(&json, "peak_flops_per_device", f->peak_flops);
	jm_json_set_number(&json, "zeus_eta", f->zeus_eta);
	jm_json_set_number(&json, "rack_watts", o->rack_watts > 0 ? o->rack_watts : NAN);
	jm_json_set_int(&json, "racks", o->racks > 1 ? o->racks : 1);
	jm_json_set_number(
		&json, "rack_reserve_percent", o->rack_watts > 0 ? o->rack_reserve : NAN);
	jm_json_set_number(&json, "rated_watts", o->rated_watts > 0 ? o->rated_watts : NAN);
	return json;
}

json_t *jm_report_summary(const struct jm_grouping *g, bool with_cases)
{
	json_t *dims = json_array(), *series = json_array(), *cases = json_array();
	json_t *k = json_array();
	json_t *published = g->options.published ? jm_published_of(g) : json_array();
	json_t *signatures = jm_signatures(g);
	bool none = g->options.published && !json_array_size(published);
	char origins[80];
	json_t *json = json_object();

	for (int i = 0; i < g->n_dims; i++)
		json_array_append_new(
			dims, json_pack("{s:o, s:o, s:b}", "name", json_string(g->dim[i].name),
				      "unit", json_string(g->dim[i].unit), "knob", g->dim[i].knob));
	for (int i = 0; i < g->n_series; i++)
		json_array_append_new(series, series_json(g, &g->series[i]));
	for (int i = 0; i < g->n_cases && with_cases; i++)
		json_array_append_new(cases, case_json(g, &g->c[i]));
	for (int i = 0; i < g->options.n_k; i++)
		json_array_append_new(k, json_real(g->options.k[i]));
	jm_text_origins(g, origins, sizeof(origins));
	jm_json_set(&json, "figures", figures_json(&g->options));
	jm_json_set_text(&json, "schema", "joulemark.report/1");
	jm_json_set_text(&json, "joulemark", JM_VERSION);
	jm_json_set(&json, "eds_k", k);
	jm_json_set_number(&json, "added_watts", g->options.add_watts);
	jm_json_set(&json, "idle_gpus", json_boolean(g->options.idle_gpus));
	jm_json_set_text(&json, "not_measured", origins);
	jm_json_set(&json, "dimensions", dims);
	jm_json_set(&json, "series", series);
	jm_json_set(&json, "cases", cases);
	jm_json_set(&json, "signatures", signatures ? signatures : json_null());
	jm_json_set(&json, "published", published);
	jm_json_set_text(&json, "published_note", none ? JM_PUBLISHED_NONE : NULL);
	return json;
}
