/* SPDX-License-Identifier: Apache-2.0 */
#include "result/setting_state.h"

#include "result/case_id.h"
#include "trace/hold_sum.h"

#include <math.h>
#include <string.h>

const char *jm_setting_state(double requested, double enforced, double mean, double capped)
{
	double limit = isnan(enforced) ? requested : enforced;

	if (capped > 0.5 && isnan(mean))
		return "binding";
	if (isnan(mean) || isnan(requested))
		return "unknown";
	if (mean > requested * 1.02 + 1)
		return "violated";
	if (mean >= 0.97 * limit || capped > 0.5)
		return "binding";
	return "not reached";
}

/* Mean of a signal of the meter, or the share of time in which bits of the mask were set. NAN =
 * unknown. */
static double mean_of(struct jm_session *s, int meter, enum jm_quantity quantity, int mask,
	const struct jm_phase *phase)
{
	int signal = jm_meter_signal(jm_session_meters(s), meter, quantity);
	double mean;

	if (signal < 0 || jm_held_mean(jm_session_trace(s), signal, phase->t0_ns, phase->t1_ns,
				  mask, &mean, NULL))
		return NAN;
	return mean;
}

/* The meter of the whole device: not one that is covered by another meter of it. */
static int meter_of_device(const struct jm_meters *set, const char *device)
{
	for (int i = 0; i < set->n; i++) {
		const struct jm_meter *m = &set->meter[i];

		if (strcmp(m->device, device) != 0)
			continue;
		if (m->covered_by < 0 || strcmp(set->meter[m->covered_by].device, device) != 0)
			return i;
	}
	return -1;
}

/* Of one or several phases, each by its length. */
struct means {
	double mean, capped, seconds;
};

/* Of what the setting limits: power, or the clock of a GPU's cores; of other knobs the device shows
 * nothing. */
static void add_means(struct jm_session *s, int meter, const json_t *setting, int64_t t0,
	int64_t t1, struct means *m)
{
	const char *knob = jm_case_knob(jm_json_text(setting, "knob"), NULL, 0);
	double seconds = (double)(t1 - t0) * 1e-9, mean = NAN, capped = NAN;
	const struct jm_phase p = {.t0_ns = t0, .t1_ns = t1};
	struct jm_energy energy;

	if (!strcmp(jm_json_text(setting, "unit"), "W")) {
		if (!jm_session_energy_now(s, meter, t0, t1, &energy, NULL))
			mean = energy.watts_mean;
		capped = mean_of(s, meter, JM_Q_THROTTLE, JM_THROTTLE_POWER_CAP, &p);
	} else if (!strcmp(knob, "gpu.clock")) {
		mean = mean_of(s, meter, JM_Q_CLOCK, 0, &p);
	}
	m->mean += mean * seconds;
	m->capped += capped * seconds;
	m->seconds += seconds;
}

bool jm_setting_is_replaced(const json_t *record, const char *phase, const json_t *setting)
{
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(record, "settings"), i, row)
	{
		if (!strcmp(jm_json_text(row, "phase"), phase) &&
			!strcmp(jm_json_text(row, "device"), jm_json_text(setting, "device")) &&
			!strcmp(jm_case_knob(jm_json_text(row, "knob"), NULL, 0),
				jm_json_text(setting, "knob")))
			return true;
	}
	return false;
}

const json_t *jm_record_setting(const json_t *record, size_t i)
{
	const json_t *rows = json_object_get(record, "settings");
	const json_t *hosts = json_object_get(record, "hosts");

	for (size_t h = 0; h <= json_array_size(hosts); h++) {
		if (h == 1) /* the first host's are the record's own */
			continue;
		if (h)
			rows = json_object_get(json_array_get(hosts, h - 1), "settings");
		if (i < json_array_size(rows))
			return json_array_get(rows, i);
		i -= json_array_size(rows);
	}
	return NULL;
}

/* True if a phase of the record replaces the setting, and the main phase is none in which it
 * applies. */
static bool changes(const json_t *record, int main_phase, const json_t *setting)
{
	const json_t *phase = json_array_get(json_object_get(record, "phases"), (size_t)main_phase);
	size_t i;

	if (json_object_get(phase, "settings") &&
		!jm_setting_is_replaced(record, jm_json_text(phase, "name"), setting))
		return false;
	json_array_foreach(json_object_get(record, "phases"), i, phase)
	{
		if (json_object_get(phase, "settings") &&
			jm_setting_is_replaced(record, jm_json_text(phase, "name"), setting))
			return true;
	}
	return false;
}

/* Over all phases in which it was in force, from when on it was. */
static void add_phases(struct jm_session *s, const json_t *record, const json_t *setting, int meter,
	struct means *m)
{
	const char *of = jm_json_text(setting, "phase");
	int n;
	const struct jm_phase *p = jm_session_phases(s, &n);

	for (int i = 0; i < n; i++) {
		const json_t *phase = json_array_get(json_object_get(record, "phases"), (size_t)i);
		double late = jm_json_real_of(phase, "settings_from_s") -
			      jm_json_real_of(phase, "start_s");
		int64_t t0 = p[i].t0_ns + (late > 0 ? (int64_t)(late * 1e9) : 0);

		if (!json_object_get(phase, "settings") || t0 >= p[i].t1_ns)
			continue;
		if (*of ? !strcmp(p[i].name, of)
			: !jm_setting_is_replaced(record, p[i].name, setting))
			add_means(s, meter, setting, t0, p[i].t1_ns, m);
	}
}

static const char *judge(
	struct jm_session *s, int phase, const json_t *record, const json_t *setting)
{
	const char *device = json_string_value(json_object_get(setting, "device"));
	int n, meter = device ? meter_of_device(jm_session_meters(s), device) : -1;
	const struct jm_phase *p = &jm_session_phases(s, &n)[phase];
	struct means m = {0};

	if (meter < 0)
		return "unknown";
	if (*jm_json_text(setting, "phase") || changes(record, phase, setting))
		add_phases(s, record, setting, meter, &m);
	else
		add_means(s, meter, setting, p->t0_ns, p->t1_ns, &m);
	return jm_setting_state(jm_json_real(json_object_get(setting, "requested")),
		jm_json_real(json_object_get(setting, "enforced")), m.mean / m.seconds,
		m.capped / m.seconds);
}

int jm_record_judge_settings(json_t *record, struct jm_session *s, int phase, struct jm_err *err)
{
	json_t *setting;
	size_t i;

	json_array_foreach(json_object_get(record, "settings"), i, setting)
	{
		if (json_object_set_new(
			    setting, "state", json_string(judge(s, phase, record, setting))))
			return jm_err_set(err, JM_ENOMEM, "Out of memory for a record.");
	}
	return 0;
}
