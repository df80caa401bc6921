/* SPDX-License-Identifier: Apache-2.0 */
/* The sentences of a report about a series. */
#include "sentence.h"
#include "base/text/json.h"
#include "meaning.h"
#include "report/format/text.h"
#include "report_objective.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void jm_text_origins(const struct jm_grouping *g, char *out, size_t size)
{
	bool seen[8] = {false};

	out[0] = '\0';
	for (int i = 0; i < g->n_cases; i++)
		if (g->c[i].m.has_energy)
			seen[g->c[i].m.origin] = true;
	for (int i = JM_ESTIMATED; i <= JM_REPLAYED; i++)
		if (seen[i])
			jm_text_append(out, size, ", ", jm_origin_name((enum jm_origin)i));
	if (*out && seen[JM_MEASURED])
		jm_text_append(out, size, ", ", jm_origin_name(JM_MEASURED));
}

const char *jm_text_energy_origin(const struct jm_grouping *g, const struct jm_group_series *s)
{
	bool known = s->has_energy && jm_group_has_metric(g, s, JM_M_WATTS);

	return known ? jm_origin_name(s->origin) : "";
}

void jm_text_energy(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size)
{
	char part[120], sum[40];

	if (!s->has_energy) {
		snprintf(out, size, "energy: unknown, because %s",
			s->n_ok ? "there was no meter" : "no run succeeded");
		return;
	}
	if (s->n_ok && !*jm_text_energy_origin(g, s)) {
		snprintf(out, size, "energy: unknown, because no meter has the readings for it");
		return;
	}
	out[0] = '\0';
	jm_text_sum(s, sum, sizeof(sum));
	if (s->n_meters == 1)
		snprintf(part, sizeof(part), "energy: one meter");
	else
		snprintf(part, sizeof(part), "energy: sum over %s, each counted once", sum);
	jm_text_append(out, size, "", part);
	jm_text_append(
		out, size, ", ", s->mixed_origin ? "of mixed origin" : jm_origin_name(s->origin));
	if (g->options.idle_gpus)
		jm_text_append(out, size, ", ", "idle GPUs included");
	if (g->options.add_watts > 0) {
		snprintf(part, sizeof(part), "%.6g W assumed for the rest of %s node",
			g->options.add_watts, jm_metric_nodes(s->record) > 1 ? "each" : "the");
		jm_text_append(out, size, " + ", part);
	}
}

/* "machine node1, 2 x NVIDIA H100 (GPU-8f000000, GPU-9a000000), nvidia 550.54"; "hosts node1,
 * node2" of ranks on both */
static void put_machine(const struct jm_machine *m, char *out, size_t size)
{
	char devices[400] = "", host[200] = "";

	if (*m->part[JM_MACHINE_HOST])
		jm_text_format(host, sizeof(host), "%s %s",
			strchr(m->part[JM_MACHINE_HOST], ',') ? "hosts" : "machine",
			m->part[JM_MACHINE_HOST]);
	if (*m->models)
		jm_text_format(devices, sizeof(devices), "%s (%s)", m->models, m->ids);
	jm_text_append(out, size, "", host);
	jm_text_append(out, size, ", ", devices);
	jm_text_append(out, size, ", ", m->part[JM_MACHINE_DRIVERS]);
}

/* Each as "node1 (GPU-8f000000)". */
static void put_pooled(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size)
{
	bool *seen = calloc((size_t)g->n_machines, sizeof(*seen));
	char one[160];

	for (int i = 0; seen && i < g->n_cases; i++) {
		const struct jm_machine *m = &g->machine[g->c[i].machine];

		if (&g->series[g->c[i].series] != s || seen[g->c[i].machine])
			continue;
		seen[g->c[i].machine] = true;
		jm_text_format(one, sizeof(one), "%s (%s)", m->part[JM_MACHINE_HOST], m->ids);
		jm_text_append(out, size, ", ", one);
	}
	free(seen);
}

