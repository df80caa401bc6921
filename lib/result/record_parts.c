/* SPDX-License-Identifier: Apache-2.0 */
#include "result/record_parts.h"
#include "base/text/json.h"
#include "result/metric.h"
#include "meter/meter.h"
#include "result/record.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- one meter of a machine, over the time of all parts -------------------------------------- */

static const json_t *meter_of(const json_t *record, const char *id)
{
	return jm_json_find(json_object_get(record, "meters"), "id", id);
}

struct sum {
	double joules, sampling, calibration, seconds, watts_max;
	int pieces;
};

/* The energy of a meter from t0 to t1, of which it measured a longer time: by its mean, within what
 * its largest power allows. */
static void add_piece(
	const json_t *meter, const struct jm_part *p, double t0, double t1, struct sum *s)
{
	double share = (t1 - t0) / (p->t1 - p->t0), joules = jm_json_real_of(meter, "joules");
	double mean = joules * share, most = jm_json_real_of(meter, "watts_max") * (t1 - t0);
	double sampling = jm_json_real_of(meter, "error_sampling_joules");

	if (share < 1) {
		most = most < joules ? most : joules;
		sampling = fmax(fmax(mean, most - mean), sampling * share);
	}
	s->joules += mean;
	s->sampling = hypot(s->sampling, sampling);
	s->calibration += share * jm_json_real_of(meter, "error_calibration_joules");
	s->seconds += t1 - t0;
	s->watts_max = fmax(s->watts_max, jm_json_real_of(meter, "watts_max"));
	s->pieces++;
}

/* Is it a part of this machine that has the meter? */
static const json_t *meter_in(const struct jm_part *p, const char *machine, const char *id)
{
	return strcmp(p->machine, machine) != 0 ? NULL : meter_of(p->record, id);
}

/* The part that begins by `at` and ends last, after `at`; where there is none, the one that begins
 * next. -1 = none */
static int next_part(
	const struct jm_part *part, int n, const char *machine, const char *id, double at)
{
	int best = -1, next = -1;

	for (int i = 0; i < n; i++) {
		if (!meter_in(&part[i], machine, id) || part[i].t1 <= at)
			continue;
		if (part[i].t0 <= at && (best < 0 || part[i].t1 > part[best].t1))
			best = i;
		if (part[i].t0 > at && (next < 0 || part[i].t0 < part[next].t0))
			next = i;
	}
	return best >= 0 ? best : next;
}

/* The longest measurement whole, then what others have before and after it. */
static struct sum sum_meter(const struct jm_part *part, int n, const char *machine, const char *id)
{
	struct sum s = {.watts_max = NAN};
	double at = -INFINITY;
	int longest = -1, i;

	for (i = 0; i < n; i++)
		if (meter_in(&part[i], machine, id) &&
			(longest < 0 ||
				part[i].t1 - part[i].t0 > part[longest].t1 - part[longest].t0))
			longest = i;
	while ((i = next_part(part, n, machine, id, at)) >= 0) {
		double t0 = fmax(at, part[i].t0), t1 = part[i].t1;
		bool before = t0 < part[longest].t0;

		if (!before && t0 < part[longest].t1) {
			i = longest;
			t0 = part[i].t0;
			t1 = part[i].t1;
		} else if (before) {
			t1 = fmin(t1, part[longest].t0);
		}
		add_piece(meter_of(part[i].record, id), &part[i], t0, t1, &s);
		at = t1;
	}
	return s;
}

static void put(json_t *object, const char *key, double value)
{
	json_object_set_new(object, key, jm_json_number(value));
}

static void set_sum(json_t *meter, const struct sum *s)
{
	static const char *const of_one[] = {"joules_counter", "joules_integrated", "watts_median",
		"watts_p99", "rest_joules", "rest_error_joules"};

	put(meter, "joules", s->joules);
	put(meter, "error_joules", hypot(s->sampling, s->calibration));
	put(meter, "error_sampling_joules", s->sampling);
	put(meter, "error_calibration_joules", s->calibration);
	put(meter, "watts_mean", s->joules / s->seconds);
	put(meter, "watts_max", s->watts_max);
	for (size_t i = 0; s->pieces > 1 && i < sizeof(of_one) / sizeof(of_one[0]); i++)
		if (json_object_get(meter, of_one[i]))
			json_object_set_new(meter, of_one[i], json_null());
}

/* ---- one machine ----------------------------------------------------------------------------- */

static bool counts(const json_t *meter, const char *origin)
{
	return !strcmp(jm_json_text(meter, "origin"), origin) &&
	       !*jm_json_text(meter, "covered_by") &&
	       !json_is_true(json_object_get(meter, "elsewhere"));
}

static bool any_counts(const json_t *meters, const char *origin)
{
	const json_t *meter;
	size_t i;

	json_array_foreach(meters, i, meter)
	{
		if (counts(meter, origin))
			return true;
	}
	return false;
}

