/* SPDX-License-Identifier: Apache-2.0 */
/* Pauses between steps that hold a mean power, and the wait for thermal steady state: both by what
 * meters read. */
#include "worker_pace.h"
#include "run/workload.h"
#include "worker_phases.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define STRETCH_NS JM_SECOND
#define LAG_NS	   (JM_SECOND / 4) /* until the readings around an edge have arrived */

/* ---- what the meters of the work read -------------------------------------------------------- */

/* The meter of the computing device; without one, all meters that count, of the most significant
 * origin. */
static bool is_of_work(const struct jm__worker *w, int meter)
{
	const struct jm_meters *set = jm_session_meters(w->session);

	if (w->own_meter >= 0 && w->world < 2)
		return meter == w->own_meter;
	for (int i = 0; i < JM_ORIGIN_COUNT; i++)
		for (int k = 0; k < set->n; k++)
			if (jm_meter_counts(set, k) && set->meter[k].origin == jm_origin_order[i])
				return jm_meter_counts(set, meter) &&
				       set->meter[meter].origin == jm_origin_order[i];
	return false;
}

/* Joules from t0 to t1; NAN = unknown. */
static double energy(struct jm__worker *w, int64_t t0, int64_t t1)
{
	const struct jm_meters *set = jm_session_meters(w->session);
	struct jm_energy e;
	double sum = 0;
	int n = 0;

	for (int i = 0; i < set->n; i++) {
		if (!is_of_work(w, i))
			continue;
		if (jm_session_energy_now(w->session, i, t0, t1, &e, NULL))
			return NAN;
		sum += e.joules;
		n++;
	}
	return n ? sum : NAN;
}

/* The sum of the newest readings, or their mean; NAN = there is none. */
static double newest(struct jm__worker *w, enum jm_quantity quantity, bool mean)
{
	const struct jm_meters *set = jm_session_meters(w->session);
	double sum = 0;
	int n = 0;

	for (int i = 0; i < set->n; i++) {
		int signal = is_of_work(w, i) ? jm_meter_signal(set, i, quantity) : -1;

		if (signal < 0)
			continue;
		sum += jm_session_newest(w->session, signal).value;
		n++;
	}
	return n ? sum / (mean ? n : 1) : NAN;
}

/* ---- pauses ---------------------------------------------------------------------------------- */

int jm__pace_begin(struct jm__worker *w, struct jm__pace *p, double watts, struct jm_err *err)
{
	int n = jm_session_meters(w->session)->n;

	*p = (struct jm__pace){.holds = watts > 0, .begin_ns = jm_ctx_now(w->ctx)};
	jm_pacer_init(&p->pacer, watts);
	for (int i = 0; i < n && p->holds; i++)
		if (is_of_work(w, i))
			return 0;
	if (!p->holds)
		return 0;
	return jm_err_set(err, JM_ENOENT,
		"--hold-power has nothing to hold, because no meter reads the power of this run; "
		"give one with --source ('joulemark doctor' lists those of this machine).");
}

static void see(struct jm__worker *w, struct jm__pace *p)
{
	double seconds = 1e-9 * (double)(p->to_ns - p->from_ns), owed = 0;

	if (p->settled_ns)
		owed = energy(w, p->settled_ns, p->to_ns) -
		       p->pacer.watts * 1e-9 * (double)(p->to_ns - p->settled_ns);
	jm_pacer_see(&p->pacer, energy(w, p->from_ns, p->to_ns) / seconds, owed);
}

/*
 * Power is the energy of an interval divided by its length, a whole number of cycles of one duty.
 * Both ends are edges for the sampler, like those of phases, so that counters are read there;
 * samples of power would fall at arbitrary places of a cycle.
 */
static void watch(struct jm__worker *w, struct jm__pace *p, int64_t now)
{
	if (p->to_ns && now - p->to_ns < LAG_NS)
		return;
	if (p->to_ns) {
		see(w, p);
		p->from_ns = p->to_ns = 0;
	}
	if (!p->from_ns)
		p->from_ns = now;
	else if (now - p->from_ns >= STRETCH_NS)
		p->to_ns = now;
	else
		return;
	jm_session_edge(w->session);
}

