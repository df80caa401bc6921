/* SPDX-License-Identifier: Apache-2.0 */
#include "tuning_text.h"

#include "base/stat/stat.h"
#include "base/text/json.h"
#include "report/format/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COLUMN 11 /* of the text */

/* ", 395 W" */
static void add_value(double value, const char *unit, char *out, size_t size)
{
	char text[60] = "no limit";

	if (!isnan(value))
		jm_text_quantity(value, NAN, unit, text, sizeof(text));
	jm_text_append(out, size, *out ? ", " : "", text);
}

/* "395 W", or "395 W, 1200 MHz" of two knobs */
static void value_text(const json_t *tune, const char *key, char *out, size_t size)
{
	const json_t *second = json_object_get(tune, "second");

	*out = '\0';
	add_value(jm_json_real_of(tune, key), jm_json_text(tune, "unit"), out, size);
	if (second)
		add_value(jm_json_real_of(second, key), jm_json_text(second, "unit"), out, size);
}

/* ", energy -35 % ± 1 %" */
static void add_change(
	const json_t *tune, const char *what, const char *name, char *out, size_t size)
{
	char key[60], error[60], text[60];
	double mean;

	snprintf(key, sizeof(key), "%s_percent", what);
	snprintf(error, sizeof(error), "%s_error_percent", what);
	mean = jm_json_real_of(tune, key);
	if (isnan(mean))
		return;
	jm_text_estimate(mean, jm_json_real_of(tune, error), text, sizeof(text));
	jm_text_append(out, size, "; ", name);
	jm_text_append(out, size, mean > 0 ? " +" : " ", text);
	jm_text_append(out, size, " ", "%");
}

static void put(FILE *out, const char *label, const char *text, int width)
{
	fprintf(out, "  %-*s", COLUMN - 2, label);
	jm_text_wrap_on(out, text, COLUMN, width < 40 ? 4 : COLUMN, width);
}

/* " of 2 devices", or " of GPU-8f" where there is one and the knobs are of different ones */
static void add_devices(const json_t *knob, bool named, char *out, size_t size)
{
	const json_t *devices = json_object_get(knob, "devices");
	size_t n = json_array_size(devices);
	char count[40];

	snprintf(count, sizeof(count), "%zu %s", n, n == 1 ? "device" : "devices");
	jm_text_append(out, size, " of ",
		named && n == 1 ? json_string_value(json_array_get(devices, 0)) : count);
}

/* "gpu.power and gpu.clock of 2 devices", "gpu.power of GPU-8f and gpu.power of GPU-9a" */
static void knobs_text(const json_t *tune, char *out, size_t size)
{
	const json_t *second = json_object_get(tune, "second");
	bool apart = second && !json_equal(json_object_get(tune, "devices"),
				       json_object_get(second, "devices"));

	snprintf(out, size, "%s", jm_json_text(tune, "knob"));
	if (apart)
		add_devices(tune, true, out, size);
	if (second)
		jm_text_append(out, size, " and ", jm_json_text(second, "knob"));
	add_devices(second ? second : tune, apart, out, size);
}

static void put_what(const json_t *tune, FILE *out, int width)
{
	bool gpu = !strcmp(jm_json_text(tune, "progress"), "gpu");
	char knobs[300], text[600];

	knobs_text(tune, knobs, sizeof(knobs));
	snprintf(text, sizeof(text), "%s for the least %s, by %s and %s energy", knobs,
		jm_json_text(tune, "objective"),
		gpu ? "busy cycles of the GPU (an estimate)" : "items",
		jm_json_text(tune, "origin"));
	put(out, "Tuned", text, width);
}

static void put_choice(const json_t *tune, FILE *out, int width)
{
	bool open = !strcmp(jm_json_text(tune, "choice"), "open");
	char chosen[100], found[100], text[600];

	value_text(tune, "chosen", chosen, sizeof(chosen));
	value_text(tune, "found", found, sizeof(found));
	if (json_is_true(json_object_get(tune, "chosen_found")))
		snprintf(text, sizeof(text), "the setting found, %s", found);
	else
		snprintf(text, sizeof(text), "%s (found: %s)", chosen, found);
	add_change(tune, "objective", "objective", text, sizeof(text));
	add_change(tune, "energy", "energy", text, sizeof(text));
	add_change(tune, "time", "time", text, sizeof(text));
	jm_text_append(text, sizeof(text), ". ", jm_json_text(tune, "why"));
	put(out, open ? "so far" : "held", text, width);
}

