/* SPDX-License-Identifier: Apache-2.0 */
#include "loading_energy.h"

#include "base/text/json.h"
#include "measure/command/processor_share.h"

#include <math.h>
#include <stddef.h>

#define LEAST_S 0.1 /* the machine's processor time has ticks of 10 ms */

/* Of the packages in a phase; NAN = one is unknown. */
static double phase_joules(const json_t *record, const char *name, const struct jm_meters *set)
{
	const json_t *phase = jm_json_find(json_object_get(record, "phases"), "name", name);
	const json_t *meters = json_object_get(phase, "meters");
	double sum = 0;

	for (int i = 0; phase && i < set->n; i++)
		if (jm_is_processor(set, i))
			sum += jm_json_real_of(
				jm_json_find(meters, "id", set->meter[i].id), "joules");
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
	static const char *const phases[] = {"setup", "warmup", "steady", "verify"};
	json_t *data = json_object_get(record, "data");
	double joules = has_processor(set) ? 0 : NAN, share = NAN;

	if (!json_is_object(data))
		return;
	for (size_t i = 0; i < sizeof(phases) / sizeof(*phases); i++)
		joules += phase_joules(record, phases[i], set);
	if (machine_cpu_s >= LEAST_S)
		share = fmin(jm_json_real_of(data, "decode_s") / machine_cpu_s, 1);
	jm_json_set_number(&data, "machine_cpu_s", machine_cpu_s);
	jm_json_set_number(&data, "host_joules", share * joules);
}
