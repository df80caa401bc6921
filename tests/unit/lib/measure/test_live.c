/* SPDX-License-Identifier: Apache-2.0 */
/* A view of a running session: its watts and joules compared with the energy of the wave, also
 * while it is written. */
#include "kit/test.h"
#include "base/ctx.h"
#include "base/clock.h"
#include "measure/view/live.h"
#include "kit/wave.h"

#include <pthread.h>
#include <stdatomic.h>

static int64_t ns(double s)
{
	return llround(s * 1e9);
}

static double seconds(int64_t t_ns)
{
	return (double)t_ns * 1e-9;
}

static void set_waves(int gpus)
{
	uint64_t seed = 7;

	wave_reset();
	wave_setup.gpus = gpus;
	for (int i = 0; i < gpus; i++)
		wave_levels(&wave_setup.wave[i], 100, 600, 1.7, 400, &seed);
}

struct sight {
	struct jm_ctx ctx;
	struct jm_session *session;
	struct jm_live *live;
	struct jm_sleeper me;
};

static void open_sight(struct sight *v, struct jm_err *err)
{
	struct jm_session_options o = {.table = wave_sources};

	*v = (struct sight){.ctx = {.clock = jm_clock_new_simulated(0)}};
	assert_ok(jm_session_open(&v->ctx, &o, &v->session, err), *err);
	jm_sleeper_init(&v->me, v->ctx.clock);
	assert_ok(jm_session_start(v->session, err), *err);
	jm_sleep_until(&v->me, ns(1));
	assert_ok(jm_live_new(v->session, ns(1), &v->live, err), *err);
}

static void close_sight(struct sight *v, struct jm_err *err)
{
	jm_sleeper_done(&v->me);
	assert_ok(jm_session_stop(v->session, err), *err);
	jm_live_free(v->live);
	jm_session_close(v->session);
	jm_clock_free(v->ctx.clock);
	wave_reset();
}

/* Each step's watts within its own bound (95 %: of 60 steps, 6 may be outside), the sum within 1
 * %. */
static void tells_what_the_wave_used(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct sight v;
	int outside = 0;

	(void)state;
	set_waves(2);
	open_sight(&v, &err);
	for (int step = 1; step <= 30; step++) {
		jm_sleep_until(&v.me, ns(1 + step));
		assert_ok(jm_live_step(v.live, &err), err);
		for (int i = 0; i < 2; i++) {
			const struct jm_live_meter *m = jm_live_meter(v.live, i);
			const struct wave *w = &wave_setup.wave[i];
			double t0 = seconds(m->t0_ns), t1 = seconds(m->t1_ns);
			double truth = (wave_joules(w, t1) - wave_joules(w, t0)) / (t1 - t0);

			assert_true(t1 > step + 0.8 && t1 < step + 1.0);
			outside += !(fabs(m->watts - truth) <= m->error_watts);
			assert_near(m->joules, wave_joules(w, t1) - wave_joules(w, 1),
				0.01 * wave_joules(w, t1) + 30);
		}
	}
	assert_true(outside <= 6);
	close_sight(&v, &err);
}

static void totals_are_sums_of_one_origin(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_live_total total;
	struct sight v;

	(void)state;
	set_waves(2);
	open_sight(&v, &err);
	assert_true(isnan(jm_live_total(v.live, JM_MEASURED).watts));
	assert_true(isnan(jm_live_total(v.live, JM_MEASURED).joules));
	jm_sleep_until(&v.me, ns(3));
	assert_ok(jm_live_step(v.live, &err), err);
	total = jm_live_total(v.live, JM_MEASURED);
	assert_near(total.watts, jm_live_meter(v.live, 0)->watts + jm_live_meter(v.live, 1)->watts,
		1e-9);
	assert_near(total.joules,
		jm_live_meter(v.live, 0)->joules + jm_live_meter(v.live, 1)->joules, 1e-9);
	assert_true(isnan(jm_live_total(v.live, JM_ESTIMATED).watts));
	close_sight(&v, &err);
}

/* A sensor that is lost is unknown from then on, and so is the sum that it is a part of. */
static void a_lost_sensor_is_unknown(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct sight v;

	(void)state;
	set_waves(2);
	wave_setup.dead_from[1] = 5;
	wave_setup.dead_until[1] = 1e6;
	open_sight(&v, &err);
	for (int step = 1; step <= 8; step++) {
		jm_sleep_until(&v.me, ns(1 + step));
		assert_ok(jm_live_step(v.live, &err), err);
	}
	assert_false(isnan(jm_live_meter(v.live, 0)->joules));
	assert_true(isnan(jm_live_meter(v.live, 1)->watts));
	assert_true(isnan(jm_live_meter(v.live, 1)->joules));
	assert_true(isnan(jm_live_total(v.live, JM_MEASURED).watts));
	assert_true(isnan(jm_session_newest(
		v.session, jm_meter_signal(jm_session_meters(v.session), 1, JM_Q_ENERGY))
				  .value));
	close_sight(&v, &err);
}

