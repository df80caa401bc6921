/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The grade of a measurement: each rule that applies caps it and gives its reason. A needs a
 * measured whole node, by counters, without gaps, long enough for the sensors, with a small bound.
 */
#include "energy/quality.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WINDOWS_NEEDED 32 /* readings; arXiv 2312.02741 asks for as many repetitions */

enum grade { A, B, C, D, NONE };
static const char *const grade_names[] = {"A", "B", "C", "D", "none"};

struct reason {
	char text[320];
};

static bool counts(const struct jm_quality_facts *f, int i)
{
	return jm_meter_counts(f->set, i);
}

/* That its energy comes from. */
static const struct jm_signal *used_signal(const struct jm_quality_facts *f, int meter)
{
	int signal = isnan(f->energy[meter].joules_counter) ? jm_meter_power_signal(f->set, meter)
							    : jm_meter_energy_signal(f->set, meter);

	return signal < 0 ? NULL : &f->set->signal[signal];
}

static const char *label(const struct jm_quality_facts *f, int i)
{
	return f->set->meter[i].label;
}

/* ---- rules of the whole: the reason is filled in when they apply ---- */

static bool nothing_known(const struct jm_quality_facts *f, struct reason *r)
{
	for (int i = 0; i < f->set->n; i++)
		if (counts(f, i) && !isnan(f->energy[i].joules))
			return false;
	snprintf(r->text, sizeof(r->text), "No meter's energy is known.");
	return true;
}

static bool nothing_measured(const struct jm_quality_facts *f, struct reason *r)
{
	bool seen[JM_REPLAYED + 1] = {false};
	bool both;

	for (int i = 0; i < f->set->n; i++)
		seen[f->set->meter[i].origin] = true;
	if (!f->set->n || seen[JM_MEASURED] || seen[JM_REPLAYED])
		return false;
	both = seen[JM_ESTIMATED] && seen[JM_SIMULATED];
	snprintf(r->text, sizeof(r->text),
		"No energy was measured: every figure of power and energy is %s.",
		both ? "estimated or simulated"
		     : jm_origin_name(seen[JM_ESTIMATED] ? JM_ESTIMATED : JM_SIMULATED));
	return true;
}

static bool computing_unread(const struct jm_quality_facts *f, struct reason *r)
{
	if (!f->own_unread)
		return false;
	snprintf(r->text, sizeof(r->text),
		"No meter reads the device that computes, so the total is unknown.");
	return true;
}

static bool below_node(const struct jm_quality_facts *f, struct reason *r)
{
	for (int i = 0; i < f->set->n; i++) {
		const struct jm_meter *m = &f->set->meter[i];

		if (counts(f, i) && (m->scope == JM_SCOPE_NODE || !strcmp(m->covers, "/")))
			return false;
	}
	snprintf(r->text, sizeof(r->text),
		"No meter covers the whole node: fans, boards and losses of the power supply are "
		"missing.");
	return true;
}

/* ---- rules of one meter ---- */

/* A simulated meter does not count in the total of the measured meters. */
static bool is_simulated(const struct jm_quality_facts *f, int i, struct reason *r)
{
	if (f->set->meter[i].origin != JM_SIMULATED || nothing_measured(f, r))
		return false;
	snprintf(r->text, sizeof(r->text), "%s is simulated, not measured.", label(f, i));
	return true;
}

/* An estimated meter does not count in the measured total, which then does not cover the whole
 * node. */
static bool is_estimated(const struct jm_quality_facts *f, int i, struct reason *r)
{
	if (f->set->meter[i].origin != JM_ESTIMATED || nothing_measured(f, r))
		return false;
	snprintf(r->text, sizeof(r->text),
		"%s is estimated, not measured; the measured total is without it.", label(f, i));
	return true;
}

static bool is_replayed(const struct jm_quality_facts *f, int i, struct reason *r)
{
	if (f->set->meter[i].origin != JM_REPLAYED)
		return false;
	snprintf(r->text, sizeof(r->text), "%s is replayed from a recording.", label(f, i));
	return true;
}