/* Has a reading of the meter's power or energy come? ret_refresh: at least that of the slowest. */
static bool has_read(struct jm__worker *w, const struct jm_meter *m, int64_t *ret_refresh)
{
	const struct jm_signal *signal = jm_session_meters(w->session)->signal;
	bool ret = false;

	for (int k = m->first_signal; k < m->first_signal + m->n_signals; k++) {
		enum jm_quantity q = signal[k].quantity;

		if (q != JM_Q_ENERGY && q != JM_Q_POWER && q != JM_Q_POWER_AVERAGE)
			continue;
		ret = ret || !isnan(jm_session_newest(w->session, k).value);
		if (*ret_refresh < signal[k].refresh_ns)
			*ret_refresh = signal[k].refresh_ns;
	}
	return ret;
}

/* A meter of the work that had no reading in its time will hardly have one. */
static int check_readings(struct jm__worker *w, struct jm__pace *p, struct jm_err *err)
{
	const struct jm_meters *set = jm_session_meters(w->session);
	double waited_s = jm__worker_seconds_since(w, p->begin_ns);

	for (int i = 0; i < set->n && !p->reads; i++) {
		int64_t refresh = 0;

		if (!is_of_work(w, i) || has_read(w, &set->meter[i], &refresh))
			continue;
		if (waited_s <= fmax(JM__PACE_SILENT_S, 3e-9 * (double)refresh))
			return 0;
		return jm_err_set(err, JM_EIO,
			"--hold-power has nothing to hold, because %s (source %s) had no reading "
			"of power or energy in %.0f s; 'joulemark doctor' shows what the sources "
			"of this machine read, and --source takes another one.",
			set->meter[i].label, set->meter[i].source, waited_s);
	}
	p->reads = true;
	return 0;
}

int jm__pace_rest(struct jm__worker *w, struct jm__pace *p, double step_s, struct jm_err *err)
{
	double rest = jm_pacer_pause(&p->pacer, step_s);

	if (rest > 0)
		jm_sleep_until(&w->sleeper, jm_ctx_now(w->ctx) + llround(rest * 1e9));
	watch(w, p, jm_ctx_now(w->ctx));
	return p->reads ? 0 : check_readings(w, p, err);
}

bool jm__pace_ready(const struct jm__worker *w, const struct jm__pace *p)
{
	return !p->holds || jm_pacer_ready(&p->pacer) ||
	       jm__worker_seconds_since(w, p->begin_ns) > JM__PACE_LIMIT_S;
}

void jm__pace_settle(struct jm__worker *w, struct jm__pace *p)
{
	jm_pacer_settle(&p->pacer);
	p->settled_ns = jm_ctx_now(w->ctx);
	p->from_ns = p->to_ns = 0;
}

/* Mean power of the measured phase by the meters of the work; NAN = unknown. */
static double mean_power(struct jm__worker *w)
{
	const struct jm_meters *set = jm_session_meters(w->session);
	const struct jm_phase *phase;
	double sum = 0;
	int n = 0, n_phases;

	for (int i = 0; i < set->n; i++) {
		struct jm_energy e;

		if (!is_of_work(w, i))
			continue;
		if (jm_session_energy(w->session, i, w->main_phase, &e, NULL))
			return NAN;
		sum += e.joules;
		n++;
	}
	phase = &jm_session_phases(w->session, &n_phases)[w->main_phase];
	return n ? sum / (1e-9 * (double)(phase->t1_ns - phase->t0_ns)) : NAN;
}

static const char *state_of(double watts, double wanted, double busy_share)
{
	if (isnan(watts))
		return "unknown";
	if (fabs(watts - wanted) <= JM_PACER_NEAR * wanted)
		return "held";
	return watts < wanted && busy_share >= 1 ? "not reached" : "missed";
}