static void put_factor(const struct jm_group_series *s, char *out, size_t size)
{
	if (!s->cards_linked)
		jm_text_format(out, size,
			"no setting was run on all of them, nor are they linked by others, so that "
			"the effects of cards and settings cannot be separated and there is no "
			"interval");
	else if (isnan(s->spread_joules))
		jm_text_format(out, size,
			"the set is a factor: its effect (throughput: %.2g %% from the lowest to "
			"the highest) is removed from means and intervals",
			100 * s->spread_throughput);
	else
		jm_text_format(out, size,
			"the set is a factor: its effect (from the lowest to the highest, "
			"throughput: %.2g %%, energy per %s: %.2g %%) is removed from means and "
			"intervals",
			100 * s->spread_throughput, s->item, 100 * s->spread_joules);
}

void jm_text_machine(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size)
{
	const struct jm_machine *m = &g->machine[s->first_machine];
	char all[300] = "", factor[300];

	out[0] = '\0';
	if (s->n_machines < 2) {
		put_machine(m, out, size);
		return;
	}
	put_pooled(g, s, all, sizeof(all));
	put_factor(s, factor, sizeof(factor));
	jm_text_format(out, size, "%d sets of %s pooled%s%s: %s; %s", s->n_machines,
		*m->models ? m->models : "devices", *m->part[JM_MACHINE_DRIVERS] ? ", " : "",
		m->part[JM_MACHINE_DRIVERS], all, factor);
}

void jm_text_metric_value(const struct jm_group_series *s, int metric, const struct jm_stat *stat,
	char *out, size_t size)
{
	char unit[48], number[64];
	const char *prefix;
	double factor;

	jm_group_metric_unit(s, metric, unit, sizeof(unit));
	factor = jm_text_prefix(unit, stat->mean, &prefix);
	jm_text_estimate(stat->mean / factor, stat->half_width / factor, number, sizeof(number));
	snprintf(out, size, "%s%s%s%s", number, metric < JM_M_EDS ? " " : "", prefix,
		metric < JM_M_EDS ? unit : "");
}

double jm_text_percent_half(const struct jm_stat *stat)
{
	double half_width = stat->half_width;

	return half_width > 0 && half_width < JM_PERCENT_LEAST ? JM_PERCENT_LEAST : half_width;
}

void jm_text_percent(const struct jm_stat *stat, char *out, size_t size)
{
	jm_text_estimate_to(JM_PERCENT_PLACES, stat->mean, jm_text_percent_half(stat), out, size);
}

/* "11.29 ± 0.01 % less energy, 3.50 ± 0.01 % more time"; with another objective than a limit of
 * slowdown after what it goes by, which is the mean power for a budget of it. */
static void put_change(const struct jm_grouping *g, const struct jm_group_series *s,
	const struct jm_group_point *best, char *out, size_t size)
{
	int metric = g->options.objective == JM_OBJECTIVE_POWER ? JM_M_WATTS
								: jm_report_objective_metric(g);
	char gain[64], loss[64], value[160];

	*out = '\0';
	if (g->options.objective != JM_OBJECTIVE_SLOWDOWN) {
		jm_text_metric_value(s, metric, &best->stat[metric], value, sizeof(value));
		jm_text_append(out, size, metric >= JM_M_EDS ? "EDS " : "", value);
	}
	if (s->reference >= 0 && best == &g->point[s->reference]) {
		jm_text_append(out, size, ", ", "the reference");
	} else if (s->reference >= 0) {
		jm_text_percent(&best->stat[JM_M_GAIN], gain, sizeof(gain));
		jm_text_percent(&best->stat[JM_M_LOSS], loss, sizeof(loss));
		jm_text_format(
			value, sizeof(value), "%s %% less energy, %s %% more time", gain, loss);
		jm_text_append(out, size, ", ", value);
	}
}

