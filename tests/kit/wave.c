/* SPDX-License-Identifier: Apache-2.0 */
#include "wave.h"
#include "base/ctx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wave_setup wave_setup;

/* ---- waveforms ---- */

void wave_add(struct wave *w, double t, double watts, double slope)
{
	if (w->n == w->room) {
		w->room = w->room ? 2 * w->room : 64;
		w->t = reallocarray(w->t, (size_t)w->room, sizeof(double));
		w->watts = reallocarray(w->watts, (size_t)w->room, sizeof(double));
		w->slope = reallocarray(w->slope, (size_t)w->room, sizeof(double));
		w->joules = reallocarray(w->joules, (size_t)w->room, sizeof(double));
	}
	w->t[w->n] = t;
	w->watts[w->n] = watts;
	w->slope[w->n] = slope;
	w->joules[w->n] = w->n ? wave_joules(w, t) : 0;
	w->n++;
}

void wave_done(struct wave *w)
{
	free(w->t);
	free(w->watts);
	free(w->slope);
	free(w->joules);
	*w = (struct wave){0};
}

static int knot_before(const struct wave *w, double t)
{
	int low = 0, high = w->n;

	while (high - low > 1) {
		int middle = (low + high) / 2;

		if (w->t[middle] <= t)
			low = middle;
		else
			high = middle;
	}
	return low;
}

double wave_joules(const struct wave *w, double t)
{
	int k = knot_before(w, t);
	double dt = t - w->t[k];

	if (dt < 0)
		return w->watts[0] * dt;
	return w->joules[k] + w->watts[k] * dt + w->slope[k] * dt * dt / 2;
}

double wave_watts(const struct wave *w, double t)
{
	int k = knot_before(w, t);
	double dt = t - w->t[k];

	return dt < 0 ? w->watts[0] : w->watts[k] + w->slope[k] * dt;
}

