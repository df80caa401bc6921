/* SPDX-License-Identifier: Apache-2.0 */
/* The energy of a meter: by counter where there is one, by integrating power, and their bounds. */
#include "energy/energy.h"
#include "energy/energy_parts.h"

#include <math.h>

#define ALIKE	    0.05 /* counter and power of one board may be calibrated apart by this */
#define ROUNDED	    1e-9 /* of a time that is a sum of many */
#define VAGUE	    0.2	 /* a bound that says little, as a share of the energy */
#define MUCH_BETTER 2	 /* a bound that is smaller by this */

const struct jm_energy jm_energy_unknown = {
	.joules = NAN,
	.joules_counter = NAN,
	.joules_integrated = NAN,
	.error = NAN,
	.error_sampling = NAN,
	.error_calibration = NAN,
	.error_locked = NAN,
	.watts_mean = NAN,
	.watts_max = NAN,
};

static const struct jm_part nothing = {
	.joules = NAN, .known = NAN, .variance = NAN, .watts_max = NAN};

/* The energy of a stretch by counter and by power, and the fault of their readings. */
struct parts {
	struct jm_part counter, power;
	struct jm_fault fault;
	double limit; /* as in jm_meter_signals */
};

/* Removes the parts whose readings cannot be true. */
static void leave_out_faults(struct parts *p)
{
	enum jm_fault_kind kind = p->fault.kind;

	if (kind == JM_FAULT_COUNTER_STUCK || kind == JM_FAULT_COUNTER_FAST ||
		kind == JM_FAULT_CONTRADICTION)
		p->counter = nothing;
	if (kind == JM_FAULT_CONTRADICTION || p->fault.power_zero_s > 0)
		p->power = nothing;
}

/* A counter that says little is not used where power readings say more: one whose steps are large
 * compared with the energy, such as 0.1 kWh of some PDUs, or that was read long before and long
 * after the stretch. */
static void leave_out_coarse(const struct jm_trace_interval *s, int counter, struct parts *p)
{
	double step = counter < 0 ? NAN : s->set->signal[counter].step;
	double bound = Z95 * sqrt(p->counter.variance), of_power = Z95 * sqrt(p->power.variance);
	int resets = p->counter.resets;
	bool may_be_locked = p->power.unseen > 0 && p->power.alike;
	bool steps = step > ALIKE * p->power.joules && !(of_power >= step);
	bool vague = !isnan(p->power.joules) && !may_be_locked &&
		     bound > VAGUE * fmax(p->counter.joules, p->power.joules) &&
		     MUCH_BETTER * of_power < bound;

	if (!steps && !vague)
		return;
	p->counter = nothing;
	p->counter.resets = resets;
}

/* Both are plausible; if they differ by more than their bounds, it is not known which one is
 * right. */
static void compare(struct parts *p, double length)
{
	double apart = fabs(p->counter.joules - p->power.joules);
	double bounds = Z95 * (sqrt(p->counter.variance) + sqrt(p->power.variance));

	if (!(apart > ALIKE * p->counter.joules + bounds))
		return;
	p->fault.kind = JM_FAULT_DIFFER;
	p->fault.seconds = length;
	p->fault.counter_watts = p->counter.joules / length;
	p->fault.power_watts = p->power.joules / length;
	p->counter.variance += apart * apart / (Z95 * Z95);
}

/* The larger of the two bounds, not their sum: what power allows at the end may be the same
 * difference. */
static void widen(struct jm_part *counter)
{
	counter->variance =
		fmax(counter->variance, counter->hidden * counter->hidden / (Z95 * Z95));
}

/* The reason for an unknown energy, if the readings that exist have no fault. */
static void name_unknown(struct jm_energy *e)
{
	if (isnan(e->joules) && !jm_fault_kind(&e->fault))
		e->fault.kind = e->resets ? JM_FAULT_COUNTER_RESET : JM_FAULT_NO_READINGS;
}

static int read_limit(const struct jm_trace_interval *s, int meter, double *ret, struct jm_err *err)
{
	int limit = jm_meter_signal(s->set, meter, JM_Q_LIMIT), rc = 0;
	struct jm_held_power held = {0};

	if (limit >= 0)
		rc = jm_power_held(s->trace, limit, s->t0, s->t1, &held, err);
	*ret = held.most;
	return rc;
}