/* The setting that only its interval excludes. */
static void put_missed(const struct jm_grouping *g, const struct jm_group_series *s,
	const struct jm_verdict *v, char *out, size_t size)
{
	int missed = jm_verdict_within_missed(g, s, v);
	char watts[160];

	*out = '\0';
	if (missed < 0)
		return;
	jm_text_metric_value(
		s, JM_M_WATTS, &g->point[missed].stat[JM_M_WATTS], watts, sizeof(watts));
	jm_text_format(out, size, "; %s is faster, but its %s may be above the budget",
		g->point[missed].label, watts);
}

bool jm_text_within(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size)
{
	char change[200], others[200] = "", per[32], missed[240];
	const char *origin = ""; /* named unless measured */
	const struct jm_group_point *best;
	struct jm_verdict v;

	jm_verdict_within(g, s, &v);
	if (v.kind == JM_VERDICT_NONE)
		return false;
	best = &g->point[v.leading];
	put_change(g, s, best, change, sizeof(change));
	if (g->point[v.leading].bounded)
		jm_text_append(change, sizeof(change), ", ", "p99 within --ttft and --tpot");
	for (int i = s->first_point; i < s->first_point + s->n_points; i++)
		if (i != v.leading && jm_verdict_within_tied(g, &v, i))
			jm_text_append(others, sizeof(others), ", ", g->point[i].label);
	jm_text_per(g, s, per, sizeof(per));
	if (s->mixed_origin || s->origin != JM_MEASURED)
		origin = s->mixed_origin ? "of mixed origin" : jm_origin_name(s->origin);
	put_missed(g, s, &v, missed, sizeof(missed));
	jm_text_format(out, size, "%s%s%s%s%s%s (%s%s%s)%s", *others ? "no clear best: " : "",
		best->label, *others ? ", " : "", others, *per ? " " : "", per, change,
		*origin ? "; " : "", origin, missed);
	return true;
}

void jm_text_within_answer(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size)
{
	struct jm_verdict v;

	if (jm_text_within(g, s, out, size))
		return;
	jm_verdict_within(g, s, &v);
	jm_text_format(out, size, "No best setting: %s.", v.why);
}

const char *jm_text_within_title(const struct jm_grouping *g, char *out, size_t size)
{
	char objective[120];

	jm_report_objective_text(g, objective, sizeof(objective));
	jm_text_format(out, size, "Best setting: %s", objective);
	return out;
}

void jm_text_verdict(const struct jm_grouping *g, const struct jm_group_series *s,
	const struct jm_verdict *v, char *out, size_t size)
{
	char value[160] = "", change[48] = "";

	if (v->kind == JM_VERDICT_NONE) {
		snprintf(out, size, "no conclusion: %s", v->why);
		return;
	}
	jm_text_metric_value(
		s, v->metric, &g->point[v->leading].stat[v->metric], value, sizeof(value));
	if (v->kind == JM_VERDICT_TIE) {
		jm_text_format(out, size, "%s (the %s mean: %s, %s)", v->text,
			jm_group_metric_better(v->metric) > 0 ? "highest" : "lowest",
			g->point[v->leading].label, value);
		return;
	}
	if (v->metric != JM_M_GAIN && v->metric != JM_M_GAIN_LOSS && isfinite(v->improvement) &&
		v->leading != s->reference)
		snprintf(change, sizeof(change), ", %.1f %% %s than the reference",
			fabs(v->improvement), v->improvement < 0 ? "worse" : "better");
	jm_text_format(out, size, "%s (%s%s)", v->text, value, change);
}

/* A measured command has no text for it, but its status. */
static void text_reason(const json_t *record, char *out, size_t size)
{
	const json_t *status = json_object_get(record, "exit_status");
	const json_t *killed = json_object_get(record, "signal");
	const char *reason = jm_json_text(record, "reason");

	if (*reason)
		jm_text_format(out, size, "%s", reason);
	else if (json_is_integer(killed))
		snprintf(out, size, "The command was killed by signal %d.",
			(int)json_integer_value(killed));
	else if (json_is_integer(status))
		snprintf(out, size, "The command ended with status %d.",
			(int)json_integer_value(status));
	else
		snprintf(out, size, "no reason was recorded.");
}