uint64_t wave_random(uint64_t *seed) /* splitmix64, S. Vigna, public domain algorithm */
{
	uint64_t z = *seed += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

double wave_uniform(uint64_t *seed, double low, double high)
{
	return low + (high - low) * (double)(wave_random(seed) >> 11) * 0x1p-53;
}

static double wait_of(double dwell, uint64_t *seed)
{
	return -dwell * log(1 - wave_uniform(seed, 0, 1));
}

void wave_square(struct wave *w, double low, double high, double period, double phase, double end)
{
	double t = -10 - period + phase * period;

	for (int i = 0; t < end; i++, t += period / 2)
		wave_add(w, t, i % 2 ? high : low, 0);
}

void wave_telegraph(
	struct wave *w, double low, double high, double dwell, double end, uint64_t *seed)
{
	int i = (int)(wave_random(seed) & 1);

	for (double t = -10; t < end; t += wait_of(dwell, seed))
		wave_add(w, t, i++ % 2 ? high : low, 0);
}

void wave_levels(struct wave *w, double low, double high, double dwell, double end, uint64_t *seed)
{
	for (double t = -10; t < end; t += wait_of(dwell, seed))
		wave_add(w, t, wave_uniform(seed, low, high), 0);
}

void wave_ramps(struct wave *w, double low, double high, double dwell, double end, uint64_t *seed)
{
	double from = wave_uniform(seed, low, high), t = -10;

	while (t < end) {
		double length = 0.01 + wait_of(dwell, seed), to = wave_uniform(seed, low, high);

		wave_add(w, t, from, (to - from) / length);
		from = to;
		t += length;
	}
	wave_add(w, t, from, 0);
}

static void saw(struct wave *w, double low, double high, double period, double t, double end)
{
	for (; t < end; t += period)
		wave_add(w, t, low, (high - low) / period);
}

static void spikes(struct wave *w, double low, double high, double period, double t, double end)
{
	for (; t < end; t += period) {
		wave_add(w, t, high, 0);
		wave_add(w, t + 0.1 * period, low, 0);
	}
}

const char *const wave_kind_names[WAVE_ALL_KINDS] = {
	"square",
	"saw",
	"random",
	"spikes",
	"jitter 1%",
	"jitter 2%",
	"jitter 5%",
	"jitter 10%",
	"duty 10%",
	"duty 90%",
	"noisy",
	"two tones",
	"octaves",
	"mixed",
};

static void regular(struct wave *w, enum wave_kind kind, double period, double end, uint64_t *seed)
{
	double low = wave_uniform(seed, 80, 150), high = wave_uniform(seed, 500, 700);
	double phase = wave_uniform(seed, 0, 1), begin = -10 - phase * period;

	if (kind == WAVE_SQUARE)
		wave_square(w, low, high, period, phase, end);
	else if (kind == WAVE_SAW)
		saw(w, low, high, period, begin, end);
	else if (kind == WAVE_SPIKES)
		spikes(w, low, high, period, begin, end);
	else if (wave_random(seed) & 1)
		wave_telegraph(w, low, high, period / 2, end, seed);
	else
		wave_levels(w, low, high, period / 2, end, seed);
}

void wave_jitter(struct wave *w, double period, double share, double end, uint64_t *seed)
{
	double watts[2] = {wave_uniform(seed, 80, 150), wave_uniform(seed, 500, 700)};
	double t = -10 - wave_uniform(seed, 0, 1) * period;

	for (int i = 0; t < end; i++) {
		wave_add(w, t, watts[i & 1], 0);
		t += period / 2 * wave_uniform(seed, 1 - share, 1 + share);
	}
}

void wave_tones(struct wave *w, const double period[2], double end, uint64_t *seed)
{
	double low = wave_uniform(seed, 80, 150), t = -10;
	double step[2] = {wave_uniform(seed, 200, 280), wave_uniform(seed, 200, 280)};
	double next[2] = {t + wave_uniform(seed, 0, 0.5) * period[0],
		t + wave_uniform(seed, 0, 0.5) * period[1]};
	bool on[2] = {false, false};

	while (t < end) {
		int i = next[1] < next[0];

		wave_add(w, t, low + on[0] * step[0] + on[1] * step[1], 0);
		t = next[i];
		on[i] = !on[i];
		next[i] += period[i] / 2;
	}
}

/* High for that share of a period; periods differ by up to 2 %. */
static void duty(struct wave *w, double period, double high_share, double end, uint64_t *seed)
{
	double low = wave_uniform(seed, 80, 150), high = wave_uniform(seed, 500, 700);
	double t = -10 - wave_uniform(seed, 0, 1) * period;

	while (t < end) {
		double length = period * wave_uniform(seed, 0.98, 1.02);

		wave_add(w, t, high, 0);
		wave_add(w, t + high_share * length, low, 0);
		t += length;
	}
}

static void noisy(struct wave *w, double period, double end, uint64_t *seed)
{
	double watts[2] = {wave_uniform(seed, 80, 150), wave_uniform(seed, 400, 600)};
	double noise = wave_uniform(seed, 20, 100), t = -10;
	double next = t + wave_uniform(seed, 0, 0.5) * period;
	int high = 0;

	while (t < end) {
		wave_add(w, t, watts[high] + wave_uniform(seed, 0, noise), 0);
		t += wait_of(0.01, seed);
		if (t < next)
			continue;
		t = next;
		next += period / 2;
		high = !high;
	}
}

static double other_period(enum wave_kind kind, double period, uint64_t *seed)
{
	static const double of_refresh[] = {1. / 3, 0.5, 1, 2, 3, 4};
	double near = wave_uniform(seed, 0.95, 1.05);

	if (kind == WAVE_MIXED)
		return near * 0.1 * of_refresh[wave_random(seed) % 6];
	return near * period * (kind == WAVE_OCTAVES ? 2 : 1);
}

static void irregular(
	struct wave *w, enum wave_kind kind, double period, double end, uint64_t *seed)
{
	static const double jitter[] = {0.01, 0.02, 0.05, 0.1};

	if (kind <= WAVE_JITTER_10)
		wave_jitter(w, period, jitter[kind - WAVE_JITTER_1], end, seed);
	else if (kind <= WAVE_DUTY_90)
		duty(w, period, kind == WAVE_DUTY_10 ? 0.1 : 0.9, end, seed);
	else if (kind == WAVE_NOISY)
		noisy(w, period, end, seed);
	else
		wave_tones(
			w, (const double[]){period, other_period(kind, period, seed)}, end, seed);
}

void wave_load(struct wave *w, enum wave_kind kind, double period, double end, uint64_t *seed)
{
	(kind < WAVE_KINDS ? regular : irregular)(w, kind, period, end, seed);
}

/* ---- the sensor ---- */

void wave_reset(void)
{
	for (int i = 0; i < WAVE_GPUS; i++)
		wave_done(&wave_setup.wave[i]);
	wave_setup = (struct wave_setup){.refresh = 0.1,
		.window = 0.025,
		.tick_phase = 0.013,
		.counter_step = 1e-3,
		.scope = JM_SCOPE_GPU};
}

static int add_signal(
	struct jm_meters *set, enum jm_quantity quantity, double window, struct jm_err *err)
{
	const struct wave_setup *w = &wave_setup;
	struct jm_signal signal = {
		.quantity = quantity,
		.step = 1e-3,
		.refresh_ns = w->refresh_unknown ? 0 : llround(w->refresh * 1e9),
		.window_ns = llround(window * 1e9),
		.accuracy = 0.05,
		.stamped = w->stamped,
		.wrap = quantity == JM_Q_ENERGY ? w->wrap : 0,
	};

	return jm_meters_add_signal(set, &signal, err);
}

static int wave_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	const struct wave_setup *w = &wave_setup;
	int rc = 0;

	(void)options;
	for (int i = 0; rc >= 0 && i < w->gpus; i++) {
		char covers[32];
		struct jm_meter meter = {.source = "wave",
			.scope = w->scope,
			.origin = JM_MEASURED,
			.covers = covers};

		snprintf(meter.id, sizeof(meter.id), "wave:%d", i);
		snprintf(meter.label, sizeof(meter.label), "GPU %d", i);
		snprintf(covers, sizeof(covers), "gpu/%d", i);
		rc = jm_meters_add(set, &meter, err);
		if (rc >= 0 && !w->no_counter)
			rc = add_signal(set, JM_Q_ENERGY, 0, err);
		if (rc >= 0 && !w->no_power)
			rc = add_signal(set, w->average_only ? JM_Q_POWER_AVERAGE : JM_Q_POWER,
				w->window, err);
		if (rc >= 0 && w->limit > 0)
			rc = add_signal(set, JM_Q_LIMIT, 0, err);
	}
	*ret_state = ctx;
	return rc < 0 ? rc : 0;
}

