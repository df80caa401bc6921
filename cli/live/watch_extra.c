/* SPDX-License-Identifier: Apache-2.0 */
#include "watch_extra.h"

#include <math.h>
#include <string.h>

static const struct jm_watch_extra watch_extras[JM_WATCH_EXTRAS] = {
	{"memory", "memory_used_B", "GB", JM_Q_MEMORY_USED, 1e-9, 2},
	{"temperature", "temperature_C", "°C", JM_Q_TEMPERATURE, 1, 0},
	{"clock", "clock_Hz", "MHz", JM_Q_CLOCK, 1e-6, 0},
	{"memory-clock", "memory_clock_Hz", "mem MHz", JM_Q_MEMORY_CLOCK, 1e-6, 0},
	{"utilisation", "utilisation", "%", JM_Q_UTILISATION, 100, 0},
	{"limit", "power_limit_W", "limit W", JM_Q_LIMIT, 1, 0},
};

static const struct jm_watch_extra *find(const char *name, size_t n)
{
	for (int i = 0; i < JM_WATCH_EXTRAS; i++)
		if (strlen(watch_extras[i].name) == n && !strncmp(watch_extras[i].name, name, n))
			return &watch_extras[i];
	return NULL;
}

int jm_watch_extra_parse(
	const char *list, const struct jm_watch_extra *ret[JM_WATCH_EXTRAS], struct jm_err *err)
{
	int n = 0;

	while (list && *list) {
		size_t length = strcspn(list, ",");
		const struct jm_watch_extra *found = find(list, length);

		if (!found)
			return jm_err_set(err, JM_EUSAGE,
				"--with has '%.*s'; it may have memory, temperature, clock, "
				"memory-clock, utilisation and limit, separated by commas.",
				(int)length, list);
		for (int i = 0; i < n; i++)
			if (ret[i] == found)
				return jm_err_set(
					err, JM_EUSAGE, "--with has %s twice.", found->name);
		ret[n++] = found;
		list += length + (list[length] == ',');
	}
	return n;
}

double jm_watch_extra_value(
	const struct jm_watch_extra *extra, struct jm_session *session, int meter)
{
	int signal = jm_meter_signal(jm_session_meters(session), meter, extra->quantity);
	struct jm_reading reading = {NAN, 0};

	if (signal >= 0)
		reading = jm_session_newest(session, signal);
	return reading.t_ns ? reading.value : NAN;
}