static void put_saved(const json_t *tune, FILE *out, int width)
{
	double saved = jm_json_real_of(tune, "saved_joules");
	char joules[60], text[200];

	if (isnan(saved))
		return;
	jm_text_quantity(fabs(saved), jm_json_real_of(tune, "saved_error_joules"), "J", joules,
		sizeof(joules));
	snprintf(text, sizeof(text), "%s%s in %.0f s of holding", joules,
		saved < 0 ? " more than with the setting found" : "",
		jm_json_real_of(tune, "hold_s"));
	put(out, saved < 0 ? "used" : "saved", text, width);
}

static void put_search(const json_t *tune, FILE *out, int width)
{
	int searches = (int)json_integer_value(json_object_get(tune, "searches"));
	int drifts = (int)json_integer_value(json_object_get(tune, "drifts"));
	int lost = (int)json_integer_value(json_object_get(tune, "lost"));
	int outliers = (int)json_integer_value(json_object_get(tune, "outliers"));
	size_t visits = json_array_size(json_object_get(tune, "visits"));
	char text[300], more[100];

	snprintf(text, sizeof(text), "%zu %s in %.0f s, %d %s", visits,
		visits == 1 ? "visit" : "visits", jm_json_real_of(tune, "search_s"), searches,
		searches == 1 ? "search" : "searches");
	snprintf(more, sizeof(more), "%d %s", drifts, drifts == 1 ? "drift" : "drifts");
	if (drifts)
		jm_text_append(text, sizeof(text), ", ", more);
	snprintf(more, sizeof(more), "%d set aside", outliers);
	if (outliers)
		jm_text_append(text, sizeof(text), ", ", more);
	snprintf(more, sizeof(more), "%d lost", lost);
	if (lost)
		jm_text_append(text, sizeof(text), ", ", more);
	put(out, "search", text, width);
}

/* "350 W (found 700 W, used 341 W), ..." */
static void limits_text(const json_t *budget, char *out, size_t size)
{
	const json_t *limit;
	size_t i;

	*out = '\0';
	json_array_foreach(json_object_get(budget, "limits"), i, limit)
	{
		double used = jm_json_real_of(limit, "watts");
		char text[80];

		snprintf(text, sizeof(text), isnan(used) ? "%.0f W" : "%.0f W (used %.0f W)",
			jm_json_real_of(limit, "limit"), used);
		jm_text_append(out, size, *out ? ", " : "", text);
	}
}

static void put_budget(const json_t *budget, FILE *out, int width)
{
	double first = jm_json_real_of(budget, "first_rate"),
	       rate = jm_json_real_of(budget, "rate");
	const char *stopped = jm_json_text(budget, "stopped");
	char text[400], limits[3000];

	snprintf(text, sizeof(text), "%.0f W, %s, of %s; enforced together at most %.0f W",
		jm_json_real_of(budget, "watts"), jm_json_text(budget, "share"),
		jm_json_text(budget, "knob"), jm_json_real_of(budget, "enforced_most_watts"));
	put(out, "Budget", text, width);
	limits_text(budget, limits, sizeof(limits));
	put(out, json_is_true(json_object_get(budget, "holds")) ? "held" : "so far", limits, width);
	if (!isnan(first)) {
		snprintf(text, sizeof(text),
			"%.5g items/s, %+.1f %% against the first limits; %lld of %lld moves kept "
			"in %lld visits",
			rate, 100 * (rate / first - 1),
			json_integer_value(json_object_get(budget, "moves_kept")),
			json_integer_value(json_object_get(budget, "moves")),
			json_integer_value(json_object_get(budget, "visits")));
		put(out, "rate", text, width);
	}
	if (*stopped)
		put(out, "ended", stopped, width);
}

/* ---- a policy ---- */