static double tick_before(const struct wave_setup *w, double t, double phase)
{
	return floor((t - phase) / w->refresh) * w->refresh + phase;
}

/* The energy as a faulty counter has it. */
static double counted(const struct wave_setup *w, int gpu, double tick)
{
	const struct wave_fault *f = &w->fault[gpu];
	const struct wave *wave = &w->wave[gpu];
	double from = tick_before(w, f->freeze_from, w->tick_phase); /* it shows its last value */
	double until = f->freeze_until, joules = 0;

	if (until > 0 && tick >= from && tick < until)
		tick = from;
	else if (until > 0 && tick >= until && !f->catches_up)
		joules -= wave_joules(wave, until) - wave_joules(wave, from);
	joules += wave_joules(wave, tick);
	if (f->rate > 0)
		joules *= f->rate;
	return joules + (f->jump_at > 0 && tick >= f->jump_at ? f->jump : 0);
}

static double counter_at(const struct wave_setup *w, int gpu, double tick)
{
	double joules = counted(w, gpu, tick) + w->counter_start;

	if (w->reset_at[gpu] > 0 && tick >= w->reset_at[gpu])
		joules = wave_joules(&w->wave[gpu], tick) -
			 wave_joules(&w->wave[gpu], w->reset_at[gpu]);
	if (w->wrap > 0)
		joules = fmod(joules, w->wrap);
	return floor(joules / w->counter_step) * w->counter_step;
}