void jm_text_failure(
	const struct jm_grouping *g, const struct jm_group_case *c, char *out, size_t size)
{
	const json_t *of_case = json_object_get(c->record, "case");
	const json_t *repeat = json_object_get(of_case, "repeat");
	const char *id = jm_json_text(of_case, "id");
	char number[32] = "", reason[800];

	text_reason(c->record, reason, sizeof(reason));
	if (!*id)
		id = jm_json_text(c->record, "id");
	if (json_is_integer(repeat))
		snprintf(number, sizeof(number), ", repeat %d", (int)json_integer_value(repeat));
	jm_text_format(out, size, "%s%s%s%.8s%s: %s", g->point[c->point].label, number,
		*id ? " (" : "", id, *id ? ")" : "", reason);
}

/* The same words with other numbers, as two runs say them of the same meter. */
static bool alike(const char *a, const char *b)
{
	static const char number[] = "+-.0123456789e";

	while (*a && *b) {
		if (strchr("0123456789", *a) && strchr("0123456789", *b)) {
			a += strspn(a, number);
			b += strspn(b, number);
		} else if (*a++ != *b++) {
			return false;
		}
	}
	return *a == *b;
}

/* Did an earlier run say that? n_earlier: how many of the reasons are of earlier runs. */
static bool was_said(const json_t *said, size_t n_earlier, const char *text)
{
	const json_t *other;
	size_t i;

	json_array_foreach(said, i, other)
	{
		const char *o = json_string_value(other);

		if (!strcmp(o, text) || (i < n_earlier && alike(o, text)))
			return true;
	}
	return false;
}

json_t *jm_text_reasons(const struct jm_grouping *g, const struct jm_group_series *s)
{
	json_t *all = json_array();

	for (int i = 0; i < g->n_cases; i++) {
		const json_t *quality = json_object_get(g->c[i].record, "quality"), *reason;
		size_t k, n_earlier = json_array_size(all);

		if (&g->series[g->c[i].series] != s || !g->c[i].ok)
			continue;
		json_array_foreach(json_object_get(quality, "reasons"), k, reason)
		{
			const char *text = json_string_value(reason);

			if (text && !was_said(all, n_earlier, text))
				json_array_append_new(all, json_string(text));
		}
	}
	return all;
}

void jm_text_figures(const struct jm_grouping *g, char *out, size_t size)
{
	const struct jm_report_options *o = &g->options;
	const struct jm_figures *f = &o->figures;
	char part[160];

	out[0] = '\0';
	if (!isnan(f->price)) {
		snprintf(part, sizeof(part), "%.6g %s per kWh", f->price,
			o->currency ? o->currency : "units of money");
		jm_text_append(out, size, ", ", part);
	}
	if (!isnan(f->carbon)) {
		snprintf(part, sizeof(part), "%.6g gCO2e per kWh", f->carbon);
		jm_text_append(out, size, ", ", part);
	}
	if (f->pue > 1 && *out) {
		snprintf(part, sizeof(part), "PUE %.4g", f->pue);
		jm_text_append(out, size, ", ", part);
	}
	if (*out && o->figures_from)
		jm_text_append(out, size, "; source: ", o->figures_from);
	if (!isnan(f->peak_flops)) {
		snprintf(part, sizeof(part), "peak of a device %.6g FLOP/s", f->peak_flops);
		jm_text_append(out, size, "; ", part);
	}
}

void jm_text_quality(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size)
{
	json_t *all = jm_text_reasons(g, s);
	const json_t *reason;
	size_t i;

	out[0] = '\0';
	json_array_foreach(all, i, reason) jm_text_append(out, size,
		out[0] && out[strlen(out) - 1] == '.' ? " " : "; ", json_string_value(reason));
	json_decref(all);
}
