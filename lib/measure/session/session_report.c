/* SPDX-License-Identifier: Apache-2.0 */
/* What a session found, as JSON: meters, totals, quality, phases. Unknown is null. */
#include "measure/session/session_report.h"
#include "energy/quality.h"
#include "energy/residue.h"
#include "session_private.h"
#include "energy/watts.h"
#include "trace/hold_sum.h"
#include "base/ctx.h"
#include "base/text/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double seconds(int64_t ns)
{
	return (double)ns * 1e-9;
}

/* ---- one signal in a phase ---- */

struct figures {
	struct jm_held held;
	double sum, time; /* of value x time */
	double min, max, first, last;
	double after; /* the first reading after the phase */
	bool fell;    /* a reading is smaller than the one before it */
	long samples;
	unsigned int bits; /* of whole-number values, or-ed */
};

static void hold_until(struct figures *f, int64_t t)
{
	double time = jm_held_until(&f->held, t);

	if (time > 0)
		f->sum += f->held.value * time;
	f->time += time;
}

static int add_figure(void *arg, struct jm_reading r)
{
	struct figures *f = arg;

	if (r.t_ns > f->held.t1) {
		hold_until(f, f->held.t1);
		f->after = r.value;
		return 1;
	}
	hold_until(f, r.t_ns);
	f->held.value = r.value;
	if (isnan(r.value))
		return 0;
	if (isnan(f->first))
		f->first = r.value;
	f->fell = f->fell || r.value < f->last;
	f->last = r.value;
	f->min = fmin(f->min, r.value);
	f->max = fmax(f->max, r.value);
	if (r.value >= 0 && r.value < 256)
		f->bits |= (unsigned int)r.value;
	f->samples += r.t_ns >= f->held.t0;
	return 0;
}

static int figures_of(struct jm_session *s, int signal, const struct jm_phase *phase,
	struct figures *ret, struct jm_err *err)
{
	struct figures f = {
		.held = {phase->t0_ns, phase->t1_ns, phase->t0_ns, NAN},
		.min = NAN,
		.max = NAN,
		.first = NAN,
		.last = NAN,
		.after = NAN,
	};
	int rc = jm_trace_each(s->trace, signal, f.held.t0, f.held.t1, add_figure, &f, err);

	if (rc)
		return rc;
	hold_until(&f, f.held.t1);
	*ret = f;
	return 0;
}

/*
 * What a counter counted; NAN = it is none, was reset, or was not read in the phase, unless it has
 * the same value after the phase. Energy has its own key, which is exact at the edges.
 */
static double increase(const struct jm_signal *signal, const struct figures *f)
{
	if (signal->quantity == JM_Q_ENERGY || !jm_quantity_is_counter(signal->quantity) || f->fell)
		return NAN;
	if (!f->samples && f->after != f->last)
		return NAN;
	return f->last - f->first;
}

static json_t *signal_json(
	struct jm_session *s, int i, const struct jm_phase *phase, struct jm_err *err)
{
	const struct jm_signal *signal = &s->set.signal[i];
	bool counter = jm_quantity_is_counter(signal->quantity);
	struct figures f;
	json_t *json;

	if (figures_of(s, i, phase, &f, err))
		return NULL;
	json = json_object();
	jm_json_set_text(&json, "quantity", jm_quantity_name(signal->quantity));
	jm_json_set_text(&json, "unit", jm_quantity_unit(signal->quantity));
	jm_json_set_number(&json, "step", signal->step > 0 ? signal->step : NAN);
	jm_json_set_number(
		&json, "refresh_s", signal->refresh_ns > 0 ? seconds(signal->refresh_ns) : NAN);
	jm_json_set_number(
		&json, "window_s", signal->window_ns >= 0 ? seconds(signal->window_ns) : NAN);
	jm_json_set_bool(&json, "calibrated", signal->calibrated);
	jm_json_set_number(&json, "mean", counter || f.time <= 0 ? NAN : f.sum / f.time);
	jm_json_set_number(&json, "min", f.min);
	jm_json_set_number(&json, "max", f.max);
	jm_json_set_number(&json, "last", f.last);
	if (signal->quantity == JM_Q_THROTTLE && !isnan(f.max))
		jm_json_set_int(&json, "bits", f.bits);
	jm_json_set_number(&json, "increase", increase(signal, &f));
	jm_json_set_int(&json, "samples", f.samples);
	return json;
}

