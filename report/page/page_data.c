/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compact data of the page: joulemark.page/1. It is the summary (joulemark.report/1) with other
 * forms of its large parts:
 *
 *	statistics	[n, mean, half width, median, sd, min, max] in place of an object; [1,
 *			value] of one run
 *	runs		in place of `cases`: one array per property, in one order
 *	details		phases [name, start, end] and meters of one run of each series, the
 *			phases as a table, too (page_tables.h); learnt: a text
 *			(training_text.h); parts: of meters that include others or are
 *			included, {id: [[joules, rest, error of the rest] of each phase]}
 *	machines	the different provenances
 *	traces		see page_trace.h; with the phases of their runs; rated: [rated power of a
 *			device, W], each value once
 *	steps		speed and loss of the steps of one run of each setting: steps.c
 *	visits		the search of each run that was tuned: visits.c
 *	budgets		the limits of each run under a power budget: budgets.c
 *	percent_least	half width that savings and losses are shown with at least, in percentage
 *			points
 *	meanings	of a series the sentences on the columns saved and slower; of the page what
 *			each metric means, @ is the item
 *	reference_is	of a series, what its reference is
 *	per, sum_of	of a series "per GPU" and "4 GPUs", or "": what the setting is of, and what
 *			power and energy are sums over
 *	within		of a series, best setting for at most slowdown_percent: {kind, leading, at,
 *			why}, indices of points; kind best, tie (those `at` cannot be told apart) or
 *			none (why); the answer as the terminal has it, the command that applies it,
 *			and the limit that would have one, or ""
 *	within_title	the title above those answers; objective, objective_text and
 *			objective_brief: what they are by (report/judge/report_objective.h);
 *			budget_watts: a budget of power, or null
 */
#include "page_data.h"
#include "base/stat/known_mean.h"
#include "base/text/json.h"
#include "page_details.h"
#include "page_tables.h"
#include "report/format/text.h"
#include "report/judge/meaning.h"
#include "report/judge/next_command.h"
#include "report/judge/report_objective.h"
#include "report/judge/sentence.h"
#include "report/judge/verdict.h"
#include "report/model/dimension.h"
#include "report/text/phases.h"
#include "report/text/summary.h"
#include "report/text/training_text.h"
#include "result/record_keys.h"
#include "steps.h"
#include "visits.h"
#include "budgets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_MACHINES 40
#define ID_DIGITS     8

