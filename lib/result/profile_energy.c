/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the energy of a run spreads over what a profile has timed. No meter sees a kernel: this is a model,
 * it says that every second of the steady phase draws the same power, and the record says so too.
 */
#include "result/record.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const origins[] = {"measured", "estimated", "simulated", "replayed"};

/* Of the steady phase, from the most trusted kind of meter there is; NAN = none. */
static double joules_of(const json_t *record, const char **ret_origin)
{
	const json_t *total = json_object_get(record, "total");
	char key[32];

	for (size_t i = 0; i < sizeof(origins) / sizeof(*origins); i++) {
		double joules;

		snprintf(key, sizeof(key), "joules_%s", origins[i]);
		joules = jm_json_real(json_object_get(total, key));
		*ret_origin = origins[i];
		if (joules > 0)
			return joules;
	}
	return NAN;
}

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
	const char *origin;
	double joules;

	if (!profile)
		return;
	joules = joules_of(record, &origin);
	if (isnan(joules))
		return;
	share(json_object_get(profile, "kinds"), joules);
	share(json_object_get(profile, "nodes"), joules);
	json_object_set_new(profile, "energy",
		json_pack("{s:s, s:s, s:f}", "model",
			"the steady phase's energy, shared out by time: no meter sees a kernel",
			"origin", origin, "joules", joules));
}
