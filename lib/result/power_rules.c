/* SPDX-License-Identifier: Apache-2.0 */
#include "result/power_rules.h"
#include "base/text/json.h"
#include "meter/meter.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* MLPerf */
#define READINGS    60 /* at least one a second */
#define ACCURACY    0.05
#define UNCERTAINTY 0.01
/* EE HPC WG */
#define CORE_S		60  /* the least core phase */
#define CORE_READINGS	10  /* in it */
#define CORE_SHARE	0.1 /* of it: the longest time between two readings */
#define LEVEL1_ACCURACY 0.05
#define LEVEL2_ACCURACY 0.02
#define LEVEL3_ACCURACY 0.01
#define UNCOVERED_S	10 /* of the core phase, half of it at each end */

/* What the rules ask of one meter: the one of the whole node that is nearest to the mains. */
struct facts {
	const json_t *node; /* NULL = no meter measures the whole node */
	double refresh_s;   /* NAN = unknown */
	double readings;    /* in the phase, at least: equal ones are not kept; NAN = unknown */
	double possible;    /* one each refresh; INFINITY = unknown */
	double accuracy;    /* relative; NAN = unknown */
	double seconds;
	double core_s;	      /* of the phase that the record is about; NAN = unknown */
	double covered_s;     /* of it, by readings */
	bool counted;	      /* its energy comes from a counter */
	const json_t *phases; /* of the record */
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
	const json_t *signal = NULL;

	for (size_t k = 0; k < sizeof(order) / sizeof(order[0]) && !signal; k++)
		signal = jm_json_find(json_object_get(meter, "signals"), "quantity", order[k]);
	return signal;
}

static double length_of(const json_t *phases, const char *name)
{
	const json_t *phase;
	size_t i;

	json_array_foreach(phases, i, phase)
	{
		if (!strcmp(jm_json_text(phase, "name"), name))
			return jm_json_real_of(phase, "end_s") - jm_json_real_of(phase, "start_s");
	}
	return NAN;
}

