/* SPDX-License-Identifier: Apache-2.0 */
/* Traces in the store: what goes in as readings comes out as the same readings of the same
 * signals. */
#include "kit/store_case.h"
#include "store/store_run.h"
#include "store/store_trace.h"
#include "base/clock.h"

static bool same_reading(struct jm_reading a, struct jm_reading b)
{
	return a.t_ns == b.t_ns && (a.value == b.value || (isnan(a.value) && isnan(b.value)));
}

struct compare {
	const struct jm_reading *expected;
	int n;
};

static int compare_reading(void *arg, struct jm_reading reading)
{
	struct compare *c = arg;

	assert_true(same_reading(reading, c->expected[c->n]));
	c->n++;
	return 0;
}

static int keep_chunk(void *arg, const struct jm_chunk *chunk, struct jm_err *err)
{
	return jm_store_add_chunk(arg, chunk, err);
}

static struct jm_meters two_signals(void)
{
	struct jm_meters set = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_meter meter = {.id = "nvml:GPU-1",
		.label = "GPU 0",
		.device = "GPU-1",
		.source = "null",
		.scope = JM_SCOPE_GPU,
		.origin = JM_REPLAYED,
		.covers = "gpu/GPU-1"};
	struct jm_signal power = {.quantity = JM_Q_POWER,
		.step = 0.001,
		.refresh_ns = 100000000,
		.window_ns = 25000000,
		.accuracy = 0.05};
	struct jm_signal energy = {
		.quantity = JM_Q_ENERGY, .wrap = 65536, .window_ns = -1, .accuracy = NAN};

	assert_int_equal(jm_meters_add(&set, &meter, &err), 0);
	assert_int_equal(jm_meters_add_signal(&set, &power, &err), 0);
	assert_int_equal(jm_meters_add_signal(&set, &energy, &err), 1);
	return set;
}

static const struct jm_reading kept[] = {
	{250.5, 1000000000}, {NAN, 1100000000}, {612.25, 1200000000}, {1e-9, 1300000001}};

/* Repeat 1 of case "aa": two chunks of readings, and no record, as after a kill. */
static void store_two_chunks(void)
{
	struct jm_store *s = store_opened(JM_STORE_WRITE);
	struct jm_meters set = two_signals();
	struct jm_err err = JM_ERR_INIT;
	struct jm_trace *trace = jm_trace_new(&set, &err);

	assert_non_null(trace);
	store_add_case(s, "aa");
	assert_int_equal(jm_store_begin(s, "aa", 1, &err), 0);
	assert_int_equal(jm_store_add_signals(s, &set, &err), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(jm_trace_append(trace, 0, kept[i], &err), 0);
		if (i % 2)
			assert_int_equal(jm_trace_flush(trace, keep_chunk, s, &err), 0);
	}
	jm_trace_free(trace);
	jm_meters_done(&set);
	store_closed(s);
}

static void test_readings_of_a_run_that_was_killed_are_there(void **unused)
{
	struct compare c = {kept, 0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_meters back;
	struct jm_trace *read;
	struct jm_store *s;

	(void)unused;
	store_two_chunks();
	s = store_opened(JM_STORE_READ);
	assert_string_equal(store_state_of("aa", 1), "running");
	assert_int_equal(jm_store_trace(s, "aa", 1, &back, &read, &err), 0);
	assert_int_equal(jm_trace_each(read, 0, 0, JM_FOREVER, compare_reading, &c, &err), 0);
	assert_int_equal(c.n, 4);
	jm_trace_free(read);
	jm_meters_done(&back);
	store_closed(s);
}

static void test_meters_and_signals_of_a_trace_are_there(void **unused)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_meters back;
	struct jm_trace *read;
	struct jm_store *s;

	(void)unused;
	store_two_chunks();
	s = store_opened(JM_STORE_READ);
	assert_int_equal(jm_store_trace(s, "aa", 1, &back, &read, &err), 0);
	assert_string_equal(back.meter[0].id, "nvml:GPU-1");
	assert_int_equal(back.meter[0].origin, JM_REPLAYED);
	assert_int_equal(back.signal[0].window_ns, 25000000);
	assert_int_equal(back.signal[1].quantity, JM_Q_ENERGY);
	assert_true(isnan(back.signal[1].accuracy));
	assert_near(back.signal[1].wrap, 65536, 0);
	jm_trace_free(read);
	jm_meters_done(&back);
	store_closed(s);
}

static void test_a_repeat_without_a_trace_has_none(void **unused)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_meters back;
	struct jm_trace *read;
	struct jm_store *s;

	(void)unused;
	store_two_chunks();
	s = store_opened(JM_STORE_READ);
	assert_int_equal(jm_store_trace(s, "aa", 2, &back, &read, &err), JM_ENOENT);
	store_closed(s);
}

/* An interrupted run is done again: one record, no trace of the first attempt. */
static void test_again(void **unused)
{
	struct jm_store *s = store_opened(JM_STORE_WRITE);
	struct jm_meters set = two_signals(), back;
	struct jm_err err = JM_ERR_INIT, none = JM_ERR_INIT;
	struct jm_trace *read;
	char order[256] = "";

	(void)unused;
	store_add_case(s, "aa");
	assert_int_equal(jm_store_begin(s, "aa", 1, &err), 0);
	assert_int_equal(jm_store_add_signals(s, &set, &err), 0);
	store_closed(s);
	s = store_opened(JM_STORE_WRITE);
	assert_int_equal(jm_store_records(s, false, store_write_order, order, &err), 0);
	assert_string_equal(order, "");
	store_add_record(s, "aa", 1, "failed", 1);
	store_add_record(s, "aa", 1, "ok", 1);
	assert_int_equal(jm_store_records(s, false, store_write_order, order, &err), 0);
	assert_string_equal(order, "aa1 ");
	assert_int_equal(jm_store_trace(s, "aa", 1, &back, &read, &none), JM_ENOENT);
	jm_meters_done(&set);
	store_closed(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORE_TEST(test_readings_of_a_run_that_was_killed_are_there),
		STORE_TEST(test_meters_and_signals_of_a_trace_are_there),
		STORE_TEST(test_a_repeat_without_a_trace_has_none),
		STORE_TEST(test_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