/* Does a part that counts meters of this origin not know their total? */
static bool any_unknown(
	const struct jm_part *part, int n, const char *machine, const char *origin, const char *key)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(part[i].machine, machine) &&
			any_counts(json_object_get(part[i].record, "meters"), origin) &&
			isnan(jm_json_real_of(json_object_get(part[i].record, "total"), key)))
			return true;
	return false;
}

static json_t *total_of(
	const json_t *meters, const struct jm_part *part, int n, const char *machine)
{
	json_t *total = json_object();

	for (int o = 0; o < JM_ORIGIN_COUNT; o++) {
		const char *origin = jm_origin_name(jm_origin_order[o]);
		double joules = any_counts(meters, origin) ? 0 : NAN, sampling = 0, calibration = 0;
		const json_t *meter;
		char key[40];
		size_t i;

		json_array_foreach(meters, i, meter)
		{
			if (!counts(meter, origin))
				continue;
			joules += jm_json_real_of(meter, "joules");
			sampling = hypot(sampling, jm_json_real_of(meter, "error_sampling_joules"));
			calibration += jm_json_real_of(meter, "error_calibration_joules");
		}
		snprintf(key, sizeof(key), "joules_%s", origin);
		if (any_unknown(part, n, machine, origin, key))
			joules = NAN;
		put(total, key, joules);
		snprintf(key, sizeof(key), "error_%s_joules", origin);
		put(total, key, isnan(joules) ? NAN : hypot(sampling, calibration));
	}
	return total;
}

/* All meters of the parts of a machine, each once. One on which some part ran is not elsewhere. */
static json_t *meters_of(const struct jm_part *part, int n, const char *machine)
{
	json_t *by_id = json_object(), *list = json_array(), *known;
	const json_t *meter;
	size_t k;

	for (int i = 0; i < n; i++) {
		json_array_foreach(strcmp(part[i].machine, machine) != 0
					   ? NULL
					   : json_object_get(part[i].record, "meters"),
			k, meter)
		{
			const char *id = jm_json_text(meter, "id");
			struct sum s;

			known = json_object_get(by_id, id);
			if (known && !json_is_true(json_object_get(meter, "elsewhere")))
				json_object_del(known, "elsewhere");
			if (known)
				continue;
			known = json_deep_copy(meter);
			s = sum_meter(part, n, machine, id);
			set_sum(known, &s);
			json_object_set(by_id, id, known);
			json_array_append_new(list, known);
		}
	}
	json_decref(by_id);
	return list;
}

static json_t *short_meters(const json_t *meters)
{
	json_t *list = json_array();
	const json_t *meter;
	size_t i;

	json_array_foreach(meters, i, meter) json_array_append_new(
		list, json_pack("{s:O, s:O, s:O, s:O}", "id", json_object_get(meter, "id"),
			      "joules", json_object_get(meter, "joules"), "error_joules",
			      json_object_get(meter, "error_joules"), "watts_mean",
			      json_object_get(meter, "watts_mean")));
	return list;
}

/* "A" is the best grade, "none" the worst. */
static void add_quality(json_t *quality, const json_t *other)
{
	const char *own = jm_json_text(quality, "grade"), *its = jm_json_text(other, "grade");
	json_t *reasons = json_object_get(quality, "reasons"), *reason, *there;
	size_t i, k;

	if (*its && (!strcmp(its, "none") || (strcmp(own, "none") != 0 && strcmp(its, own) > 0)))
		json_object_set(quality, "grade", json_object_get(other, "grade"));
	json_array_foreach(json_object_get(other, "reasons"), i, reason)
	{
		bool known = false;

		json_array_foreach(reasons, k, there) known = known || json_equal(there, reason);
		if (!known)
			json_array_append(reasons, reason);
	}
}

json_t *jm__machine_record(const struct jm_part *part, int n, int first, double span)
{
	const struct jm_part *p = &part[first];
	double start = p->t0 - jm_json_real_of(p->record, "start_ns") * 1e-9;
	json_t *record = json_deep_copy(p->record), *meters = meters_of(part, n, p->machine);
	json_t *total = total_of(meters, part, n, p->machine);
	json_t *phase = json_object();

	jm_json_set_text(&phase, "name", jm_json_text(p->record, "phase"));
	jm_json_set_number(&phase, "start_s", start);
	jm_json_set_number(&phase, "end_s", start + span);
	jm_json_set_number(&phase, "items", NAN);
	jm_json_set(&phase, "meters", short_meters(meters));
	jm_json_set(&phase, "total", json_deep_copy(total));
	for (int i = 0; i < n; i++)
		if (i != first && !strcmp(part[i].machine, p->machine))
			add_quality(json_object_get(record, "quality"),
				json_object_get(part[i].record, "quality"));
	jm_record_set(record, "meters", meters);
	jm_record_set(record, "total", total);
	jm_record_set(record, "phases", json_pack("[o]", phase));
	json_object_del(record, "own_share");
	json_object_del(record, "idle_gpus");
	jm_record_idle_gpus(record);
	return record;
}