/* The sensor is dead from 5 to 7.5 s, and seen up to 13 s. */
static void look_across_a_gap(bool no_counter)
{
	struct jm_err err = JM_ERR_INIT;
	const struct jm_live_meter *m;
	struct sight v;

	set_waves(1);
	wave_setup.no_counter = no_counter;
	wave_setup.dead_from[0] = 5;
	wave_setup.dead_until[0] = 7.5;
	open_sight(&v, &err);
	m = jm_live_meter(v.live, 0);
	for (int step = 1; step <= 12; step++) {
		double truth;

		jm_sleep_until(&v.me, ns(1 + step));
		assert_ok(jm_live_step(v.live, &err), err);
		truth = wave_joules(&wave_setup.wave[0], seconds(m->t1_ns)) -
			wave_joules(&wave_setup.wave[0], 1);
		if (step <= 3 || (step >= 9 && !no_counter))
			assert_near(m->joules, truth, 0.01 * truth + 30);
		else if (step == 6 || step >= 9)
			assert_true(isnan(m->joules));
	}
	assert_false(isnan(m->watts));
	close_sight(&v, &err);
}

/* Unknown in the gap; after it the counter has what was used in it, and power alone has not. */
static void a_counter_bridges_a_gap(void **state)
{
	(void)state;
	look_across_a_gap(false);
	look_across_a_gap(true);
}

static void the_newest_reading_is_the_last_one(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct sight v;
	int counter;

	(void)state;
	set_waves(1);
	open_sight(&v, &err);
	counter = jm_meter_signal(jm_session_meters(v.session), 0, JM_Q_ENERGY);
	for (int step = 1; step <= 5; step++) {
		struct jm_reading newest;

		jm_sleep_until(&v.me, ns(1 + step));
		newest = jm_session_newest(v.session, counter);
		assert_true(newest.t_ns > ns(step + 0.8) && newest.t_ns <= ns(step + 1.1));
		assert_near(newest.value - wave_setup.counter_start,
			wave_joules(&wave_setup.wave[0], step + 1) -
				wave_joules(&wave_setup.wave[0], -10),
			130);
	}
	close_sight(&v, &err);
}

/* ---- readers concurrent with the writer, for the thread sanitizer ---- */

struct reader {
	struct sight *v;
	_Atomic bool stop;
	double last;
};

static void *read_on(void *arg)
{
	struct reader *r = arg;
	struct jm_err err = JM_ERR_INIT;

	while (!atomic_load(&r->stop)) {
		if (jm_live_step(r->v->live, &err))
			return NULL;
		jm_session_newest(r->v->session, 0);
		r->last = jm_live_meter(r->v->live, 0)->joules;
	}
	return NULL;
}

/* 200 s of simulated time, in which chunks are closed and blocks leave memory, with a view that
 * looks all the time. The trace afterwards is what it would be without it. */
static void a_reader_leaves_the_trace_alone(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct reader r = {0};
	struct jm_energy e;
	struct sight v;
	pthread_t thread;
	double truth;

	(void)state;
	set_waves(4);
	open_sight(&v, &err);
	r.v = &v;
	assert_int_equal(pthread_create(&thread, NULL, read_on, &r), 0);
	jm_sleep_until(&v.me, ns(200));
	atomic_store(&r.stop, true);
	pthread_join(thread, NULL);
	assert_ok(jm_live_step(v.live, &err), err);
	r.last = jm_live_meter(v.live, 0)->joules;
	truth = wave_joules(&wave_setup.wave[0], 200) - wave_joules(&wave_setup.wave[0], 1);
	assert_ok(jm_session_energy_now(v.session, 0, ns(1), ns(200), &e, &err), err);
	assert_near(e.joules, truth, e.error_sampling + 0.001 * truth);
	assert_near(r.last, truth, 0.02 * truth);
	close_sight(&v, &err);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tells_what_the_wave_used),
		cmocka_unit_test(totals_are_sums_of_one_origin),
		cmocka_unit_test(a_lost_sensor_is_unknown),
		cmocka_unit_test(a_counter_bridges_a_gap),
		cmocka_unit_test(the_newest_reading_is_the_last_one),
		cmocka_unit_test(a_reader_leaves_the_trace_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