static bool is_unknown(const struct jm_quality_facts *f, int i, struct reason *r)
{
	if (!isnan(f->energy[i].joules) || f->set->meter[i].origin == JM_ESTIMATED)
		return false;
	snprintf(r->text, sizeof(r->text), "The energy of %s is known for only %.3g of %.3g s.",
		label(f, i), f->energy[i].covered_s, f->seconds);
	return true;
}

static bool may_be_locked(const struct jm_quality_facts *f, int i, struct reason *r)
{
	if (!f->energy[i].may_be_locked)
		return false;
	snprintf(r->text, sizeof(r->text),
		"All power readings of %s are alike, its sensor measures only a part of the time, "
		"and it has no energy counter: a load that repeats with the sensor would look the "
		"same; measure longer.",
		label(f, i));
	return true;
}

static bool has_few_readings(const struct jm_quality_facts *f, int i, struct reason *r)
{
	if (!f->energy[i].few_readings)
		return false;
	snprintf(r->text, sizeof(r->text),
		"The power readings of %s are too few to show whether its load repeats with the "
		"sensor, which measures only a part of the time, and it has no energy counter; "
		"measure longer.",
		label(f, i));
	return true;
}

static double bound(const struct jm_energy *e)
{
	return e->joules > 0 ? e->error_sampling / e->joules : NAN;
}

/* The sampling error of an estimate is negligible against the error of its model. */
static bool bound_above(const struct jm_quality_facts *f, int i, double limit, struct reason *r)
{
	if (f->set->meter[i].origin == JM_ESTIMATED || !(bound(&f->energy[i]) > limit))
		return false;
	snprintf(r->text, sizeof(r->text),
		"The sampling uncertainty of the energy of %s is \302\261%.*f %%.", label(f, i),
		bound(&f->energy[i]) < 0.1, 100 * bound(&f->energy[i]));
	return true;
}

static bool very_loose(const struct jm_quality_facts *f, int i, struct reason *r)
{
	return bound_above(f, i, 0.2, r);
}

static bool loose(const struct jm_quality_facts *f, int i, struct reason *r)
{
	return !very_loose(f, i, r) && bound_above(f, i, 0.05, r);
}

static bool has_gaps(const struct jm_quality_facts *f, int i, struct reason *r)
{
	if (!f->energy[i].gaps)
		return false;
	snprintf(r->text, sizeof(r->text), "%s gave no readings at times (%ld %s).", label(f, i),
		f->energy[i].gaps, f->energy[i].gaps == 1 ? "gap" : "gaps");
	return true;
}

static bool too_short(const struct jm_quality_facts *f, int i, struct reason *r)
{
	const struct jm_signal *signal = used_signal(f, i);
	double windows;

	/* an estimate has no sensor whose refreshes could be counted */
	if (!signal || signal->refresh_ns <= 0 || f->set->meter[i].origin == JM_ESTIMATED)
		return false;
	windows = floor(f->seconds / ((double)signal->refresh_ns * 1e-9));
	if (windows >= WINDOWS_NEEDED)
		return false;
	snprintf(r->text, sizeof(r->text),
		"The phase of %.3g s covers %.0f refresh%s of the sensor of %s; at least %d are "
		"needed.",
		f->seconds, windows, windows == 1 ? "" : "es", label(f, i), WINDOWS_NEEDED);
	return true;
}

/* A sensor that shows one value may not have measured at all in this time. */
static bool refreshes_unknown(const struct jm_quality_facts *f, int i, struct reason *r)
{
	const struct jm_signal *signal = used_signal(f, i);
	const struct jm_energy *e = &f->energy[i];

	if (!signal || signal->refresh_ns > 0 || signal->quantity == JM_Q_ENERGY ||
		isnan(e->joules) || e->samples >= WINDOWS_NEEDED)
		return false;
	snprintf(r->text, sizeof(r->text),
		"How often the power sensor of %s refreshes is unknown, and it showed %ld "
		"value%s in %.3g s; at least %d are needed.",
		label(f, i), e->samples, e->samples == 1 ? "" : "s", f->seconds, WINDOWS_NEEDED);
	return true;
}

/* ---- readings that cannot be true ---- */

