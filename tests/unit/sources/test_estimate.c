/* SPDX-License-Identifier: Apache-2.0 */
/* The estimate on a /proc/stat of the test's own, under a simulated clock. */
#include "kit/test.h"
#include "kit/source_row.h"
#include "base/clock.h"
#include "base/ctx.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

extern const struct jm_source jm_source_estimate;

#define TICK (1.0 / (double)sysconf(_SC_CLK_TCK))

struct machine {
	struct jm_ctx ctx;
	struct jm_sleeper sleeper;
	struct jm_meters set;
	void *estimate;
	double joules; /* of the newest reading */
};

/* Busy ticks of the two processors; the others of a line are at rest. second: -1 = offline. */
static void put_stat(struct machine *m, int first, int second)
{
	char path[320];
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/stat", m->ctx.root);
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "cpu  0 0 0 0 0 0 0\ncpu0 %d 0 0 0 0 0 0\n", first);
	if (second >= 0)
		fprintf(f, "cpu1 0 0 %d 0 0 0 0\n", second);
	fprintf(f, "intr 0\n");
	fclose(f);
}

static double read_joules(struct machine *m)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_reading r;

	assert_ok(read_row(&jm_source_estimate, m->estimate, &r, &err), err);
	return r.value;
}

/* Watts of the next so many seconds, in which the processors were busy so many ticks. */
static double watts_of(struct machine *m, double seconds, int first, int second)
{
	double before = m->joules;

	jm_sleep_until(&m->sleeper, jm_ctx_now(&m->ctx) + llround(seconds * 1e9));
	put_stat(m, first, second);
	m->joules = read_joules(m);
	return (m->joules - before) / seconds;
}

static int open_machine(void **state)
{
	static struct machine m;
	struct jm_err err = JM_ERR_INIT;
	char path[320];

	m = (struct machine){.ctx = {.clock = jm_clock_new_simulated(0)}};
	snprintf(m.ctx.root, sizeof(m.ctx.root), "/tmp/jm-estimate-XXXXXX");
	if (!mkdtemp(m.ctx.root))
		return -1;
	snprintf(path, sizeof(path), "%s/proc", m.ctx.root);
	mkdir(path, 0755);
	put_stat(&m, 100, 200);
	jm_sleeper_init(&m.sleeper, m.ctx.clock);
	/* 10 W a busy core, 4 W at rest: at most 24 W */
	assert_ok(jm_source_open(&jm_source_estimate, &m.ctx, "10,4", &m.set, &m.estimate, &err),
		err);
	*state = &m;
	return 0;
}

static int close_machine(void **state)
{
	struct machine *m = *state;
	char command[320];

	jm_source_estimate.close(m->estimate);
	jm_meters_done(&m->set);
	jm_sleeper_done(&m->sleeper);
	jm_clock_free(m->ctx.clock);
	snprintf(command, sizeof(command), "rm -rf '%s'", m->ctx.root);
	return system(command);
}

/* A tick that ends in a short interval belongs to the time before it. */
static void no_interval_has_more_than_all_cores_busy(void **state)
{
	struct machine *m = *state;

	assert_near(watts_of(m, 0.000065, 101, 201), 24, 1e-6);
	/* what the first interval could not hold is in this one */
	assert_near(watts_of(m, 1, 101, 201), 4 + 10 * (2 * TICK - 2 * 0.000065), 1e-9);
	assert_near(m->joules, 4 * 1.000065 + 10 * 2 * TICK, 1e-9);
}

static void busy_cores_reach_the_most_and_not_more(void **state)
{
	struct machine *m = *state;
	int busy = (int)(0.1 / TICK), ticks = 0;

	for (int i = 0; i < 10; i++) {
		ticks += busy + (i % 2 ? -1 : 1); /* one tick more, one tick less */
		assert_true(watts_of(m, 0.1, 100 + ticks, 200 + ticks) < 24 + 1e-6);
	}
	assert_near(m->joules, 4 * 1 + 10 * 2 * ticks * TICK, 1e-6);
}

static void below_the_most_all_busy_time_counts_at_once(void **state)
{
	struct machine *m = *state;

	assert_near(watts_of(m, 1, 100 + (int)(0.25 / TICK), 200), 4 + 10 * 0.25, 1e-9);
	assert_near(watts_of(m, 1, 100 + (int)(0.25 / TICK), 200), 4, 1e-9);
}

/* Its busy time since the machine started comes and goes with its line. */
static void a_processor_that_goes_and_comes_back_changes_no_joule(void **state)
{
	struct machine *m = *state;

	assert_near(watts_of(m, 1, 100, -1), 4, 1e-9);
	assert_near(watts_of(m, 1, 100, -1), 4, 1e-9);
	assert_near(watts_of(m, 1, 100, 200), 4, 1e-9);
	assert_near(watts_of(m, 1, 100, 200 + (int)(0.5 / TICK)), 4 + 10 * 0.5, 1e-9);
	/* it may begin again at 0 */
	assert_near(watts_of(m, 1, 100, 0), 4, 1e-9);
	assert_near(watts_of(m, 1, 100, (int)(0.5 / TICK)), 4 + 10 * 0.5, 1e-9);
}

int main(void)
{
#define MACHINE_TEST(f) cmocka_unit_test_setup_teardown(f, open_machine, close_machine)
	const struct CMUnitTest tests[] = {
		MACHINE_TEST(no_interval_has_more_than_all_cores_busy),
		MACHINE_TEST(busy_cores_reach_the_most_and_not_more),
		MACHINE_TEST(below_the_most_all_busy_time_counts_at_once),
		MACHINE_TEST(a_processor_that_goes_and_comes_back_changes_no_joule),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