static bool put(json_t *object, const char *key, json_t *value)
{
	return !json_object_set_new(object, key, value);
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* An object of the summary as an array, without what is unknown at its end. */
static json_t *short_stat(const json_t *stat)
{
	static const char *const keys[] = {"mean", "half", "median", "sd", "min", "max"};
	double mean = jm_json_real_of(stat, "mean");
	json_int_t n = json_integer_value(json_object_get(stat, "n"));
	json_t *out = json_pack("[I]", n);

	for (size_t i = 0; i < (n > 1 ? 6U : n == 1 ? 1U : 0U); i++)
		json_array_append_new(
			out, i == 1 ? jm_json_number(jm_json_real_of(stat, "high95") - mean)
				    : jm_json_number(jm_json_real_of(stat, keys[i])));
	return out;
}

static void shorten_points(json_t *series)
{
	json_t *point, *metrics, *stat;
	const char *name;
	void *next;
	size_t i;

	json_array_foreach(json_object_get(series, "points"), i, point)
	{
		metrics = json_object_get(point, "metrics");
		json_object_foreach_safe(metrics, next, name, stat)
			json_object_set_new(metrics, name, short_stat(stat));
	}
}

/* ---- best setting within the limit of slowdown ----------------------------------------------- */

static json_t *within_json(const struct jm_grouping *g, const struct jm_group_series *s)
{
	char answer[400], next[400] = "", limit[200] = "";
	json_t *at = json_array();
	struct jm_verdict v;

	jm_verdict_within(g, s, &v);
	jm_text_within_answer(g, s, answer, sizeof(answer));
	if (!jm_next_command(g, s, next, sizeof(next)))
		jm_next_limit(g, s, limit, sizeof(limit));
	for (int i = 0; i < s->n_points; i++)
		if (jm_verdict_within_tied(g, &v, s->first_point + i))
			json_array_append_new(at, json_integer(i));
	return json_pack("{s:s, s:o, s:o, s:o, s:s, s:s, s:s}", "kind",
		jm_verdict_kind_name(v.kind), "leading",
		v.leading < 0 ? json_null() : json_integer(v.leading - s->first_point), "at", at,
		"why", json_string(v.why), "answer", answer, "next", next, "limit", limit);
}

/* ---- what the words mean --------------------------------------------------------------------- */

static json_t *meanings_json(const struct jm_grouping *g)
{
	json_t *out = json_object();
	char name[64], text[240];

	for (int m = 0; m < JM_M_EDS + g->options.n_k; m++) {
		jm_group_metric_name(g, m, name, sizeof(name));
		jm_text_meaning(g, "@", m, text, sizeof(text));
		if (*text)
			json_object_set_new(out, name, json_string(text));
	}
	return out;
}

static void put_meanings(const struct jm_grouping *g, const struct jm_group_series *s, json_t *out)
{
	json_t *list = json_array();
	char text[400];

	if (s->reference >= 0) {
		json_object_set_new(out, "reference_is", json_string(jm_text_reference(g, s)));
		jm_text_relative(g, s, text, sizeof(text));
		json_array_append_new(list, json_string(text));
	}
	if (jm_text_paired(g, s, text, sizeof(text)))
		json_array_append_new(list, json_string(text));
	jm_text_per(g, s, text, sizeof(text));
	json_object_set_new(out, "per", json_string(text));
	jm_text_sum(s, text, sizeof(text));
	json_object_set_new(out, "sum_of", json_string(text));
	json_object_set_new(out, "meanings", list);
}

/* ---- capped power ---------------------------------------------------------------------------- */

/* Mean power of the meters of that scope, as "gpu" of gpu.power. */
static void add_capped(const struct jm_group_case *c, const char *scope, struct jm_known_mean *m)
{
	const char *origin = jm_origin_name(c->m.origin);
	const json_t *meter;
	size_t i;

	json_array_foreach(json_object_get(c->record, "meters"), i, meter)
	{
		double watts = jm_json_real_of(meter, "watts_mean");

		if (!json_is_true(json_object_get(meter, "elsewhere")) &&
			!strcmp(jm_json_text(meter, "scope"), scope) &&
			!strcmp(jm_json_text(meter, "origin"), origin))
			jm_known_mean_add(m, watts);
	}
}

/* The first knob in watts, as "gpu" of gpu.power; "" = none. */
static void capped_scope(const struct jm_grouping *g, char *out, size_t size)
{
	int cap = jm_dim_cap(g);
	const char *name = cap < 0 ? "" : g->dim[cap].name;

	jm_text_format(out, size, "%.*s", (int)strcspn(name, "."), name);
}

/* Mean power of a device that the cap applies to, at each point. */
static void put_capped(const struct jm_grouping *g, json_t *all_series)
{
	struct jm_known_mean *mean = calloc((size_t)g->n_points, sizeof(*mean));
	char scope[32];

	capped_scope(g, scope, sizeof(scope));
	for (int i = 0; mean && *scope && i < g->n_cases; i++)
		if (g->c[i].ok && g->c[i].m.has_energy)
			add_capped(&g->c[i], scope, &mean[g->c[i].point]);
	for (int i = 0; mean && i < g->n_points; i++) {
		const struct jm_group_series *s = &g->series[g->point[i].series];
		json_t *series = json_array_get(all_series, (size_t)g->point[i].series);
		json_t *point = json_array_get(
			json_object_get(series, "points"), (size_t)(i - s->first_point));

		json_object_set_new(point, "capped_watts", jm_json_number(jm_known_mean(&mean[i])));
	}
	free(mean);
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* What the record says of a case that no metric is made of; NAN = unknown. */
struct telemetry {
	struct jm_known_mean clock, memory_clock; /* Hz */
	struct jm_known_mean throttled;		  /* share of time at the power cap */
	double celsius;				  /* highest temperature */
	double reasons; /* other reasons for lower clocks, or-ed (enum jm_throttle) */
};

/* The bits that any reading had; of records without them those of the largest reading; -1: there is
 * no reading. */
static int throttle_bits(const json_t *signal)
{
	const char *key = json_object_get(signal, "bits") ? "bits" : "max";
	double bits = jm_json_real_of(signal, key);

	return bits >= 0 && bits < 256 ? (int)bits : -1;
}

static void add_throttle(struct telemetry *t, const json_t *signal)
{
	int bits = throttle_bits(signal), other = bits & ~JM_THROTTLE_POWER_CAP;

	if (bits < 0)
		return;
	if (!other)
		jm_known_mean_add(&t->throttled, jm_json_real_of(signal, "mean"));
	t->reasons = (double)((isnan(t->reasons) ? 0 : (int)t->reasons) | other);
}

static void add_signal(struct telemetry *t, const json_t *signal)
{
	const char *quantity = jm_json_text(signal, "quantity");
	double mean = jm_json_real_of(signal, "mean"), max = jm_json_real_of(signal, "max");

	if (!strcmp(quantity, "clock")) {
		jm_known_mean_add(&t->clock, mean);
	} else if (!strcmp(quantity, "memory-clock")) {
		jm_known_mean_add(&t->memory_clock, mean);
	} else if (!strcmp(quantity, "temperature")) {
		t->celsius = fmax(t->celsius, max);
	} else if (!strcmp(quantity, "throttle")) {
		add_throttle(t, signal);
	}
}

static struct telemetry telemetry_of(const json_t *record)
{
	struct telemetry t = {.celsius = NAN, .reasons = NAN};
	const json_t *meter, *signal;
	size_t i, k;

	json_array_foreach(json_object_get(record, "meters"), i, meter) json_array_foreach(
		json_object_get(meter, "signals"), k, signal) add_signal(&t, signal);
	return t;
}

struct columns {
	const struct jm_grouping *g;
	json_t *runs;
	bool failed;
};

/* Appends to the array of that name. */
static void append(struct columns *to, const char *name, json_t *value)
{
	json_t *column = json_object_get(to->runs, name);

	if (!column) {
		column = json_array();
		if (json_object_set_new(to->runs, name, column))
			to->failed = true;
	}
	if (json_array_append_new(column, value))
		to->failed = true;
}

static void append_number(struct columns *to, const char *name, double value)
{
	append(to, name, jm_json_number(value));
}

static void append_of_case(struct columns *to, const struct jm_group_case *c)
{
	static const char *const keys[] = {"repeat", "block", "position"};
	const json_t *of_case = json_object_get(c->record, "case");
	const char *id = jm_json_text(of_case, "id");
	char brief[ID_DIGITS + 1];

	jm_text_format(brief, sizeof(brief), "%.*s", ID_DIGITS, id);
	append(to, "id", json_string(brief));
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		json_t *value = json_object_get(of_case, keys[i]);

		append(to, keys[i], json_is_integer(value) ? json_incref(value) : json_null());
	}
	append(to, "started", json_string(jm_json_text(c->record, "started")));
}

static void append_telemetry(struct columns *to, const struct jm_group_case *c)
{
	struct telemetry t = telemetry_of(jm_page_whole_record(to->g, c));

	append_number(to, "hertz", jm_known_mean(&t.clock));
	append_number(to, "memory_hertz", jm_known_mean(&t.memory_clock));
	append_number(to, "celsius", t.celsius);
	append_number(to, "throttled", jm_known_mean(&t.throttled));
	append_number(to, "throttle_reasons", t.reasons);
}

static void append_run(struct columns *to, const struct jm_group_case *c)
{
	static const int metrics[] = {JM_M_THROUGHPUT, JM_M_THROUGHPUT_DEVICE, JM_M_WATTS,
		JM_M_WATTS_MEDIAN, JM_M_WATTS_MAX, JM_M_JOULES_ITEM, JM_M_GAIN, JM_M_LOSS};
	const json_t *quality = json_object_get(c->record, "quality");

	append(to, "record", json_integer(c->index));
	append(to, "series", json_integer(c->series));
	append(to, "point", json_integer(c->point - to->g->series[c->series].first_point));
	append(to, "ok", json_integer(c->ok));
	append(to, "outlier", json_integer(c->outlier));
	append(to, "state", json_string(jm_group_state_name(c->state)));
	append(to, "origin", json_string(c->m.has_energy ? jm_origin_name(c->m.origin) : ""));
	append(to, "grade", json_string(jm_json_text(quality, "grade")));
	append(to, "reason", json_string(c->ok ? "" : jm_json_text(c->record, "reason")));
	append(to, "failure", json_string(c->ok ? "" : jm_json_text(c->record, "failure")));
	append_of_case(to, c);
	append_number(to, "joules", c->m.joules);
	append_number(to, "items", c->m.items);
	append_number(to, "seconds", c->m.seconds);
	for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++)
		append_number(to, jm_metrics[metrics[i]].name, c->m.value[metrics[i]]);
	append_telemetry(to, c);
}