static void say_stuck(const struct jm_fault *fault, const char *what, struct reason *r)
{
	if (fault->power_watts > 0)
		snprintf(r->text, sizeof(r->text),
			"The energy counter of %s did not change for %.3g s while its power sensor "
			"read %.4g W; the counter is not used.",
			what, fault->seconds, fault->power_watts);
	else
		snprintf(r->text, sizeof(r->text),
			"The energy counter of %s did not change for %.3g s, although a running "
			"device always draws power; the counter is not used.",
			what, fault->seconds);
}

static bool is_faulty(const struct jm_quality_facts *f, int i, struct reason *r)
{
	const struct jm_fault *fault = &f->energy[i].fault;

	switch (fault->kind) {
	case JM_FAULT_COUNTER_STUCK:
		say_stuck(fault, label(f, i), r);
		return true;
	case JM_FAULT_COUNTER_FAST:
		snprintf(r->text, sizeof(r->text),
			"The energy counter of %s rose by %.4g W for %.3g s, which is more than it "
			"can draw; the counter is not used.",
			label(f, i), fault->counter_watts, fault->seconds);
		return true;
	case JM_FAULT_CONTRADICTION:
		snprintf(r->text, sizeof(r->text),
			"The energy counter (%.4g W) and the power sensor (%.4g W) of %s "
			"contradict "
			"each other for %.3g s; neither is used.",
			fault->counter_watts, fault->power_watts, label(f, i), fault->seconds);
		return true;
	default:
		return false;
	}
}

static bool power_is_zero(const struct jm_quality_facts *f, int i, struct reason *r)
{
	double zero_s = f->energy[i].fault.power_zero_s;

	if (!(zero_s > 0))
		return false;
	snprintf(r->text, sizeof(r->text),
		"The power sensor of %s read 0 W for %.3g s, although a running device always "
		"draws power; its readings are not used.",
		label(f, i), zero_s);
	return true;
}

static bool ways_differ(const struct jm_quality_facts *f, int i, struct reason *r)
{
	const struct jm_energy *e = &f->energy[i];

	if (e->fault.kind != JM_FAULT_DIFFER)
		return false;
	snprintf(r->text, sizeof(r->text),
		"Counter (%.4g J) and integrated power (%.4g J) of %s differ by more than their "
		"bounds, because the load repeats in step with the sensor or because one of them "
		"is "
		"wrong; the bound covers both.",
		e->joules_counter, e->joules_integrated, label(f, i));
	return true;
}

static bool was_reset(const struct jm_quality_facts *f, int i, struct reason *r)
{
	const struct jm_energy *e = &f->energy[i];

	if (!e->resets)
		return false;
	snprintf(r->text, sizeof(r->text), "The energy counter of %s was reset %s%s.", label(f, i),
		e->resets == 1 ? "once" : "more than once",
		isnan(e->joules) ? "" : "; its energy comes from power readings");
	return true;
}

static bool in_step(const struct jm_quality_facts *f, int i, struct reason *r)
{
	if (!f->energy[i].places)
		return false;
	snprintf(r->text, sizeof(r->text),
		"The load of %s repeats in step with its sensor, which sampled the same %d points "
		"of each period; the bound covers the values between them.",
		label(f, i), f->energy[i].places);
	return true;
}

/* Reported for the first of the two meters only. */
static bool shares_a_part(const struct jm_quality_facts *f, int i, struct reason *r)
{
	const struct jm_meter *m = &f->set->meter[i];

	if (m->overlaps < 0 || !counts(f, m->overlaps) ||
		f->set->meter[m->overlaps].origin != m->origin ||
		(m->overlaps < i && f->set->meter[m->overlaps].overlaps == i))
		return false;
	snprintf(r->text, sizeof(r->text),
		"%s and %s measure a common part, so that their total is unknown.", label(f, i),
		label(f, m->overlaps));
	return true;
}