/* NULL: an error */
static json_t *signals_json(struct jm_session *s, const struct jm_meter *m,
	const struct jm_phase *phase, struct jm_err *err)
{
	json_t *signals = json_array();

	for (int k = m->first_signal; k < m->first_signal + m->n_signals; k++) {
		if (json_array_append_new(signals, signal_json(s, k, phase, err))) {
			json_decref(signals);
			return NULL;
		}
	}
	return signals;
}

static bool is_context(const struct jm_meters *set, int i)
{
	return set->meter[i].scope == JM_SCOPE_CONTEXT;
}

/* ---- one meter ---- */

static const char *id_or_null(const struct jm_meters *set, int i)
{
	return i < 0 ? NULL : set->meter[i].id;
}

static json_t *energy_json(const struct jm_energy *e)
{
	json_t *energy = json_object();

	jm_json_set_number(&energy, "joules", e->joules);
	jm_json_set_number(&energy, "joules_counter", e->joules_counter);
	jm_json_set_number(&energy, "joules_integrated", e->joules_integrated);
	jm_json_set_number(&energy, "error_joules", e->error);
	jm_json_set_number(&energy, "error_sampling_joules", e->error_sampling);
	jm_json_set_number(&energy, "error_calibration_joules", e->error_calibration);
	jm_json_set_number(&energy, "covered_s", e->covered_s);
	jm_json_set_number(&energy, "watts_mean", e->watts_mean);
	jm_json_set_number(&energy, "watts_max", e->watts_max);
	jm_json_set_int(&energy, "samples", e->samples);
	jm_json_set_int(&energy, "gaps", e->gaps);
	if (!isnan(e->error_locked))
		jm_json_set_number(&energy, "error_locked_joules", e->error_locked);
	return energy;
}

/* Keys of a meter that has parts; -1: no memory. */
static int add_rest(
	const struct jm_session *s, const struct jm_energy *energy, int i, json_t *meter)
{
	struct jm_residue rest;

	jm_residue_of(&s->set, energy, i, &rest);
	if (!rest.parts)
		return 0;
	return json_object_set_new(meter, "rest_joules", jm_json_number(rest.joules)) ||
			       json_object_set_new(
				       meter, "rest_error_joules", jm_json_number(rest.error))
		       ? -1
		       : 0;
}

/* energy: of all meters */
static json_t *meter_json(struct jm_session *s, int i, const struct jm_phase *phase,
	const struct jm_energy *energies, struct jm_err *err)
{
	const struct jm_energy *energy = &energies[i];
	const struct jm_meter *m = &s->set.meter[i];
	json_t *meter = json_object();
	struct jm_watts watts;
	int rc = 0;

	jm_json_set_text(&meter, "id", m->id);
	jm_json_set_text(&meter, "label", m->label);
	jm_json_set(&meter, "device", jm_json_said(m->device));
	jm_json_set_text(&meter, "source", m->source);
	jm_json_set_text(&meter, "scope", jm_scope_name(m->scope));
	jm_json_set(&meter, "covered_by", jm_json_said(id_or_null(&s->set, m->covered_by)));
	jm_json_set(&meter, "overlaps", jm_json_said(id_or_null(&s->set, m->overlaps)));
	jm_json_set_text(&meter, "origin", jm_origin_name(m->origin));
	if (jm_watts_of(s->trace, &s->set, i, phase->t0_ns, phase->t1_ns, &watts, err)) {
		json_decref(meter);
		return NULL;
	}
	if (*m->about)
		rc |= json_object_set_new(meter, "about", json_string(m->about));
	if (m->elsewhere)
		rc |= json_object_set_new(meter, "elsewhere", json_true());
	rc |= json_object_update_new(meter, energy_json(energy));
	/* readings that are not used have no distribution either */
	if (isnan(energy->watts_mean))
		watts = (struct jm_watts){NAN, NAN};
	/* a reading that still holds from before the phase is none of the phase */
	watts = jm_watts_at_most(watts, energy->watts_max);
	rc |= json_object_set_new(meter, "watts_median", jm_json_number(watts.median));
	rc |= json_object_set_new(meter, "watts_p99", jm_json_number(watts.p99));
	rc |= json_object_set_new(
		meter, "fault", json_string(jm_fault_name(jm_fault_kind(&energy->fault))));
	rc |= add_rest(s, energies, i, meter);
	rc |= json_object_set_new(meter, "signals", signals_json(s, m, phase, err));
	if (!rc)
		return meter;
	json_decref(meter);
	return NULL;
}