/* A property that all runs have alike is one value in place of an array. */
static void fold_columns(json_t *runs)
{
	json_t *column, *first, *value;
	const char *name;
	void *next;
	size_t i;

	json_object_foreach_safe(runs, next, name, column)
	{
		bool same = json_array_size(column) > 0;

		first = json_array_get(column, 0);
		json_array_foreach(column, i, value) same = same && json_equal(first, value);
		if (same)
			json_object_set(runs, name, first);
	}
}

static json_t *runs_json(const struct jm_grouping *g)
{
	struct columns to = {g, json_object(), false};

	for (int i = 0; i < g->n_cases && !to.failed; i++)
		append_run(&to, &g->c[i]);
	fold_columns(to.runs);
	if (to.failed || !put(to.runs, "n", json_integer(g->n_cases))) {
		json_decref(to.runs);
		return NULL;
	}
	return to.runs;
}

/* ---- details --------------------------------------------------------------------------------- */

/* [name, start, end], s, of each phase. */
static json_t *phases_json(const json_t *record)
{
	const json_t *phase;
	json_t *out = json_array();
	size_t i;

	json_array_foreach(json_object_get(record, "phases"), i, phase) json_array_append_new(
		out, json_pack("[s, o, o]", jm_json_text(phase, "name"),
			     jm_json_number(jm_json_real_of(phase, "start_s")),
			     jm_json_number(jm_json_real_of(phase, "end_s"))));
	return out;
}

