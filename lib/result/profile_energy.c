/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides the energy of a run among the parts that a profile has timed. No meter measures a single
 * kernel: this is a model, which assumes that power is constant in the steady phase, and the record
 * says so too.
 */
#include "result/metric.h"
#include "result/profile_energy.h"
#include "base/text/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void share(json_t *lines, double joules)
{
	json_t *line;
	size_t i;

	json_array_foreach(lines, i, line)
	{
		double part = joules * jm_json_real(json_object_get(line, "share"));

		json_object_set_new(line, "joules_model", jm_json_number(part));
	}
}

void jm_record_share_energy(json_t *record)
{
	json_t *profile = json_object_get(record, "profile");
	enum jm_origin origin;
	double joules;

	if (!profile)
		return;
	joules = jm_metric_joules(record, &origin);
	if (!(joules > 0))
		return;
	share(json_object_get(profile, "kinds"), joules);
	share(json_object_get(profile, "nodes"), joules);
	json_object_set_new(profile, "energy",
		json_pack("{s:s, s:s, s:f}", "model",
			"the steady phase's energy, divided by time: no meter resolves a kernel",
			"origin", jm_origin_name(origin), "joules", joules));
}