static void classes_text(const json_t *policy, char *out, size_t size)
{
	const json_t *class;
	size_t i;

	*out = '\0';
	json_array_foreach(json_object_get(policy, "classes"), i, class)
	{
		char value[80] = "";

		add_value(jm_json_real_of(class, "value"), jm_json_text(policy, "unit"), value,
			sizeof(value));
		jm_text_append(out, size, *out ? ", " : "", jm_json_text(class, "class"));
		jm_text_append(out, size,
			strcmp(jm_json_text(class, "class"), "mixed") ? "-bound " : " ", value);
	}
}

static void put_policy_choice(const json_t *policy, FILE *out, int width)
{
	bool held = json_is_true(json_object_get(policy, "held"));
	char text[900], classes[300], found[80] = "";

	classes_text(policy, classes, sizeof(classes));
	add_value(jm_json_real_of(policy, "found"), jm_json_text(policy, "unit"), found,
		sizeof(found));
	if (held)
		snprintf(text, sizeof(text), "%s (found: %s)", classes, found);
	else
		snprintf(text, sizeof(text), "the setting found, %s", found);
	add_change(policy, "objective", "objective", text, sizeof(text));
	add_change(policy, "energy", "energy", text, sizeof(text));
	add_change(policy, "time", "time", text, sizeof(text));
	jm_text_append(text, sizeof(text), ". ", jm_json_text(policy, "why"));
	put(out, strcmp(jm_json_text(policy, "choice"), "open") ? "held" : "so far", text, width);
}

/* "product (compute) 12 x 2.04 s, ..." */
static void put_policy_phases(const json_t *policy, FILE *out, int width)
{
	const json_t *phase;
	char text[3000] = "";
	size_t i;

	json_array_foreach(json_object_get(policy, "phases"), i, phase)
	{
		int short_ = (int)json_integer_value(json_object_get(phase, "too_short"));
		char one[200], more[60] = "";

		if (short_)
			snprintf(more, sizeof(more), ", %d too short to be switched", short_);
		snprintf(one, sizeof(one), "%s (%s) %lld x %.2f s%s", jm_json_text(phase, "name"),
			jm_json_text(phase, "class"),
			json_integer_value(json_object_get(phase, "occurrences")),
			jm_json_real_of(phase, "seconds"), more);
		jm_text_append(text, sizeof(text), *text ? "; " : "", one);
	}
	if (*text)
		put(out, "phases", text, width);
}

static void put_policy(const json_t *policy, FILE *out, int width)
{
	size_t n = json_array_size(json_object_get(policy, "devices"));
	double saved = jm_json_real_of(policy, "saved_joules"),
	       latency = jm_json_real_of(policy, "latency_s");
	char text[300], joules[60];

	snprintf(text, sizeof(text), "%s of %zu %s by phases for the least %s, by %s energy",
		jm_json_text(policy, "knob"), n, n == 1 ? "device" : "devices",
		jm_json_text(policy, "objective"), jm_json_text(policy, "origin"));
	put(out, "Policy", text, width);
	put_policy_choice(policy, out, width);
	put_policy_phases(policy, out, width);
	if (!isnan(saved)) {
		jm_text_quantity(fabs(saved), jm_json_real_of(policy, "saved_error_joules"), "J",
			joules, sizeof(joules));
		put(out, saved < 0 ? "used" : "saved", joules, width);
	}
	if (isnan(latency))
		return;
	snprintf(text, sizeof(text), "%lld in all, %.0f ms after the mark of the phase",
		json_integer_value(json_object_get(policy, "switches")), 1e3 * latency);
	put(out, "changes", text, width);
}

void jm_tuning_print(const json_t *record, FILE *out, int width)
{
	const json_t *tune = json_object_get(record, "tune");
	const json_t *budget = json_object_get(record, "budget");
	const json_t *policy = json_object_get(record, "policy");

	if (budget)
		put_budget(budget, out, width);
	if (policy)
		put_policy(policy, out, width);
	if (!tune)
		return;
	put_what(tune, out, width);
	put_choice(tune, out, width);
	put_saved(tune, out, width);
	put_search(tune, out, width);
}

/* ---- the curve ---- */

/* The visits of one setting together. */
struct place {
	double value, second; /* NAN = no number, or no second knob */
	bool found;
	int visits;
	double seconds, items, joules;
	double objective; /* sum */
};