static int parts_of(
	const struct jm_trace_interval *s, int meter, struct parts *ret, struct jm_err *err)
{
	int power = jm_meter_signal(s->set, meter, JM_Q_POWER);
	struct jm_meter_signals m = {
		.meter = meter,
		.counter = jm_meter_signal(s->set, meter, JM_Q_ENERGY),
		.power = power < 0 ? jm_meter_signal(s->set, meter, JM_Q_POWER_AVERAGE) : power,
		.shape = power,
	};
	struct jm_power_slots slots;
	int rc = read_limit(s, meter, &m.limit, err);

	*ret = (struct parts){.counter = nothing, .power = nothing, .limit = m.limit};
	if (!rc && m.power >= 0)
		rc = jm_energy_by_power(s, &m, &slots, &ret->power, err);
	if (!rc)
		rc = jm_energy_check(s, &m, &slots, &ret->counter, &ret->fault, err);
	leave_out_faults(ret);
	leave_out_coarse(s, m.counter, ret);
	compare(ret, (double)(s->t1 - s->t0) * 1e-9);
	if (!isnan(ret->counter.joules))
		widen(&ret->counter);
	return rc;
}

/* The counter where it covers everything; else the power where it does; else the one that covers
 * more. */
static const struct jm_part *better(const struct jm_trace_interval *s, int meter,
	const struct jm_part *c, const struct jm_part *p)
{
	if (!isnan(c->joules))
		return c;
	if (!isnan(p->joules))
		return p;
	if (jm_meter_signal(s->set, meter, JM_Q_ENERGY) >= 0 &&
		c->covered_s >= p->covered_s * (1 - ROUNDED))
		return c;
	return p;
}

static double accuracy_of(const struct jm_trace_interval *s, int meter, bool by_counter)
{
	static const enum jm_quantity powers[] = {JM_Q_POWER, JM_Q_POWER_AVERAGE};
	int signal = by_counter ? jm_meter_signal(s->set, meter, JM_Q_ENERGY) : -1;

	for (int i = 0; signal < 0 && i < 2; i++)
		signal = jm_meter_signal(s->set, meter, powers[i]);
	return signal < 0 ? NAN : s->set->signal[signal].accuracy;
}

double jm_energy_error(double sampling, double calibration)
{
	return sqrt(sampling * sampling + calibration * calibration);
}

/* J; see error_locked. */
static double locked(const struct parts *p, double length)
{
	double most = fmax(p->limit, p->power.watts_max) * length;

	if (!(p->limit > 0 && p->power.unseen > 0))
		return NAN;
	return p->power.unseen * fmax(p->power.joules, most - p->power.joules);
}

/* A number of readings that are alike may all show one moment of the load. */
static void add_locked(const struct parts *p, double length, struct jm_energy *ret)
{
	ret->error_locked = locked(p, length);
	ret->may_be_locked = p->power.unseen > 0 && p->power.alike;
	ret->few_readings = p->power.unseen > 0 && p->power.few;
	if (ret->may_be_locked)
		ret->error_sampling = ret->error_locked;
}

static double mean_of(const struct jm_part *part)
{
	return part->covered_s > 0 ? part->known / part->covered_s : NAN;
}

/* The readings may lie beside the highest power of a short interval, but its mean is no higher than
 * its maximum. */
static double max_of(const struct parts *p, const struct jm_part *best)
{
	double max = isnan(p->power.watts_max) ? p->counter.watts_max : p->power.watts_max;

	return isnan(max) ? NAN : fmax(max, mean_of(best));
}

int jm_energy_of(const struct jm_trace *trace, const struct jm_meters *set, int meter,
	int64_t t0_ns, int64_t t1_ns, struct jm_energy *ret, struct jm_err *err)
{
	struct jm_trace_interval s = {.trace = trace, .set = set, .t0 = t0_ns, .t1 = t1_ns};
	const struct jm_part *best;
	struct parts p;
	int rc;

	if (t1_ns <= t0_ns)
		return jm_err_set(err, JM_EBUG, "A time interval ends before it begins.");
	rc = parts_of(&s, meter, &p, err);
	if (rc)
		return rc;
	best = better(&s, meter, &p.counter, &p.power);
	*ret = (struct jm_energy){
		.joules = best->joules,
		.joules_counter = p.counter.joules,
		.joules_integrated = p.power.joules,
		.error_sampling = isnan(best->joules) ? NAN : Z95 * sqrt(best->variance),
		.error_calibration =
			fabs(best->joules) * accuracy_of(&s, meter, best == &p.counter),
		.covered_s = best->covered_s,
		.watts_mean = mean_of(best),
		.watts_max = max_of(&p, best),
		.samples = best->samples,
		.gaps = best->gaps,
		.error_locked = NAN,
		.places = best->places,
		.resets = p.counter.resets,
		.fault = p.fault,
	};
	name_unknown(ret);
	if (best == &p.power)
		add_locked(&p, (double)(t1_ns - t0_ns) * 1e-9, ret);
	ret->error = jm_energy_error(ret->error_sampling, ret->error_calibration);
	return 0;
}
