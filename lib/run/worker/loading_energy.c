/* SPDX-License-Identifier: Apache-2.0 */
#include "loading_energy.h"

#include "base/text/json.h"
#include "measure/command/processor_share.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define LEAST_S 0.1 /* the machine's processor time has ticks of 10 ms */

/* Of the packages in a phase; NAN = one is unknown. */
static double phase_joules(const json_t *phase, const struct jm_meters *set)
{
	const json_t *meters = json_object_get(phase, "meters");
	double sum = 0;

	for (int i = 0; i < set->n; i++)
		if (jm_is_processor(set, i))
			sum += jm_json_real_of(
				jm_json_find(meters, "id", set->meter[i].id), "joules");
	return sum;
}

/* Of the phases that follow each other; the others are within them. */
static double all_joules(const json_t *record, const struct jm_meters *set)
{
	static const char *const names[] = {"setup", "settle", "warmup", "steady", "verify"};
	const json_t *phases = json_object_get(record, "phases"), *phase;
	double sum = 0;
	size_t i;

	json_array_foreach(phases, i, phase)
	{
		for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++)
			if (!strcmp(jm_json_text(phase, "name"), names[k]))
				sum += phase_joules(phase, set);
	}
	return sum;
}

static bool has_processor(const struct jm_meters *set)
{
	for (int i = 0; i < set->n; i++)
		if (jm_is_processor(set, i))
			return true;
	return false;
}

void jm__loading_energy(json_t *record, const struct jm_meters *set, double machine_cpu_s)
{
	json_t *data = json_object_get(record, "data");
	double cpu_s = jm_json_real_of(data, "decode_cpu_s"), joules = NAN;
	bool alone = !json_is_object(json_object_get(record, "gang"));

	if (!json_is_object(data))
		return;
	if (alone && has_processor(set) && machine_cpu_s >= LEAST_S && cpu_s < machine_cpu_s)
		joules = all_joules(record, set) * cpu_s / machine_cpu_s;
	jm_json_set_number(&data, "machine_cpu_s", machine_cpu_s);
	jm_json_set_number(&data, "host_joules", joules);
}
