/* SPDX-License-Identifier: Apache-2.0 */
/* The guard on the fake NVML: set, partial failure, restore, keep, locks, kills. */
#include "kit/guard_case.h"
#include "guard/guard_requests.h"

static void test_set_and_stop(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g = start(f);

	assert_int_equal(jm_guard_knobs(g)->n, GPUS);
	assert_int_equal(set(f, g, "", 300), 0);
	assert_int_equal(f->n, GPUS);
	assert_true(f->out[3].accepted.high == 300 && f->out[3].enforced.high == 300);
	limits_are(f, 300, 300, 300, 300);
	assert_int_equal(set(f, g, "GPU-2", 400), 0);
	limits_are(f, 300, 300, 400, 300);
	assert_int_equal(jm_guard_stop(g, &f->err), 0);
	limits_are(f, 700, 700, 700, 700);
	assert_int_equal(journals(f), 0);
}

/* What was found comes back, not the default. */
static void test_found_is_not_default(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g = start(f);

	assert_int_equal(set(f, g, "GPU-1", 555), 0);
	assert_int_equal(jm_guard_keep(g, &f->err), 0);
	assert_int_equal(jm_guard_stop(g, &f->err), 0);
	g = start(f);
	assert_int_equal(set_value(f, g, "", jm_knob_value_word(JM_DEFAULT)), 0);
	limits_are(f, 700, 700, 700, 700);
	assert_int_equal(jm_guard_restore(g, &f->err), 0);
	limits_are(f, 700, 555, 700, 700);
	assert_int_equal(set(f, g, "", 250), 0);
	assert_int_equal(jm_guard_stop(g, &f->err), 0);
	limits_are(f, 700, 555, 700, 700);
}

static void test_partial_failure_rolls_back(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g;

	configure("deny=2");
	g = start(f);
	assert_int_equal(set(f, g, "GPU-0", 350), 0);
	assert_int_equal(set(f, g, "", 300), JM_EPERM);
	assert_non_null(strstr(f->err.text, "GPU 2"));
	assert_non_null(strstr(f->err.text, "root"));
	limits_are(f, 350, 700, 700, 700);
	assert_int_equal(jm_guard_stop(g, NULL), 0);
	limits_are(f, 700, 700, 700, 700);
}

static void test_two_settings_of_one_knob(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g = start(f);
	const struct jm_setting s[] = {{"gpu.power", "", jm_knob_value_of(300)},
		{"gpu.power", "GPU-1", jm_knob_value_of(400)}};

	assert_int_equal(jm_guard_set(g, s, 2, f->out, &f->n, &f->err), JM_EUSAGE);
	limits_are(f, 700, 700, 700, 700);
	jm_guard_stop(g, NULL);
}

static void test_enforced_is_told(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g;

	configure("enforce=1:250");
	g = start(f);
	assert_int_equal(set(f, g, "GPU-1", 400), 0);
	assert_true(f->out[0].requested.high == 400 && f->out[0].accepted.high == 400);
	assert_true(f->out[0].enforced.high == 250);
	jm_guard_stop(g, NULL);
}

static void test_one_holder(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *a = start(f), *b = start(f);
	char pid[20];

	assert_int_equal(set(f, a, "GPU-0", 300), 0);
	assert_int_equal(set(f, b, "", 400), JM_EBUSY);
	snprintf(pid, sizeof(pid), "process %d", (int)getpid());
	assert_non_null(strstr(f->err.text, pid));
	limits_are(f, 300, 700, 700, 700);
	assert_int_equal(set(f, b, "GPU-1", 400), 0);
	assert_int_equal(jm_guard_stop(a, NULL), 0);
	limits_are(f, 700, 400, 700, 700);
	assert_int_equal(set(f, b, "GPU-0", 400), 0);
	assert_int_equal(jm_guard_stop(b, NULL), 0);
	limits_are(f, 700, 700, 700, 700);
}

/* A guard sets all GPUs, is told to keep that, and ends. */
static void keep_all(struct fixture *f, double watts)
{
	struct jm_guard *g = start(f);

	assert_int_equal(set(f, g, "", watts), 0);
	assert_int_equal(jm_guard_keep(g, &f->err), 0);
	assert_int_equal(jm_guard_stop(g, &f->err), 0);
}

static void test_kept_settings_outlive_guard_and_recovery(void **state)
{
	struct fixture *f = *state;
	int n;

	keep_all(f, 300);
	limits_are(f, 300, 300, 300, 300);
	assert_int_equal(jm_guard_recover(&f->ctx, &n, &f->err), 0);
	assert_int_equal(n, 0);
	limits_are(f, 300, 300, 300, 300);
}

/* The kill comes too late to have an effect. */
static void test_a_guard_that_is_killed_after_keep_restores_nothing(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g = start(f);

	assert_int_equal(set(f, g, "", 200), 0);
	assert_int_equal(jm_guard_keep(g, &f->err), 0);
	kill(jm_guard_pid(g), SIGKILL);
	for (int i = 0; i < 500 && jm_guard_alive(g); i++)
		usleep(10000);
	assert_int_equal(jm_guard_restore(g, &f->err), JM_EGONE);
	assert_null(strstr(f->err.text, "back as it was found"));
	assert_int_equal(jm_guard_stop(g, NULL), 0);
	limits_are(f, 200, 200, 200, 200);
}

static void test_kept_twice_what_was_found_is_the_value_before_the_first(void **state)
{
	struct fixture *f = *state;
	struct jm_hold *holds;
	int n;

	keep_all(f, 300);
	keep_all(f, 200);
	assert_int_equal(jm_guard_holds(&f->ctx, &holds, &n, &f->err), 0);
	assert_int_equal(n, GPUS);
	assert_true(holds[0].found.high == 700 && holds[0].held == JM_HELD_KEPT);
	free(holds);
}

