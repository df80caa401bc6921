/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recordings of a real H200 (tests/data/h200), replayed: the energy of the time of the load,
 * compared with the same counter as the load itself read it, at the counter's steps.
 */
#include "kit/test.h"
#include "base/ctx.h"
#include "base/clock.h"
#include "measure/session/session.h"
#include "trace/plateaus.h"

#include <jansson.h>
#include <stdio.h>

struct replayed {
	struct jm_ctx ctx;
	struct jm_session *session;
	struct jm_energy energy; /* of the GPU in the load's span */
	int64_t t0, t1;
	double truth; /* J */
};

static void path_of(char *out, size_t size, const char *name, const char *file)
{
	const char *root = getenv("JM_SOURCE");

	snprintf(out, size, "%s/tests/data/h200/%s%s", root ? root : ".", name, file);
}

static void load_span(const char *name, double *ret_begin, double *ret_end, double *ret_joules)
{
	char path[4096];
	json_t *truth;
	FILE *f;

	path_of(path, sizeof(path), name, "/phases.csv");
	f = fopen(path, "re");
	assert_non_null(f);
	assert_int_equal(
		fscanf(f, "name,start_s,end_s,items load,%lf,%lf,", ret_begin, ret_end), 2);
	fclose(f);
	path_of(path, sizeof(path), name, "/truth.json");
	truth = json_load_file(path, 0, NULL);
	assert_non_null(truth);
	*ret_joules = json_number_value(json_object_get(truth, "joules"));
	json_decref(truth);
}

/* interval 0: the default */
static void replay(struct replayed *r, const char *name, int64_t interval)
{
	char path[4096], source[4200];
	const char *const sources[] = {source, NULL};
	struct jm_session_options o = {.sources = sources, .interval_ns = interval};
	struct jm_err err = JM_ERR_INIT;
	struct jm_sleeper me;
	double begin, end;
	int phase;

	path_of(path, sizeof(path), name, "");
	snprintf(source, sizeof(source), "replay:%s", path);
	load_span(name, &begin, &end, &r->truth);
	r->ctx.clock = jm_clock_new_simulated(0);
	assert_ok(jm_session_open(&r->ctx, &o, &r->session, &err), err);
	jm_sleeper_init(&me, r->ctx.clock);
	assert_ok(jm_session_start(r->session, &err), err);
	r->t0 = llround(begin * 1e9);
	r->t1 = llround(end * 1e9);
	jm_sleep_until(&me, r->t0);
	phase = jm_session_begin(r->session, "load", r->t0, &err);
	assert_ok(phase, err);
	jm_sleep_until(&me, r->t1);
	jm_session_end(r->session, phase, r->t1);
	jm_session_announce_stop(r->session);
	jm_sleeper_done(&me);
	assert_ok(jm_session_stop(r->session, &err), err);
	assert_ok(jm_session_energy(r->session, 0, phase, &r->energy, &err), err);
}

static void done(struct replayed *r)
{
	jm_session_close(r->session);
	jm_clock_free(r->ctx.clock);
}

static const char *const names[] = {"idle", "steady", "square0.2", "square1", "square3.3"};
#define NAMES (sizeof(names) / sizeof(names[0]))

/* The load's begin and end are steps of the counter, whose times the recording gives to about 1.5
 * ms. */
#define EDGE_J (1.5e-3 * 900)

static void test_energy_is_what_the_load_saw(void **state)
{
	static const int64_t intervals[] = {0, JM_MILLISECOND, 10 * JM_MILLISECOND};

	(void)state;
	for (size_t i = 0; i < NAMES; i++) {
		for (size_t k = 0; k < sizeof(intervals) / sizeof(intervals[0]); k++) {
			struct replayed r;

			replay(&r, names[i], intervals[k]);
			print_message("%s, %lld ms: %.3f J, the load saw %.3f J; bound %.3f J\n",
				names[i], (long long)(intervals[k] / JM_MILLISECOND),
				r.energy.joules, r.truth, r.energy.error_sampling);
			assert_near(r.energy.joules, r.truth, r.energy.error_sampling + EDGE_J);
			assert_true(r.energy.error_sampling < 0.003 * r.truth);
			assert_int_equal(r.energy.gaps, 0);
			done(&r);
		}
	}
}

/*
 * The integral of power is within the bound it would have if there were no counter; power and
 * counter are two sensors, or two ways from one, and need not be alike by more than a percent.
 */
static void test_integral_agrees_with_the_counter(void **state)
{
	(void)state;
	for (size_t i = 0; i < NAMES; i++) {
		struct jm_err err = JM_ERR_INIT;
		struct jm_energy power;
		struct replayed r;
		struct jm_meters set;

		replay(&r, names[i], 0);
		set = *jm_session_meters(r.session);
		assert_int_equal(set.signal[0].quantity, JM_Q_ENERGY);
		set.signal[0].quantity = JM_Q_UTILISATION; /* no counter */
		assert_ok(jm_energy_of(
				  jm_session_trace(r.session), &set, 0, r.t0, r.t1, &power, &err),
			err);
		set.signal[0].quantity = JM_Q_ENERGY;
		print_message("%s: integral %.1f J, counter %.1f J; bound %.1f J\n", names[i],
			power.joules, r.energy.joules, power.error_sampling);
		assert_near(power.joules, r.energy.joules,
			power.error_sampling + 0.01 * r.energy.joules);
		done(&r);
	}
}

/* ---- the sensor as the table has it ---- */

struct changes {
	int64_t last, gap[1000];
	int n;
};

static void count(void *arg, const struct jm_plateau *run)
{
	struct changes *c = arg;

	if (c->n < 1000)
		c->gap[c->n++] = run->first - c->last;
	c->last = run->first;
}

static int by_length(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void test_counter_steps_every_100_ms(void **state)
{
	(void)state;
	for (size_t i = 0; i < NAMES; i++) {
		struct jm_err err = JM_ERR_INIT;
		struct changes c = {0};
		struct jm_plateaus steps;
		struct replayed r;

		replay(&r, names[i], JM_MILLISECOND);
		jm_plateaus_init(&steps, &jm_session_meters(r.session)->signal[0], count, &c);
		assert_ok(jm_trace_each(jm_session_trace(r.session), 0, r.t0, r.t1,
				  jm_plateaus_feed, &steps, &err),
			err);
		assert_near(c.n, (double)(r.t1 - r.t0) / 1e8, 4);
		qsort(c.gap, (size_t)c.n, sizeof(c.gap[0]), by_length);
		assert_near((double)c.gap[c.n / 2], 1e8, 1.5e6);
		done(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_energy_is_what_the_load_saw),
		cmocka_unit_test(test_integral_agrees_with_the_counter),
		cmocka_unit_test(test_counter_steps_every_100_ms),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