/* ---- totals ---- */

bool jm__counts_in_total(const struct jm_meters *set, int meter, enum jm_origin origin)
{
	return jm_meter_counts(set, meter) && set->meter[meter].origin == origin;
}

bool jm__overlaps_its_kind(const struct jm_meters *set, int meter)
{
	const struct jm_meter *m = &set->meter[meter];

	return m->overlaps >= 0 && set->meter[m->overlaps].origin == m->origin &&
	       jm_meter_counts(set, m->overlaps);
}

struct total {
	double joules;
	double error; /* combined; NAN = unknown */
};

/* Topmost meters of one origin; unknown when there is none, when one is unknown, or when two of
 * them share a part. Sampling errors of several meters are independent of each other. Their
 * calibration errors may all have the same sign, for the sensors are of one kind. */
static struct total total_of(
	const struct jm_meters *set, const struct jm_energy *energy, enum jm_origin origin)
{
	double sum = 0, sampling = 0, calibration = 0;
	int n = 0;

	for (int i = 0; i < set->n; i++) {
		if (!jm__counts_in_total(set, i, origin))
			continue;
		sum += jm__overlaps_its_kind(set, i) ? NAN : energy[i].joules;
		sampling = hypot(sampling, energy[i].error_sampling);
		calibration += energy[i].error_calibration;
		n++;
	}
	if (!n || isnan(sum))
		return (struct total){NAN, NAN};
	return (struct total){sum, hypot(sampling, calibration)};
}

static json_t *total_json(const struct jm_session *s, const struct jm_energy *energy)
{
	json_t *json = json_object();
	int rc = 0;

	for (int origin = JM_MEASURED; origin <= JM_REPLAYED; origin++) {
		struct total total = total_of(&s->set, energy, (enum jm_origin)origin);
		char key[40];

		if (s->own_unread && origin != JM_SIMULATED)
			total = (struct total){NAN, NAN};
		snprintf(key, sizeof(key), "joules_%s", jm_origin_name((enum jm_origin)origin));
		rc |= json_object_set_new(json, key, jm_json_number(total.joules));
		snprintf(key, sizeof(key), "error_%s_joules",
			jm_origin_name((enum jm_origin)origin));
		rc |= json_object_set_new(json, key, jm_json_number(total.error));
	}
	if (!rc)
		return json;
	json_decref(json);
	return NULL;
}

/* ---- quality ---- */

/* Drift of mean power over a phase that should be steady. */
static double drift_of(
	struct jm_session *s, int meter, const struct jm_phase *phase, struct jm_err *err)
{
	int64_t third = (phase->t1_ns - phase->t0_ns) / 3;
	struct jm_energy first, last;

	if (strcmp(phase->name, "steady") || third < 10 * JM_SECOND)
		return NAN;
	if (jm_energy_of(
		    s->trace, &s->set, meter, phase->t0_ns, phase->t0_ns + third, &first, err) ||
		jm_energy_of(
			s->trace, &s->set, meter, phase->t1_ns - third, phase->t1_ns, &last, err))
		return NAN;
	return last.watts_mean / first.watts_mean - 1;
}

static unsigned int throttle_of(
	struct jm_session *s, int meter, const struct jm_phase *phase, struct jm_err *err)
{
	int signal = jm_meter_signal(&s->set, meter, JM_Q_THROTTLE);
	struct figures f;

	if (signal < 0 || figures_of(s, signal, phase, &f, err))
		return 0;
	return f.bits;
}

