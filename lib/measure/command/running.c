/* SPDX-License-Identifier: Apache-2.0 */
#include "running.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"

struct total {
	struct jm_running_meter told;
	struct jm_reading counter; /* the last one that was read */
	struct jm_reading power;
	double rate; /* W, between the last two changes of the counter */
};

struct jm_running {
	pthread_mutex_t lock;
	const struct jm_meters *set;
	struct total total[];
};

int jm_running_new(const struct jm_meters *set, struct jm_running **ret, struct jm_err *err)
{
	struct jm_running *r = calloc(1, sizeof(*r) + (size_t)set->n * sizeof(r->total[0]));

	if (!r)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d meters.", set->n);
	pthread_mutex_init(&r->lock, NULL);
	r->set = set;
	for (int i = 0; i < set->n; i++) {
		struct total *t = &r->total[i];

		t->told = (struct jm_running_meter){.watts = NAN, .joules = NAN};
		t->told.counter = jm_meter_signal(set, i, JM_Q_ENERGY) >= 0;
		t->counter.value = NAN;
		t->power.value = NAN;
		t->rate = NAN;
	}
	*ret = r;
	return 0;
}

static bool stands_still(const struct jm_signal *signal, int64_t ns)
{
	return signal->refresh_ns > 0 && ns > JM_SECOND &&
	       ns > JM_STILL_REFRESHES * signal->refresh_ns;
}

static void take_counter(struct total *t, const struct jm_signal *signal, struct jm_reading now)
{
	int64_t since = now.t_ns - t->counter.t_ns;
	double joules;

	if (isnan(now.value)) {
		t->rate = NAN; /* the next reading includes the energy of this time */
		return;
	}
	if (isnan(t->counter.value)) {
		t->told.joules = 0;
		t->counter = now;
		return;
	}
	joules = jm_counter_rise(signal->wrap, t->counter.value, now.value, (double)since * 1e-9);
	if (joules == 0) {
		if (stands_still(signal, since))
			t->rate = NAN;
		return;
	}
	t->told.resets += isnan(joules);
	t->told.joules += isnan(joules) ? 0 : joules;
	if (since > 0)
		t->rate = joules / ((double)since * 1e-9);
	t->counter = now;
}

static void take_power(struct total *t, struct jm_reading now)
{
	double seconds = fmax((double)(now.t_ns - t->power.t_ns) * 1e-9, 0);

	if (!t->told.counter && !isnan(t->power.value))
		t->told.joules += t->power.value * seconds;
	else if (!t->told.counter && !isnan(t->told.joules))
		t->told.unknown_s += seconds;
	else if (!t->told.counter && !isnan(now.value))
		t->told.joules = 0;
	t->power = now;
}

/* Which signal's readings are the power of this meter: the instantaneous one where it has both. */
static bool is_power(const struct jm_meters *set, int signal)
{
	const struct jm_signal *s = &set->signal[signal];
	int instant = jm_meter_signal(set, s->meter, JM_Q_POWER);

	return s->quantity == JM_Q_POWER || (s->quantity == JM_Q_POWER_AVERAGE && instant < 0);
}

void jm_running_take(void *running, int signal, struct jm_reading reading)
{
	struct jm_running *r = running;
	const struct jm_signal *s = &r->set->signal[signal];
	struct total *t = &r->total[s->meter];

	pthread_mutex_lock(&r->lock);
	if (s->quantity == JM_Q_ENERGY)
		take_counter(t, s, reading);
	else if (is_power(r->set, signal))
		take_power(t, reading);
	pthread_mutex_unlock(&r->lock);
}

struct jm_running_meter jm_running_of(struct jm_running *r, int meter)
{
	const struct total *t = &r->total[meter];
	struct jm_running_meter told;
	bool power = jm_meter_signal(r->set, meter, JM_Q_POWER) >= 0 ||
		     jm_meter_signal(r->set, meter, JM_Q_POWER_AVERAGE) >= 0;

	pthread_mutex_lock(&r->lock);
	told = t->told;
	told.watts = power ? t->power.value : t->rate;
	pthread_mutex_unlock(&r->lock);
	return told;
}

void jm_running_free(struct jm_running *r)
{
	if (!r)
		return;
	pthread_mutex_destroy(&r->lock);
	free(r);
}
