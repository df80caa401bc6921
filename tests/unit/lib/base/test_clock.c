/* SPDX-License-Identifier: Apache-2.0 */
#include "kit/test.h"
#include "base/clock.h"

#include <pthread.h>
#include <time.h>

#define DAY (86400 * JM_SECOND)

static int64_t monotonic(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * JM_SECOND + ts.tv_nsec;
}

static void real_clock_is_the_machines(void **state)
{
	struct jm_clock *clock = jm_clock_real();
	int64_t before = monotonic(), now = jm_clock_now(clock), after = monotonic();
	time_t began = time(NULL), wall = (time_t)(jm_clock_wall(clock) / JM_SECOND);

	(void)state;
	assert_false(jm_clock_simulated(clock));
	assert_true(before <= now && now <= after);
	/* time() may lag by a tick */
	assert_true(began - 1 <= wall && wall <= time(NULL) + 1);
	jm_clock_free(clock); /* no effect */
	assert_true(jm_clock_now(clock) >= now);
}

static void real_sleep_ends_at_its_deadline(void **state)
{
	struct jm_sleeper s;
	int64_t t;

	(void)state;
	jm_sleeper_init(&s, jm_clock_real());
	t = monotonic() + 20 * JM_MILLISECOND;
	assert_false(jm_sleep_until(&s, t));
	assert_true(monotonic() >= t);
	t = monotonic();
	assert_false(jm_sleep_until(&s, t - JM_SECOND));
	assert_false(jm_sleep_until(&s, -5));
	assert_true(monotonic() - t < JM_SECOND);
	jm_sleeper_done(&s);
}

static void *wake_soon(void *arg)
{
	struct timespec ts = {.tv_nsec = 20 * JM_MILLISECOND};

	nanosleep(&ts, NULL);
	jm_sleeper_wake(arg);
	return NULL;
}

static void real_wake_ends_a_sleep(void **state)
{
	struct jm_sleeper s;
	pthread_t thread;

	(void)state;
	jm_sleeper_init(&s, jm_clock_real());
	jm_sleeper_wake(&s); /* while awake: the next sleep */
	assert_true(jm_sleep_until(&s, JM_FOREVER));
	assert_int_equal(pthread_create(&thread, NULL, wake_soon, &s), 0);
	assert_true(jm_sleep_until(&s, JM_FOREVER));
	pthread_join(thread, NULL);
	assert_false(jm_sleep_until(&s, monotonic() + JM_MILLISECOND));
	jm_sleeper_done(&s);
}

/* One thread alone sees a day go by in steps of 10 ms. */
static void simulated_day_alone(void **state)
{
	struct jm_clock *clock = jm_clock_new_simulated(1700000000 * JM_SECOND);
	struct jm_sleeper s;
	int64_t began = monotonic();

	(void)state;
	assert_true(jm_clock_simulated(clock));
	assert_int_equal(jm_clock_now(clock), 0);
	jm_sleeper_init(&s, clock);
	for (int64_t t = 0; t <= DAY; t += 10 * JM_MILLISECOND) {
		jm_sleep_until(&s, t);
		if (jm_clock_now(clock) != t)
			fail_msg("time is off at %lld", (long long)t);
	}
	assert_int_equal(jm_clock_wall(clock), 1700000000 * JM_SECOND + DAY);
	jm_sleeper_done(&s);
	jm_clock_free(clock);
	assert_true(monotonic() - began < 60 * JM_SECOND);
}

struct ticker {
	struct jm_sleeper sleeper;
	pthread_t thread;
	int64_t period, end, late;
	long ticks;
};

static void *tick(void *arg)
{
	struct ticker *k = arg;

	for (int64_t t = k->period; t <= k->end; t += k->period) {
		jm_sleep_until(&k->sleeper, t);
		if (jm_clock_now(k->sleeper.clock) != t)
			k->late++;
		k->ticks++;
	}
	jm_sleeper_done(&k->sleeper);
	return NULL;
}

/* Several threads with different periods: each wakes at its deadlines exactly, none is left out. */
static void simulated_sleepers_share_time(void **state)
{
	const int64_t periods[] = {JM_SECOND, 7 * JM_SECOND / 10, 60 * JM_SECOND, 3601 * JM_SECOND};
	struct jm_clock *clock = jm_clock_new_simulated(0);
	struct ticker k[4] = {{.late = 0}};
	const int64_t end = 3 * 3600 * JM_SECOND;

	(void)state;
	for (int i = 0; i < 4; i++) {
		k[i].period = periods[i];
		k[i].end = end;
		jm_sleeper_init(&k[i].sleeper, clock);
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&k[i].thread, NULL, tick, &k[i]), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(k[i].thread, NULL);
		assert_int_equal(k[i].late, 0);
		assert_int_equal(k[i].ticks, end / periods[i]);
	}
	jm_clock_free(clock);
}

struct waker {
	struct jm_sleeper own, *other;
};

static void *wake_at_noon(void *arg)
{
	struct waker *w = arg;

	jm_sleep_until(&w->own, DAY / 2);
	jm_sleeper_wake(w->other);
	jm_sleeper_done(&w->own);
	return NULL;
}

/* A wake in simulated time ends the sleep at the waker's time, not at the deadline. */
static void simulated_wake(void **state)
{
	const int64_t deadlines[] = {JM_FOREVER, DAY};
	pthread_t thread;

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct jm_clock *clock = jm_clock_new_simulated(0);
		struct jm_sleeper s;
		struct waker w = {.other = &s};

		jm_sleeper_init(&s, clock);
		jm_sleeper_init(&w.own, clock);
		assert_int_equal(pthread_create(&thread, NULL, wake_at_noon, &w), 0);
		assert_true(jm_sleep_until(&s, deadlines[i]));
		assert_int_equal(jm_clock_now(clock), DAY / 2);
		pthread_join(thread, NULL);
		assert_false(jm_sleep_until(&s, DAY));
		assert_int_equal(jm_clock_now(clock), DAY);
		jm_sleeper_done(&s);
		jm_clock_free(clock);
	}
}

/* Time stands still while somebody is awake. */
static void simulated_time_waits_for_the_awake(void **state)
{
	struct jm_clock *clock = jm_clock_new_simulated(0);
	struct timespec ts = {.tv_nsec = 20 * JM_MILLISECOND};
	struct jm_sleeper sleeper;
	struct ticker k = {.period = JM_SECOND, .end = JM_SECOND};

	(void)state;
	jm_sleeper_init(&sleeper, clock);
	jm_sleeper_init(&k.sleeper, clock);
	assert_int_equal(pthread_create(&k.thread, NULL, tick, &k), 0);
	nanosleep(&ts, NULL);
	assert_int_equal(jm_clock_now(clock), 0);
	jm_sleeper_done(&sleeper); /* the other one is alone now and runs on */
	pthread_join(k.thread, NULL);
	assert_int_equal(jm_clock_now(clock), JM_SECOND);
	jm_clock_free(clock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(real_clock_is_the_machines),
		cmocka_unit_test(real_sleep_ends_at_its_deadline),
		cmocka_unit_test(real_wake_ends_a_sleep),
		cmocka_unit_test(simulated_day_alone),
		cmocka_unit_test(simulated_sleepers_share_time),
		cmocka_unit_test(simulated_wake),
		cmocka_unit_test(simulated_time_waits_for_the_awake),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