static bool no_counter(const struct jm_quality_facts *f, int i, struct reason *r)
{
	const struct jm_energy *e = &f->energy[i];
	bool counter = jm_meter_signal(f->set, i, JM_Q_ENERGY) >= 0;

	if (counter &&
		(!isnan(e->joules_counter) || isnan(e->joules) || e->fault.kind || e->resets))
		return false;
	snprintf(r->text, sizeof(r->text),
		counter ? "The energy counter of %s was not read throughout this phase, or is less "
			  "exact for it than its power readings, which are used."
			: "%s has no energy counter.",
		label(f, i));
	return true;
}

static bool was_throttled(const struct jm_quality_facts *f, int i, struct reason *r)
{
	unsigned int why = f->throttle[i];

	if (!(why & (JM_THROTTLE_THERMAL | JM_THROTTLE_POWER_BRAKE)))
		return false;
	snprintf(r->text, sizeof(r->text), "%s was throttled because of %s.", label(f, i),
		why & JM_THROTTLE_THERMAL ? "heat" : "the external power brake");
	return true;
}

static bool drifted(const struct jm_quality_facts *f, int i, struct reason *r)
{
	if (!(fabs(f->drift[i]) > 0.05))
		return false;
	snprintf(r->text, sizeof(r->text),
		"The power of %s drifted by %+.2g %% from the first third to the last.",
		label(f, i), 100 * f->drift[i]);
	return true;
}

/* The rules, strictest first. A rule of a meter is asked for each topmost meter. */
static const struct {
	enum grade cap;
	bool (*of_all)(const struct jm_quality_facts *f, struct reason *r);
	bool (*of_meter)(const struct jm_quality_facts *f, int i, struct reason *r);
} rules[] = {
	{NONE, nothing_known, NULL},
	{NONE, nothing_measured, NULL},
	{NONE, computing_unread, NULL},
	{D, NULL, is_unknown},
	{D, NULL, is_simulated},
	{D, NULL, shares_a_part},
	{D, NULL, may_be_locked},
	{D, NULL, has_few_readings},
	{D, NULL, very_loose},
	{C, NULL, loose},
	{C, NULL, has_gaps},
	{C, NULL, too_short},
	{C, NULL, refreshes_unknown},
	{C, NULL, is_faulty},
	{C, NULL, power_is_zero},
	{C, NULL, ways_differ},
	{C, NULL, was_reset},
	{C, NULL, in_step},
	{C, NULL, is_replayed},
	{B, NULL, is_estimated},
	{B, NULL, no_counter},
	{B, NULL, was_throttled},
	{B, NULL, drifted},
	{B, below_node, NULL},
};

/* Eight GPUs with the same complaint are one reason. */
#define SAID_EACH 2

/* Returns how many meters it applies to; -1: no memory. */
static int apply_to_meters(
	const struct jm_quality_facts *f, size_t rule, json_t *reasons, struct reason *r)
{
	int hits = 0, lost = 0;

	for (int i = 0; i < f->set->n; i++) {
		if (!counts(f, i) || !rules[rule].of_meter(f, i, r))
			continue;
		if (++hits <= SAID_EACH)
			lost |= json_array_append_new(reasons, json_string(r->text));
	}
	if (lost)
		return -1;
	if (hits <= SAID_EACH)
		return hits;
	snprintf(r->text, sizeof(r->text), "The same applies to %d more %s.", hits - SAID_EACH,
		hits - SAID_EACH == 1 ? "meter" : "meters");
	return json_array_append_new(reasons, json_string(r->text)) ? -1 : hits;
}

/* Does the rule apply? 1 yes, 0 no, -1: no memory. */
static int apply(const struct jm_quality_facts *facts, size_t rule, json_t *reasons)
{
	struct reason r = {""};
	int hits;

	if (rules[rule].of_meter) {
		hits = apply_to_meters(facts, rule, reasons, &r);
		return hits > 0 ? 1 : hits;
	}
	if (!rules[rule].of_all(facts, &r))
		return 0;
	return json_array_append_new(reasons, json_string(r.text)) ? -1 : 1;
}

const char *jm_quality_judge(const struct jm_quality_facts *facts, json_t *reasons)
{
	enum grade grade = A;

	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		int hit = apply(facts, i, reasons);

		if (hit < 0)
			return NULL;
		if (hit && rules[i].cap > grade)
			grade = rules[i].cap;
	}
	return grade_names[grade];
}