static double power_at(const struct wave_setup *w, int gpu, double tick)
{
	double begin = wave_joules(&w->wave[gpu], tick - w->window);
	double watts = w->window > 0 ? (wave_joules(&w->wave[gpu], tick) - begin) / w->window
				     : wave_watts(&w->wave[gpu], tick);

	return w->fault[gpu].power_zero ? 0 : round(watts * 1e3) * 1e-3;
}

/* A counter that is costly to read is left alone, and repeats its reading with its old time. */
static bool is_left_alone(const struct wave_setup *w, double t)
{
	return (t >= w->unread_from && t < w->unread_until) ||
	       (w->unread_for_good > 0 && t >= w->unread_for_good);
}

static int wave_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct wave_setup *w = &wave_setup;
	int64_t now = jm_ctx_now(state);
	double t = (double)now * 1e-9;
	double tick = tick_before(w, t, w->tick_phase);
	double power_tick = tick_before(w, t, w->tick_phase + w->power_phase);
	int signal = 0;

	(void)err;
	w->reads++;
	for (int i = 0; i < w->gpus; i++) {
		bool dead = t >= w->dead_from[i] && t < w->dead_until[i];
		bool power_dead = dead || (w->power_dead_from > 0 && t >= w->power_dead_from);
		int64_t stamp = w->stamped ? llround(tick * 1e9) : now;
		int64_t power_stamp = w->stamped ? llround(power_tick * 1e9) : now;

		if (!is_left_alone(w, t))
			w->counter[i] = (struct jm_reading){
				.value = dead ? NAN : counter_at(w, i, tick - w->late),
				.t_ns = stamp,
			};
		if (!w->no_counter)
			jm_give(sink, signal++, w->counter[i].value, w->counter[i].t_ns);
		if (!w->no_power)
			jm_give(sink, signal++,
				power_dead ? NAN : power_at(w, i, power_tick - w->late),
				power_stamp);
		if (w->limit > 0)
			jm_give(sink, signal++, w->limit, stamp);
	}
	return 0;
}

static void wave_close_source(void *state)
{
	(void)state;
}

static const struct jm_source source_wave = {
	.name = "wave",
	.summary = "programmed waveforms",
	.origin = JM_MEASURED,
	.open = wave_open,
	.read = wave_read,
	.close = wave_close_source,
};
const struct jm_source *const wave_sources[] = {&source_wave, NULL};

/* ---- a measurement ---- */

static int64_t ns(double t)
{
	return llround(t * 1e9);
}

int wave_measure(struct wave_run *run, double t0, double t1, double interval, struct jm_err *err)
{
	struct jm_session_options o = {.table = wave_sources, .interval_ns = ns(interval)};
	struct jm_sleeper me;
	int rc;

	*run = (struct wave_run){.t0 = t0, .t1 = t1};
	run->ctx.clock = jm_clock_new_simulated(0);
	rc = jm_session_open(&run->ctx, &o, &run->session, err);
	if (rc)
		return rc;
	jm_sleeper_init(&me, run->ctx.clock);
	jm_sleep_until(&me, ns(t0 - 0.004));
	rc = jm_session_start(run->session, err);
	if (!rc) {
		jm_sleep_until(&me, ns(t0));
		run->phase = jm_session_begin(run->session, "command", ns(t0), err);
		jm_sleep_until(&me, ns(t1));
		jm_session_end(run->session, run->phase, ns(t1));
		jm_session_announce_stop(run->session); /* before time can go on */
	}
	jm_sleeper_done(&me);
	return rc ? rc : jm_session_stop(run->session, err);
}

void wave_close(struct wave_run *run)
{
	jm_session_close(run->session);
	jm_clock_free(run->ctx.clock);
	*run = (struct wave_run){0};
}