static json_t *quality_json(struct jm_session *s, const struct jm_phase *phase,
	const struct jm_energy *energy, struct jm_err *err)
{
	double *drift = calloc((size_t)s->set.n + 1, sizeof(*drift));
	unsigned int *throttle = calloc((size_t)s->set.n + 1, sizeof(*throttle));
	struct jm_quality_facts facts = {
		.set = &s->set,
		.energy = energy,
		.drift = drift,
		.throttle = throttle,
		.seconds = seconds(phase->t1_ns - phase->t0_ns),
		.own_unread = s->own_unread,
	};
	json_t *reasons = json_array(), *quality = NULL;

	for (int i = 0; drift && throttle && i < s->set.n; i++) {
		drift[i] = drift_of(s, i, phase, err);
		throttle[i] = throttle_of(s, i, phase, err);
	}
	if (drift && throttle)
		quality = json_pack("{s:s, s:O}", "grade", jm_quality_judge(&facts, reasons),
			"reasons", reasons);
	json_decref(reasons);
	free(drift);
	free(throttle);
	return quality;
}

/* ---- phases ---- */

static struct jm_energy *energies(
	struct jm_session *s, const struct jm_phase *phase, struct jm_err *err)
{
	struct jm_energy *energy = calloc((size_t)s->set.n + 1, sizeof(*energy));
	int rc = 0;

	/* a phase without length has no energy */
	for (int i = 0; energy && !rc && i < s->set.n; i++) {
		energy[i] = jm_energy_unknown;
		if (phase->t1_ns > phase->t0_ns)
			rc = jm_energy_of(
				s->trace, &s->set, i, phase->t0_ns, phase->t1_ns, &energy[i], err);
	}
	if (!rc)
		return energy;
	free(energy);
	return NULL;
}

/* A meter in a phase; NULL: no memory. */
static json_t *short_meter_json(const struct jm_session *s, const struct jm_energy *energy, int i)
{
	json_t *meter = json_pack("{s:s, s:o, s:o, s:o}", "id", s->set.meter[i].id, "joules",
		jm_json_number(energy[i].joules), "error_joules", jm_json_number(energy[i].error),
		"watts_mean", jm_json_number(energy[i].watts_mean));

	if (!add_rest(s, energy, i, meter))
		return meter;
	json_decref(meter);
	return NULL;
}

/* NULL: no memory */
static json_t *short_meters_json(const struct jm_session *s, const struct jm_energy *energy)
{
	json_t *meters = json_array();

	for (int i = 0; i < s->set.n; i++) {
		if (is_context(&s->set, i))
			continue;
		if (json_array_append_new(meters, short_meter_json(s, energy, i))) {
			json_decref(meters);
			return NULL;
		}
	}
	return meters;
}

static json_t *phase_json(
	const struct jm_session *s, const struct jm_phase *phase, const struct jm_energy *energy)
{
	json_t *json = json_object();

	jm_json_set_text(&json, "name", phase->name);
	jm_json_set_number(&json, "start_s", seconds(phase->t0_ns - s->start_ns));
	jm_json_set_number(&json, "end_s", seconds(phase->t1_ns - s->start_ns));
	jm_json_set_number(&json, "items", phase->items);
	jm_json_set(&json, "meters", short_meters_json(s, energy));
	jm_json_set(&json, "total", total_json(s, energy));
	return json;
}

/* NULL: an error */
static json_t *other_phase_json(
	struct jm_session *s, const struct jm_phase *phase, struct jm_err *err)
{
	struct jm_energy *energy = energies(s, phase, err);
	json_t *json = energy ? phase_json(s, phase, energy) : NULL;

	free(energy);
	return json;
}

/* Of the phases of a report: all, or those within its main phase. */
static bool is_listed(const struct jm_session *s, int main_phase, bool within, int i)
{
	const struct jm_phase *whole = &s->phase[main_phase], *phase = &s->phase[i];

	return !within || (phase->t0_ns >= whole->t0_ns && phase->t1_ns <= whole->t1_ns);
}

