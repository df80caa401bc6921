/* SPDX-License-Identifier: Apache-2.0 */
#include "result/phase_energy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "result/metric.h"

/* format: of the key, "joules_%s" or "error_%s_joules". */
static double total_of(const json_t *phase, const char *format, enum jm_origin origin)
{
	char key[40];

	snprintf(key, sizeof(key), format, jm_origin_name(origin));
	return jm_json_real_of(json_object_get(phase, "total"), key);
}

static double joules_of(const json_t *phase, enum jm_origin origin)
{
	return total_of(phase, "joules_%s", origin);
}

double jm_phase_joules(const json_t *record, const char *name, enum jm_origin *ret_origin)
{
	if (!jm_metric_origin(record, ret_origin))
		return NAN;
	return joules_of(
		jm_json_find(json_object_get(record, "phases"), "name", name), *ret_origin);
}

void jm_record_until_energy(json_t *record)
{
	json_t *until = json_object_get(record, "until");
	enum jm_origin origin = JM_ESTIMATED;

	if (json_is_object(until))
		json_object_set_new(
			until, "joules", jm_json_number(jm_phase_joules(record, "until", &origin)));
}

/* The value, and its bound, which may be unknown; both are where it is as large as the value. */
static void set_bounded(json_t *part, const char *key, double value, double bound)
{
	bool known = !(bound >= value);
	char name[40];

	snprintf(name, sizeof(name), "error_%s", key);
	json_object_set_new(part, key, jm_json_number(known ? value : NAN));
	json_object_set_new(part, name, jm_json_number(known ? bound : NAN));
}

/* Of all phases of that name; unknown where one is. Bounds are added up: the sensor's own error is
 * the same in each phase. */
static void add_energy(
	json_t *part, const json_t *phases, const char *name, bool known, enum jm_origin origin)
{
	double joules = known ? 0 : NAN, bound = 0, seconds = 0, items = 0;
	const json_t *phase;
	size_t i;

	json_array_foreach(phases, i, phase)
	{
		if (strcmp(jm_json_text(phase, "name"), name) != 0)
			continue;
		joules += joules_of(phase, origin);
		bound += total_of(phase, "error_%s_joules", origin);
		seconds += jm_json_real_of(phase, "end_s") - jm_json_real_of(phase, "start_s");
		items += jm_json_real_of(phase, "items");
	}
	set_bounded(part, "watts", joules / seconds, bound / seconds);
	set_bounded(part, "joules", joules / items, bound / items);
}

void jm_record_overlap_energy(json_t *record)
{
	json_t *overlap = json_object_get(record, "overlap"), *part;
	enum jm_origin origin = JM_ESTIMATED;
	bool known = jm_metric_origin(record, &origin);
	const char *name;

	json_object_foreach(overlap, name, part)
	{
		if (json_is_object(part))
			add_energy(part, json_object_get(record, "phases"), name, known, origin);
	}
}
