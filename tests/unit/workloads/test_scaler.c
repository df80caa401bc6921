/* SPDX-License-Identifier: Apache-2.0 */
/* The loss scale after any sequence of finite and non-finite steps. */
#include "kit/test.h"
#include "workloads/train/scaler.h"

static struct jm_scaler parse(const char *text)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_scaler s;

	assert_ok(jm_scaler_parse(text, &s, &err), err);
	return s;
}

static void test_parse(void **state)
{
	static const char *const wrong[] = {"", "0", "-1", "0.5", "1x", "nan", "0x1p101",
		"dynamic:", "dynamic:0", "dynamic:x", "dynamics", "dynamic 5"};
	struct jm_scaler s = parse("512");

	(void)state;
	assert_false(s.dynamic);
	assert_true(s.scale == 512 && s.start == 512);
	s = parse("dynamic");
	assert_true(s.dynamic && s.scale == 65536);
	s = parse("dynamic:0x1p100");
	assert_true(s.dynamic && s.scale == 0x1p100);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		struct jm_err err = JM_ERR_INIT;

		if (jm_scaler_parse(wrong[i], &s, &err) != JM_EUSAGE)
			fail_msg("'%s' was taken", wrong[i]);
	}
}

static void step(struct jm_scaler *s, bool finite)
{
	jm_scaler_step(s, (struct jm_outcome){.scale = s->scale, .finite = finite});
}

/*
 * In closed form: each bad step halves, each 2000 good ones between two bad ones double. (PyTorch's
 * GradScaler by its documentation: growth 2, backoff 0.5, interval 2000.)
 */
static void test_sequence(void **state)
{
	static const int runs[] = {0, 3, 1999, 2000, 0, 2001, 6500, 1, 3999, 4000};
	struct jm_scaler s = parse("dynamic");
	int power = 16, skipped = 0;

	(void)state;
	for (size_t r = 0; r < sizeof(runs) / sizeof(*runs); r++) {
		for (int i = 0; i < runs[r]; i++)
			step(&s, true);
		power += runs[r] / 2000;
		assert_true(s.scale == ldexp(1, power));
		assert_true(jm_scaler_forgives(&s));
		step(&s, false);
		power--;
		skipped++;
		assert_true(s.scale == ldexp(1, power) && s.skipped == skipped);
	}
}

/* Of steps that begin before the outcome of the one before them is known, the scale is the same
 * whether the host waits for outcomes after each step or never. */
static void test_late(void **state)
{
	struct jm_scaler waits = parse("dynamic"), never = parse("dynamic");
	const bool finite[] = {false, false, true, false, true, true, false, false, false, true};
	double used[10];

	(void)state;
	for (int i = 0; i < 10; i++) {
		jm_scaler_heed(&waits, i - 1);
		if (i > 1)
			jm_scaler_add(
				&never, (struct jm_outcome){i - 2, used[i - 2], finite[i - 2]});
		jm_scaler_heed(&never, i - 1);
		assert_true(waits.scale == never.scale && waits.updates == never.updates);
		used[i] = waits.scale;
		jm_scaler_add(&waits, (struct jm_outcome){i, used[i], finite[i]});
		assert_int_equal(waits.n_late, i ? 2 : 1);
	}
	assert_int_equal(jm_scaler_known(waits).updates, 4);
	assert_int_equal(jm_scaler_known(waits).skipped, 6);
	assert_int_equal(waits.updates + waits.skipped, 8);
}

static void test_patience(void **state)
{
	struct jm_scaler s = parse("dynamic"), fixed = parse("8");

	(void)state;
	assert_false(jm_scaler_forgives(&fixed));
	for (int i = 0; i < 19; i++) {
		assert_true(jm_scaler_forgives(&s));
		step(&s, false);
	}
	assert_false(jm_scaler_forgives(&s));
	step(&s, true);
	assert_true(jm_scaler_forgives(&s));
}

/* Its inverse must stay a normal number, even times the factor that clips. */
static void test_bound(void **state)
{
	struct jm_scaler s = parse("dynamic:0x1p100");

	(void)state;
	for (int i = 0; i < 3 * 2000; i++)
		step(&s, true);
	assert_true(s.scale == 0x1p100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),
		cmocka_unit_test(test_sequence),
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_patience),
		cmocka_unit_test(test_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
