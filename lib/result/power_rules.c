/* SPDX-License-Identifier: Apache-2.0 */
#include "result/power_rules.h"
#include "base/json.h"
#include "meter/meter.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define READINGS    60 /* at least one a second */
#define ACCURACY    0.05
#define UNCERTAINTY 0.01

/* What the rules ask of one meter: the one of the whole node that is nearest to the mains. */
struct facts {
	const json_t *node; /* NULL = no meter measures the whole node */
	double refresh_s;   /* NAN = unknown */
	double readings;    /* in the phase, at least: equal ones are not kept; NAN = unknown */
	double possible;    /* one each refresh; INFINITY = unknown */
	double accuracy;    /* relative; NAN = unknown */
	double seconds;
};

static bool is_one_of(const char *word, const char *const *words)
{
	while (*words && strcmp(word, *words) != 0)
		words++;
	return *words != NULL;
}

static bool is_node(const json_t *meter)
{
	static const char *const whole[] = {"node", "psu", "outlet", NULL};

	return !json_is_string(json_object_get(meter, "covered_by")) &&
	       !strcmp(jm_json_text(meter, "origin"), jm_origin_name(JM_MEASURED)) &&
	       is_one_of(jm_json_text(meter, "scope"), whole);
}

/* The signal that its energy comes from. */
static const json_t *signal_of(const json_t *meter)
{
	static const char *const order[] = {"energy", "power", "power-average"};
	const json_t *signal;
	size_t i;

	for (size_t k = 0; k < sizeof(order) / sizeof(order[0]); k++)
		json_array_foreach(json_object_get(meter, "signals"), i, signal)
		{
			if (!strcmp(jm_json_text(signal, "quantity"), order[k]))
				return signal;
		}
	return NULL;
}

static struct facts facts_of(const json_t *record)
{
	struct facts f = {NULL, NAN, NAN, INFINITY, NAN, jm_json_real_of(record, "wall_s")};
	const json_t *meter, *signal;
	size_t i;

	json_array_foreach(json_object_get(record, "meters"), i, meter)
	{
		if (!f.node && is_node(meter))
			f.node = meter;
	}
	signal = f.node ? signal_of(f.node) : NULL;
	if (!signal)
		return f;
	f.refresh_s = jm_json_real_of(signal, "refresh_s");
	f.readings = jm_json_real_of(signal, "samples");
	if (f.refresh_s > 0)
		f.possible = floor(f.seconds / f.refresh_s);
	f.accuracy = jm_json_real_of(f.node, "error_calibration_joules") /
		     jm_json_real_of(f.node, "joules");
	return f;
}

/* ---- the rules: true = it is satisfied, else out says what is missing ---- */

typedef bool rule_fn(const struct facts *f, char *out, size_t size);

static bool whole_node(const struct facts *f, char *out, size_t size)
{
	snprintf(out, size,
		"No meter measures the whole node at its power supplies or at the outlets.");
	return f->node != NULL;
}

static bool at_the_wall(const struct facts *f, char *out, size_t size)
{
	static const char *const wall[] = {"ptd", "scpi", "modbus", "snmp", NULL};

	snprintf(out, size,
		"No meter measures the AC power of the whole system at the wall; a management "
		"controller or a sensor of a board does not.");
	return f->node && is_one_of(jm_json_text(f->node, "source"), wall);
}

static bool by_ptdaemon(const struct facts *f, char *out, size_t size)
{
	snprintf(out, size,
		"The power does not come from an analyser that is read through SPEC's PTDaemon "
		"(source ptd).");
	return f->node && !strcmp(jm_json_text(f->node, "source"), "ptd");
}

static bool once_a_second(const struct facts *f, char *out, size_t size)
{
	double each = f->refresh_s > 0 ? f->refresh_s : f->seconds / f->readings;

	if (isnan(each) || (each > 1 && !(f->refresh_s > 0)))
		snprintf(out, size,
			"How often the meter of the node is read is unknown: equal readings are "
			"not kept, and its refresh is unknown.");
	else
		snprintf(out, size,
			"The meter of the node has a reading every %.3g s; at least one a second "
			"is "
			"needed.",
			each);
	return each <= 1;
}

static bool sixty(const struct facts *f, char *out, size_t size)
{
	if (f->possible < READINGS)
		snprintf(out, size,
			"The run has %.0f readings of the node; at least %d are needed, so extend "
			"it.",
			f->possible, READINGS);
	else
		snprintf(out, size,
			"The number of readings of the node is unknown: %d are needed, equal ones "
			"are not kept, and fewer others were recorded.",
			READINGS);
	return fmin(f->readings, f->possible) >= READINGS;
}

static bool no_gaps(const struct facts *f, char *out, size_t size)
{
	double gaps = jm_json_real_of(f->node, "gaps");

	snprintf(out, size, "The meter of the node gave no readings at times.");
	return gaps == 0 && !json_is_null(json_object_get(f->node, "joules"));
}

static bool within(const struct facts *f, double most, char *out, size_t size)
{
	if (isnan(f->accuracy))
		snprintf(out, size,
			"The accuracy of the meter of the node is unknown; %g %% is required.",
			100 * most);
	else
		snprintf(out, size,
			"The meter of the node is accurate to %.2g %%; %g %% is required.",
			100 * f->accuracy, 100 * most);
	return f->accuracy <= most * (1 + 1e-9);
}

static bool five_percent(const struct facts *f, char *out, size_t size)
{
	return within(f, ACCURACY, out, size);
}

static bool one_percent(const struct facts *f, char *out, size_t size)
{
	return within(f, UNCERTAINTY, out, size);
}

#define MOST_RULES 6
static const struct {
	const char *name;
	rule_fn *rule
		[MOST_RULES]; /* NULL-terminated; without a meter of the whole node only the first is evaluated */
	const char *not_judged[4];
} sets[] = {
	{"MLPerf Training power", {whole_node, once_a_second, sixty, no_gaps, five_percent, NULL},
		{"All nodes of the run must be measured.",
			"The power of an interconnect must be measured or estimated.",
			"The energy of a submission is the score of several runs.", NULL}},
	{"MLPerf Inference power", {at_the_wall, by_ptdaemon, no_gaps, one_percent, NULL},
		{"Only MLPerf's own workflow makes a submission: LoadGen, its client and server, a "
		 "ranging and a testing run, clocks synchronised by NTP.",
			"The analyser must be one that the workflow supports.",
			"Nothing may store energy between the outlet and the system.", NULL}},
};

json_t *jm_power_rules(const json_t *record)
{
	struct facts f = facts_of(record);
	json_t *list = json_array();

	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
		json_t *missing = json_array(), *not_judged = json_array();
		char text[256];

		for (int k = 0; sets[i].rule[k]; k++) {
			if (!sets[i].rule[k](&f, text, sizeof(text)))
				json_array_append_new(missing, json_string(text));
			if (!f.node)
				break;
		}
		for (int k = 0; sets[i].not_judged[k]; k++)
			json_array_append_new(not_judged, json_string(sets[i].not_judged[k]));
		json_array_append_new(list, json_pack("{s:s, s:b, s:o, s:o}", "rules", sets[i].name,
						    "met", !json_array_size(missing), "missing",
						    missing, "not_judged", not_judged));
	}
	return list;
}