static json_t *meters_json(const json_t *record)
{
	static const char *const keys[] = {"id", "label", "scope", "origin", "covered_by",
		"elsewhere", "joules", "joules_counter", "joules_integrated",
		"error_sampling_joules", "error_calibration_joules", "covered_s", "gaps",
		"watts_mean"};
	const json_t *meter;
	json_t *out = json_array();
	size_t i;

	json_array_foreach(json_object_get(record, "meters"), i, meter)
	{
		json_t *one = json_object();

		for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
			if (json_object_get(meter, keys[k]))
				json_object_set(one, keys[k], json_object_get(meter, keys[k]));
		json_array_append_new(out, one);
	}
	return out;
}

/* The first good run of the series that has its details, else its first run. */
static const struct jm_group_case *example_of(const struct jm_grouping *g, int series)
{
	const struct jm_group_case *first = NULL, *good = NULL;

	for (int i = 0; i < g->n_cases; i++) {
		const struct jm_group_case *c = &g->c[i];

		if (c->series != series)
			continue;
		first = first ? first : c;
		if (c->ok && jm_page_whole_record(g, c) != c->record)
			return c;
		good = good || !c->ok ? good : c;
	}
	return good ? good : first;
}

static json_t *detail_json(const struct jm_grouping *g, int series)
{
	const struct jm_group_case *c = example_of(g, series);
	const json_t *record = jm_page_whole_record(g, c);
	char learnt[800];

	jm_text_learnt(record, learnt, sizeof(learnt));
	return json_pack("{s:i, s:s, s:s, s:s?, s:o, s:o, s:o, s:o}", "run", (int)(c - g->c),
		"learnt", learnt, "phase", jm_json_text(record, "phase"), "origin",
		jm_phases_origin(record), "phases", phases_json(record), "phase_table",
		jm_page_phases(record, jm_json_text(record, "unit")), "meters", meters_json(record),
		"parts", jm_page_parts(record));
}

static json_t *details_json(const struct jm_grouping *g)
{
	json_t *out = json_array();

	for (int i = 0; i < g->n_series; i++)
		json_array_append_new(out, detail_json(g, i));
	return out;
}

/* ---- machines and traces --------------------------------------------------------------------- */

/* With "hosts", the names of all of them, of ranks on several. */
static json_t *machine_json(const struct jm_grouping *g, const struct jm_group_case *c)
{
	const json_t *record = jm_page_whole_record(g, c);
	json_t *out = json_copy(json_object_get(record, "provenance"));

	if (out && json_array_size(json_object_get(record, "hosts")) > 1)
		jm_json_set_text(&out, "hosts", g->machine[c->machine].part[JM_MACHINE_HOST]);
	return out;
}