static void warn_missed(struct jm__worker *w, double watts, double wanted)
{
	bool above = watts > wanted;

	jm_log(w->ctx, JM_WARNING,
		"The mean power of the measured phase was %.4g W, %.3g %% %s the %.4g W of "
		"--hold-power. %s, and a phase of a few seconds is too short for them to "
		"compensate deviations.",
		watts, 100 * fabs(watts / wanted - 1), above ? "above" : "below", wanted,
		above ? "Pauses cannot lower the power of idle devices and of what else the meters "
			"measure"
		      : "Pauses cannot raise the power of work that draws less");
}

void jm__pace_record(struct jm__worker *w)
{
	json_t *soft = json_object_get(w->record, "soft");
	double wanted = jm_json_real_of(soft, "hold_watts"), watts;
	const char *state;

	if (!(wanted > 0))
		return;
	watts = mean_power(w);
	state = state_of(watts, wanted, jm_json_real_of(soft, "busy_share"));
	json_object_set_new(soft, "watts", jm_json_number(watts));
	json_object_set_new(soft, "state", json_string(state));
	if (!strcmp(state, "missed"))
		warn_missed(w, watts, wanted);
}

/* ---- thermal steady state -------------------------------------------------------------------- */

/* Steady state is reached, or its time limit. */
bool jm__heat_done(struct jm__worker *w, struct jm__heat *h)
{
	int64_t now = jm_ctx_now(w->ctx);

	if (!(h->limit_s > 0) || h->reached)
		return true;
	if (!h->begin_ns)
		h->begin_ns = now;
	h->waited_s = jm__worker_seconds_since(w, h->begin_ns);
	if (now >= h->next_ns) {
		jm_steady_add(&h->state, now, newest(w, JM_Q_TEMPERATURE, true),
			newest(w, JM_Q_POWER, false));
		h->next_ns = now + JM_SECOND / 5;
		h->reached = jm_steady_is(&h->state);
	}
	return h->reached || h->waited_s >= h->limit_s;
}

/* A change is unknown, for example, if the wait was shorter than the window. */
static void warn_not_steady(
	const struct jm__worker *w, const struct jm__heat *h, double kelvin, double watts)
{
	char temperature[48] = "is unknown", power[48] = "is unknown";

	if (!isnan(kelvin))
		snprintf(temperature, sizeof(temperature), "changed by %.2g K", kelvin);
	if (!isnan(watts))
		snprintf(power, sizeof(power), "changed by %.2g %%", 100 * watts);
	jm_log(w->ctx, JM_WARNING,
		"No thermal steady state was reached within %g s (--steady): in the last %g s, the "
		"window of this check, the temperature %s and the power %s; give a longer "
		"--steady.",
		h->limit_s, JM_STEADY_WINDOW_S, temperature, power);
}

void jm__heat_record(struct jm__worker *w, const struct jm__heat *h)
{
	json_t *json = json_object();
	double kelvin, watts;

	if (!(h->limit_s > 0)) {
		json_decref(json);
		return;
	}
	jm_steady_change(&h->state, &kelvin, &watts);
	jm_json_set_bool(&json, "reached", h->reached);
	jm_json_set_number(&json, "waited_s", h->waited_s);
	jm_json_set_number(&json, "limit_s", h->limit_s);
	jm_json_set_number(&json, "window_s", JM_STEADY_WINDOW_S);
	jm_json_set_number(&json, "kelvin", kelvin);
	jm_json_set_number(&json, "watts_share", watts);
	jm_record_set(w->record, "steady", json);
	if (!h->reached)
		warn_not_steady(w, h, kelvin, watts);
}

void jm__pace_record_soft(
	struct jm__worker *w, const struct jm__pace *pace, const struct jm_own *own)
{
	const struct jm_pacer *p = &pace->pacer;
	double all = p->work_s + p->pause_s;
	json_t *soft = json_object();

	if (own->units) {
		json_object_set_new(soft, "units", json_integer(own->units));
		json_object_set_new(soft, "units_of", json_integer(own->of));
	}
	if (pace->holds) {
		json_object_set_new(soft, "hold_watts", json_real(p->watts));
		json_object_set_new(
			soft, "busy_share", jm_json_number(all > 0 ? p->work_s / all : NAN));
	}
	if (json_object_size(soft))
		json_object_set(w->record, "soft", soft);
	json_decref(soft);
}