static struct facts facts_of(const json_t *record)
{
	const json_t *meter, *signal, *phases = json_object_get(record, "phases");
	struct facts f = {
		.refresh_s = NAN,
		.readings = NAN,
		.possible = INFINITY,
		.accuracy = NAN,
		.seconds = jm_json_real_of(record, "wall_s"),
		.core_s = length_of(phases, jm_json_text(record, "phase")),
		.covered_s = NAN,
		.phases = phases,
	};
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
	f.covered_s = jm_json_real_of(f.node, "covered_s");
	f.counted = !strcmp(jm_json_text(signal, "quantity"), "energy") &&
		    json_is_number(json_object_get(f.node, "joules_counter"));
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

static bool has_readings(const struct facts *f, double possible, int least, char *out, size_t size)
{
	if (possible < least)
		snprintf(out, size,
			"There are %.0f readings of the node; at least %d are needed, so extend "
			"it.",
			possible, least);
	else
		snprintf(out, size,
			"The number of readings of the node is unknown: %d are needed, equal ones "
			"are not kept, and fewer others were recorded.",
			least);
	return fmin(f->readings, possible) >= least;
}

static bool sixty(const struct facts *f, char *out, size_t size)
{
	return has_readings(f, f->possible, READINGS, out, size);
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

/* ---- EE HPC WG ---- */

/* The time between two readings; NAN = unknown. */
static double interval_of(const struct facts *f)
{
	return f->refresh_s > 0 ? f->refresh_s : f->core_s / f->readings;
}

static bool sampled(const struct facts *f, char *out, size_t size)
{
	snprintf(out, size,
		"It is unknown whether the meter of the node samples power once a second: its "
		"readings come every %.3g s, and it has no energy counter.",
		interval_of(f));
	return f->counted || f->refresh_s <= 1;
}

static bool integrated(const struct facts *f, char *out, size_t size)
{
	snprintf(out, size,
		"The energy of the node does not come from a counter that the meter integrates "
		"continuously.");
	return f->counted;
}

static bool a_minute(const struct facts *f, char *out, size_t size)
{
	if (isnan(f->core_s))
		snprintf(out, size, "The duration of the core phase is unknown.");
	else
		snprintf(out, size,
			"The core phase takes %.3g s; at least %d s are needed, so extend it.",
			f->core_s, CORE_S);
	return f->core_s >= CORE_S;
}

static bool often_enough(const struct facts *f, char *out, size_t size)
{
	if (isnan(interval_of(f)))
		snprintf(out, size, "How often the meter of the node is read is unknown.");
	else
		snprintf(out, size,
			"The meter of the node has a reading every %.3g s; at most %g %% of the "
			"core phase may lie between two.",
			interval_of(f), 100 * CORE_SHARE);
	return interval_of(f) <= CORE_SHARE * f->core_s;
}

static bool ten(const struct facts *f, char *out, size_t size)
{
	double possible = f->refresh_s > 0 ? floor(f->core_s / f->refresh_s) : INFINITY;

	return has_readings(f, possible, CORE_READINGS, out, size);
}

static double joules_in(const json_t *phase, const char *id)
{
	return jm_json_real_of(jm_json_find(json_object_get(phase, "meters"), "id", id), "joules");
}

/* All phases together are the whole run, from its setup to its end. */
static bool whole_run(const struct facts *f, char *out, size_t size)
{
	const char *id = jm_json_text(f->node, "id");
	const json_t *phase;
	size_t i;

	json_array_foreach(f->phases, i, phase)
	{
		double s = jm_json_real_of(phase, "end_s") - jm_json_real_of(phase, "start_s");

		if (s > 0 && isnan(joules_in(phase, id))) {
			snprintf(out, size,
				"The energy of the node in the phase '%.60s' is unknown; the whole "
				"run must be measured.",
				jm_json_text(phase, "name"));
			return false;
		}
	}
	snprintf(out, size, "The phases of the run are unknown; all of it must be measured.");
	return json_array_size(f->phases) > 0;
}

static bool edges(const struct facts *f, char *out, size_t size)
{
	snprintf(out, size,
		"The first and the last reading of the node's counter may lie more than %g s "
		"inside "
		"the core phase.",
		UNCOVERED_S / 2.0);
	return interval_of(f) <= UNCOVERED_S / 2.0 && f->core_s - f->covered_s <= UNCOVERED_S;
}

static bool upstream(const struct facts *f, const char *or_else, char *out, size_t size)
{
	bool wall = at_the_wall(f, out, size);

	snprintf(out, size,
		"No meter measures before the conversion of power, at the outlet or at the input "
		"of the power supplies. Without one, %s; a record does not contain this.",
		or_else);
	return wall;
}

static bool upstream_or_model(const struct facts *f, char *out, size_t size)
{
	return upstream(f,
		"the loss of the conversion is to be modelled with data of the manufacturer", out,
		size);
}

static bool upstream_or_sample(const struct facts *f, char *out, size_t size)
{
	return upstream(f,
		"the loss of the conversion is to be modelled with a measurement of one power "
		"supply",
		out, size);
}

static bool upstream_or_both(const struct facts *f, char *out, size_t size)
{
	return upstream(f,
		"the loss of the conversion is to be measured at the same time, every 5 minutes",
		out, size);
}

static bool level1_accuracy(const struct facts *f, char *out, size_t size)
{
	return within(f, LEVEL1_ACCURACY, out, size);
}

static bool level2_accuracy(const struct facts *f, char *out, size_t size)
{
	return within(f, LEVEL2_ACCURACY, out, size);
}

static bool level3_accuracy(const struct facts *f, char *out, size_t size)
{
	return within(f, LEVEL3_ACCURACY, out, size);
}

#define MOST_RULES 10
static const struct {
	const char *name;
	rule_fn *rule
		[MOST_RULES]; /* NULL-terminated; without a meter of the whole node only the first is evaluated */
	const char *not_judged[5];
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
	{"EE HPC WG level 1",
		{whole_node, upstream_or_model, sampled, a_minute, often_enough, no_gaps,
			level1_accuracy, NULL},
		{"The core phase must be the time that the performance is computed from.",
			"Fraction of the machine: all of it, or 40 kW, or the largest of 2 kW, a "
			"tenth of the compute nodes and 15 nodes, chosen at random.",
			"The power of the interconnect must be measured, or estimated from its "
			"highest specified power.",
			NULL}},
	{"EE HPC WG level 2",
		{whole_node, upstream_or_sample, sampled, a_minute, often_enough, ten, no_gaps,
			whole_run, level2_accuracy, NULL},
		{"The core phase must be the time that the performance is computed from.",
			"Fraction of the machine: all of it, or the largest of 10 kW, an eighth of "
			"the compute nodes and 15 nodes, chosen at random.",
			"The power of all other parts that take part, such as interconnect, "
			"storage and "
			"head nodes, must be measured, or estimated from their highest specified "
			"power.",
			"The averages of the core phase and of the whole run, and readings at "
			"equal "
			"intervals, are submitted.",
			NULL}},
	{"EE HPC WG level 3",
		{whole_node, upstream_or_both, integrated, a_minute, ten, edges, no_gaps, whole_run,
			level3_accuracy, NULL},
		{"The core phase must be the time that the performance is computed from.",
			"Fraction of the machine: all of it.",
			"The power of all parts that take part must be measured, internal cooling "
			"and losses of conversion included.",
			"The meter must sample fast enough for its accuracy; the energy readings "
			"from before the run to after it are submitted.",
			NULL}},
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