static json_t *machines_json(const struct jm_grouping *g)
{
	json_t *out = json_array(), *other;
	size_t k;

	for (int i = 0; i < g->n_cases && json_array_size(out) < MOST_MACHINES; i++) {
		json_t *one = machine_json(g, &g->c[i]);
		bool seen = !one;

		json_array_foreach(out, k, other) seen = seen || json_equal(other, one);
		if (!seen)
			json_array_append(out, one);
		json_decref(one);
	}
	return out;
}

/* The means over time are drawn of the first trace of a series. */
static void drop_means(json_t *trace)
{
	json_t *meter;
	size_t i;

	json_array_foreach(json_object_get(trace, "meters"), i, meter)
		json_object_del(meter, "means");
}

static bool has_meter_of(const json_t *record, const char *device)
{
	const json_t *meter;
	size_t i;

	json_array_foreach(json_object_get(record, "meters"), i, meter)
	{
		if (!json_is_true(json_object_get(meter, "elsewhere")) &&
			!strcmp(jm_json_text(meter, "device"), device))
			return true;
	}
	return false;
}

/* Rated power (W) of the devices that were metered, each value once. */
static json_t *rated_json(const json_t *record)
{
	const json_t *devices = json_object_get(json_object_get(record, "provenance"), "devices");
	json_t *out = json_array(), *other;
	const json_t *device;
	size_t i, k;

	json_array_foreach(devices, i, device)
	{
		double watts =
			jm_json_real_of(json_object_get(device, "hardware"), "power_default_watts");
		bool seen = false;

		json_array_foreach(out, k, other) seen = seen || json_real_value(other) == watts;
		if (watts > 0 && !seen && has_meter_of(record, jm_json_text(device, "id")))
			json_array_append_new(out, json_real(watts));
	}
	return out;
}

/* Each with the index of its run, the phases of that and the rated power of its devices. */
static json_t *traces_json(const struct jm_grouping *g)
{
	json_t *out = json_array(), *trace;
	bool *seen = calloc((size_t)g->n_series + 1, sizeof(*seen));
	size_t i;

	json_array_foreach(g->options.traces, i, trace)
	{
		json_int_t record = json_integer_value(json_object_get(trace, "record"));
		const json_t *whole;
		int run = 0;

		while (run < g->n_cases && g->c[run].index != record)
			run++;
		if (!json_is_object(trace) || run == g->n_cases)
			continue;
		whole = jm_page_whole_record(g, &g->c[run]);
		json_object_set_new(trace, "run", json_integer(run));
		json_object_set_new(trace, "phases", phases_json(whole));
		json_object_set_new(trace, "rated", rated_json(whole));
		json_array_append(out, trace);
		if (!seen || seen[g->c[run].series])
			drop_means(trace);
		else
			seen[g->c[run].series] = true;
	}
	free(seen);
	return out;
}

json_t *jm_page_data(const struct jm_grouping *g)
{
	json_t *data = jm_report_summary(g, false), *series;
	char title[120], objective[120], brief[40];
	size_t i;

	jm_report_objective_text(g, objective, sizeof(objective));
	jm_report_objective_brief(g, brief, sizeof(brief));
	json_array_foreach(json_object_get(data, "series"), i, series)
	{
		shorten_points(series);
		json_object_set_new(series, "within", within_json(g, &g->series[i]));
		put_meanings(g, &g->series[i], series);
	}
	put_capped(g, json_object_get(data, "series"));
	jm_page_tables(g, data);
	if (data && put(data, "schema", json_string("joulemark.page/1")) &&
		put(data, "meanings", meanings_json(g)) &&
		put(data, "within_title",
			json_string(jm_text_within_title(g, title, sizeof(title)))) &&
		put(data, "objective",
			json_string(jm_report_objective_name(g->options.objective))) &&
		put(data, "budget_watts",
			g->options.objective == JM_OBJECTIVE_POWER
				? json_real(g->options.objective_number)
				: json_null()) &&
		put(data, "objective_text", json_string(objective)) &&
		put(data, "objective_brief", json_string(brief)) &&
		put(data, "slowdown_percent", json_real(jm_report_objective_slowdown(g))) &&
		put(data, "percent_least", json_real(JM_PERCENT_LEAST)) &&
		put(data, "runs", runs_json(g)) && put(data, "details", details_json(g)) &&
		put(data, "machines", machines_json(g)) && put(data, "traces", traces_json(g)) &&
		put(data, "steps", jm_page_steps(g)) && put(data, "visits", jm_page_visits(g)) &&
		put(data, "budgets", jm_page_budgets(g)))
		return data;
	json_decref(data);
	return NULL;
}
