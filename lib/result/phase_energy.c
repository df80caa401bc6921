/* SPDX-License-Identifier: Apache-2.0 */
#include "result/phase_energy.h"

#include <math.h>
#include <stdio.h>

#include "base/text/json.h"
#include "result/metric.h"

double jm_phase_joules(const json_t *record, const char *name, enum jm_origin *ret_origin)
{
	const json_t *phase = jm_json_find(json_object_get(record, "phases"), "name", name);
	const json_t *total = json_object_get(phase, "total");
	char key[40];

	if (!jm_metric_origin(record, ret_origin))
		return NAN;
	snprintf(key, sizeof(key), "joules_%s", jm_origin_name(*ret_origin));
	return jm_json_real_of(total, key);
}

void jm_record_until_energy(json_t *record)
{
	json_t *until = json_object_get(record, "until");
	enum jm_origin origin = JM_ESTIMATED;

	if (json_is_object(until))
		json_object_set_new(
			until, "joules", jm_json_number(jm_phase_joules(record, "until", &origin)));
}