static int by_value(const void *a, const void *b)
{
	const struct place *p = a, *q = b;
	int first = jm_stat_by_value(&p->value, &q->value);

	return first ? first : jm_stat_by_value(&p->second, &q->second);
}

static bool is_at(const struct place *p, double value, double second)
{
	return p->value == value && (p->second == second || (isnan(p->second) && isnan(second)));
}

static void add_visit(struct place *place, int *n, const json_t *visit)
{
	double value = jm_json_real_of(visit, "value"), second = jm_json_real_of(visit, "second");
	bool found = json_is_true(json_object_get(visit, "found"));
	int i = 0;

	while (i < *n && !(place[i].found == found && (found || is_at(&place[i], value, second))))
		i++;
	if (i == *n)
		place[(*n)++] = (struct place){.value = value, .second = second, .found = found};
	place[i].visits++;
	place[i].seconds += jm_json_real_of(visit, "seconds");
	place[i].items += jm_json_real_of(visit, "items");
	place[i].joules += jm_json_real_of(visit, "joules");
	place[i].objective += jm_json_real_of(visit, "objective");
}

/* Energy and time per item in place of sums. */
static int put_place(struct jm_grid *g, int row, const struct place *p, const struct place *found,
	const json_t *tune, struct jm_err *err)
{
	const json_t *second = json_object_get(tune, "second");
	double energy = p->joules / p->items, time = p->seconds / p->items;
	double energy_found = found->joules / found->items,
	       time_found = found->seconds / found->items;
	char value[100] = "";
	int rc;

	add_value(p->value, jm_json_text(tune, "unit"), value, sizeof(value));
	if (second)
		add_value(p->second, jm_json_text(second, "unit"), value, sizeof(value));
	rc = jm_grid_set(g, row, 0, err, "%s%s", value, p->found ? " (found)" : "");
	if (!rc)
		rc = jm_grid_set(g, row, 1, err, "%d", p->visits);
	if (!rc)
		rc = jm_grid_set(g, row, 2, err, "%.1f", p->seconds);
	if (!rc)
		rc = jm_grid_set(g, row, 3, err, "%.1f", p->joules / p->seconds);
	if (!rc)
		rc = jm_grid_set(g, row, 4, err, "%.5g", 1 / time);
	if (!rc)
		rc = jm_grid_set(g, row, 5, err, "%.3f", p->objective / p->visits);
	if (!rc)
		rc = jm_grid_set(g, row, 6, err, "%.3f", energy / energy_found);
	return rc ? rc : jm_grid_set(g, row, 7, err, "%.3f", time / time_found);
}

static int put_places(
	struct jm_grid *g, const struct place *place, int n, const json_t *tune, struct jm_err *err)
{
	static const char *const titles[] = {
		"value", "visits", "s", "W", "items/s", "objective", "energy", "time"};
	const struct place *found = place;
	int rc = 0;

	for (int c = 0; !rc && c < g->columns; c++)
		rc = jm_grid_set(g, -1, c, err, "%s", titles[c]);
	for (int i = 0; i < n; i++)
		found = place[i].found ? &place[i] : found;
	for (int i = 0; !rc && i < n; i++)
		rc = put_place(g, i, &place[i], found, tune, err);
	return rc;
}

int jm_tuning_curve(const json_t *tune, struct jm_grid *ret, struct jm_err *err)
{
	const json_t *visits = json_object_get(tune, "visits"), *visit;
	struct place *place = calloc(json_array_size(visits) + 1, sizeof(*place));
	struct jm_grid g;
	int n = 0, rc;
	size_t i;

	if (!place)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the visits of a tuner.");
	json_array_foreach(visits, i, visit)
	{
		if (!json_is_true(json_object_get(visit, "aside")))
			add_visit(place, &n, visit);
	}
	qsort(place, (size_t)n, sizeof(*place), by_value);
	rc = n ? jm_grid_new(&g, n, 8, err)
	       : jm_err_set(err, JM_ENOENT, "The tuner made no visit.");
	if (!rc) {
		g.n_setting = 1;
		rc = put_places(&g, place, n, tune, err);
		if (rc)
			jm_grid_done(&g);
	}
	if (!rc)
		*ret = g;
	free(place);
	return rc;
}