static void test_release_restores_what_was_kept(void **state)
{
	struct fixture *f = *state;
	int n;

	keep_all(f, 300);
	keep_all(f, 200);
	assert_int_equal(jm_guard_release(&f->ctx, &n, &f->err), 0);
	assert_int_equal(n, GPUS);
	limits_are(f, 700, 700, 700, 700);
	assert_int_equal(journals(f), 0);
}

/* Set by hand to what was there before the first: nothing is kept any more. */
static void test_keep_at_home(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g = start(f);

	assert_int_equal(set(f, g, "", 300), 0);
	assert_int_equal(jm_guard_keep(g, NULL), 0);
	jm_guard_stop(g, NULL);
	g = start(f);
	assert_int_equal(set_value(f, g, "", jm_knob_value_word(JM_DEFAULT)), 0);
	assert_int_equal(jm_guard_keep(g, NULL), 0);
	jm_guard_stop(g, NULL);
	limits_are(f, 700, 700, 700, 700);
	assert_int_equal(journals(f), 0);
}

/* The guard is killed: its client restores at once. */
static void test_guard_killed(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g = start(f);

	assert_int_equal(set(f, g, "", 300), 0);
	assert_true(jm_guard_alive(g));
	kill(jm_guard_pid(g), SIGKILL);
	for (int i = 0; i < 500 && limit(f, 0) != 700; i++)
		usleep(10000);
	for (int i = 0; i < 500 && jm_guard_alive(g); i++)
		usleep(10000);
	assert_int_equal(set(f, g, "", 400), JM_EGONE);
	limits_are(f, 700, 700, 700, 700);
	f->err.code = 0;
	assert_int_equal(jm_guard_stop(g, &f->err), JM_EGONE);
	assert_int_equal(journals(f), 0);
}

/* A client that sets 300 W and dies of the signal; with_guard: its guard dies with it. */
static void crash(struct fixture *f, bool with_guard)
{
	pid_t pid = fork();

	if (!pid) {
		struct jm_guard *g = NULL;

		if (jm_guard_start(&f->ctx, "nvml", &g, NULL) || set(f, g, "", 300))
			_exit(1);
		if (with_guard)
			kill(jm_guard_pid(g), SIGSTOP);
		if (with_guard)
			kill(jm_guard_pid(g), SIGKILL);
		raise(SIGKILL);
	}
	waitpid(pid, NULL, 0);
}

static void test_client_killed(void **state)
{
	struct fixture *f = *state;

	crash(f, false);
	for (int i = 0; i < 500 && (limit(f, 3) != 700 || journals(f)); i++)
		usleep(10000);
	limits_are(f, 700, 700, 700, 700);
	assert_int_equal(journals(f), 0);
}

static void test_both_killed(void **state)
{
	struct fixture *f = *state;
	int n = 0;

	crash(f, true);
	assert_int_equal(jm_guard_recover(&f->ctx, &n, &f->err), 0);
	limits_are(f, 700, 700, 700, 700);
	assert_int_equal(journals(f), 0);
}

/* A second crash, or a guard that finds a stale journal: the first value found is the one. */
static void test_stale_journal_is_settled_first(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g;

	crash(f, true);
	g = start(f);
	assert_int_equal(set(f, g, "", 500), 0);
	jm_guard_stop(g, NULL);
	limits_are(f, 700, 700, 700, 700);
}

static void test_restore_fails_and_stays(void **state)
{
	struct fixture *f = *state;
	int n = 0;

	crash(f, true);
	configure("deny=1");
	assert_int_equal(jm_guard_recover(&f->ctx, &n, &f->err), JM_EPERM);
	limits_are(f, 700, limit(f, 1), 700, 700);
	assert_non_null(strstr(f->log, "NOT back"));
	assert_int_equal(journals(f), limit(f, 1) == 700 ? 0 : 1);
	configure("");
	assert_int_equal(jm_guard_recover(&f->ctx, &n, NULL), 0);
	limits_are(f, 700, 700, 700, 700);
}

static void test_no_knobs(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g;

	/* an empty variable in a script must not mean the machine's own GPUs */
	assert_int_equal(jm_guard_start(&f->ctx, "", &g, NULL), JM_EUSAGE);
	setenv("JM_NVML_LIB", "/nowhere.so", 1);
	assert_int_equal(jm_guard_start(&f->ctx, NULL, &g, &f->err), JM_ENOENT);
	assert_non_null(strstr(f->err.text, "/nowhere.so"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		GUARD_TEST(test_set_and_stop),
		GUARD_TEST(test_found_is_not_default),
		GUARD_TEST(test_partial_failure_rolls_back),
		GUARD_TEST(test_two_settings_of_one_knob),
		GUARD_TEST(test_enforced_is_told),
		GUARD_TEST(test_one_holder),
		GUARD_TEST(test_kept_settings_outlive_guard_and_recovery),
		GUARD_TEST(test_a_guard_that_is_killed_after_keep_restores_nothing),
		GUARD_TEST(test_kept_twice_what_was_found_is_the_value_before_the_first),
		GUARD_TEST(test_release_restores_what_was_kept),
		GUARD_TEST(test_keep_at_home),
		GUARD_TEST(test_guard_killed),
		GUARD_TEST(test_client_killed),
		GUARD_TEST(test_both_killed),
		GUARD_TEST(test_stale_journal_is_settled_first),
		GUARD_TEST(test_restore_fails_and_stays),
		GUARD_TEST(test_no_knobs),
	};

	return guard_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