/* energy: of the main phase, which is known already */
static json_t *phases_json(struct jm_session *s, int main_phase, bool within,
	const struct jm_energy *energy, struct jm_err *err)
{
	json_t *phases = json_array();

	for (int i = 0; i < s->n_phases; i++) {
		const struct jm_phase *phase = &s->phase[i];

		if (!is_listed(s, main_phase, within, i))
			continue;
		if (json_array_append_new(phases, i == main_phase
							  ? phase_json(s, phase, energy)
							  : other_phase_json(s, phase, err))) {
			json_decref(phases);
			return NULL;
		}
	}
	return phases;
}

static json_t *meters_json(struct jm_session *s, const struct jm_phase *phase,
	const struct jm_energy *energy, struct jm_err *err)
{
	json_t *meters = json_array();

	for (int i = 0; i < s->set.n; i++) {
		if (is_context(&s->set, i))
			continue;
		if (json_array_append_new(meters, meter_json(s, i, phase, energy, err))) {
			json_decref(meters);
			return NULL;
		}
	}
	return meters;
}

/* Meters of circumstances, which measure no power; an empty list where there are none, NULL: no
 * memory. */
static json_t *context_json(struct jm_session *s, const struct jm_phase *phase, struct jm_err *err)
{
	json_t *list = json_array();

	for (int i = 0; i < s->set.n; i++) {
		const struct jm_meter *m = &s->set.meter[i];

		if (!is_context(&s->set, i))
			continue;
		if (json_array_append_new(list,
			    json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", m->id, "label", m->label,
				    "source", m->source, "origin", jm_origin_name(m->origin),
				    "signals", signals_json(s, m, phase, err)))) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

/* Processor time that reading the sensors took, s; NAN while it goes on, and in simulated time,
 * where it has no meaning. */
static double sampler_cpu(const struct jm_session *s)
{
	double sum = 0;

	for (int i = 0; i < s->n_sources; i++)
		sum += jm_reader_cpu(s->source[i].reader);
	return jm_clock_simulated(s->ctx->clock) || !s->stopped ? NAN : sum;
}

static json_t *report_of(struct jm_session *s, int main_phase, bool within, struct jm_err *err)
{
	const struct jm_phase *phase;
	struct jm_energy *energy;
	json_t *report = NULL;

	if (main_phase < 0 || main_phase >= s->n_phases || (!s->stopped && !within) ||
		s->phase[main_phase].t1_ns == JM_FOREVER) {
		jm_err_set(err, JM_EBUG,
			"A report of phase %d of %d was requested, which has not ended.",
			main_phase, s->n_phases);
		return NULL;
	}
	phase = &s->phase[main_phase];
	energy = energies(s, phase, err);
	if (energy) {
		report = json_object();
		jm_json_set_text(&report, "phase", phase->name);
		jm_json_set_number(&report, "sampler_cpu_s", sampler_cpu(s));
		jm_json_set_int(&report, "start_ns", s->start_ns);
		jm_json_set(&report, "meters", meters_json(s, phase, energy, err));
		jm_json_set(&report, "context", context_json(s, phase, err));
		jm_json_set(&report, "total", total_json(s, energy));
		jm_json_set(&report, "quality", quality_json(s, phase, energy, err));
		jm_json_set(&report, "phases", phases_json(s, main_phase, within, energy, err));
	}
	free(energy);
	if (report && !json_array_size(json_object_get(report, "context")))
		json_object_del(report, "context");
	if (!report)
		jm_err_set(err, JM_ENOMEM, "Out of memory for the report of the session.");
	return report;
}

json_t *jm_session_report(struct jm_session *s, int main_phase, struct jm_err *err)
{
	return report_of(s, main_phase, false, err);
}

json_t *jm_session_report_within(struct jm_session *s, int main_phase, struct jm_err *err)
{
	json_t *report;

	pthread_mutex_lock(&s->lock);
	pthread_mutex_lock(&s->phase_lock);
	jm__session_drain(s);
	report = report_of(s, main_phase, true, err);
	pthread_mutex_unlock(&s->phase_lock);
	pthread_mutex_unlock(&s->lock);
	return report;
}

int jm_session_chunks(struct jm_session *s,
	int (*fn)(void *arg, const struct jm_chunk *chunk, struct jm_err *err), void *arg,
	struct jm_err *err)
{
	return jm_trace_chunks(s->trace, fn, arg, err);
}
