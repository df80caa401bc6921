/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a session: when memory runs out while it is made, and the bits of a signal. */
#include "kit/test.h"
#include "base/clock.h"
#include "base/ctx.h"
#include "measure/session/session.h"
#include "measure/session/session_report.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- a source with a meter of power and one of circumstances ---- */

static struct jm_ctx *source_ctx;

static int add(struct jm_meters *set, const char *id, enum jm_scope scope,
	enum jm_quantity quantity, struct jm_err *err)
{
	struct jm_meter meter = {.source = "circumstances", .scope = scope, .origin = JM_MEASURED};
	struct jm_signal signal = {
		.quantity = quantity, .refresh_ns = JM_MILLISECOND, .accuracy = NAN};
	int rc;

	snprintf(meter.id, sizeof(meter.id), "%s", id);
	snprintf(meter.label, sizeof(meter.label), "%s", id);
	rc = jm_meters_add(set, &meter, err);
	if (rc >= 0)
		rc = jm_meters_add_signal(set, &signal, err);
	return rc < 0 ? rc : 0;
}

static int open_source(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	int rc = add(set, "package", JM_SCOPE_PACKAGE, JM_Q_POWER, err);

	(void)options;
	source_ctx = ctx;
	*ret_state = &source_ctx;
	return rc ? rc : add(set, "inlet", JM_SCOPE_CONTEXT, JM_Q_TEMPERATURE, err);
}

static int read_source(void *state, struct jm_sink *sink, struct jm_err *err)
{
	(void)state;
	(void)err;
	jm_give(sink, 0, 50, jm_ctx_now(source_ctx));
	jm_give(sink, 1, 24, jm_ctx_now(source_ctx));
	return 0;
}

static void close_source(void *state)
{
	(void)state;
}

static const struct jm_option no_options[] = {{0}};
static const struct jm_source circumstances = {.name = "circumstances",
	.summary = "a toy",
	.options = no_options,
	.origin = JM_MEASURED,
	.open = open_source,
	.read = read_source,
	.close = close_source};

/* ---- one whose clocks are held back by heat for a second, then by the power brake ---- */

static int open_throttled(struct jm_ctx *ctx, const struct jm_values *options,
	struct jm_meters *set, void **ret_state, struct jm_err *err)
{
	(void)options;
	source_ctx = ctx;
	*ret_state = &source_ctx;
	return add(set, "gpu", JM_SCOPE_GPU, JM_Q_THROTTLE, err);
}

static int read_throttled(void *state, struct jm_sink *sink, struct jm_err *err)
{
	int64_t now = jm_ctx_now(source_ctx);

	(void)state;
	(void)err;
	jm_give(sink, 0, now < JM_SECOND ? JM_THROTTLE_THERMAL : JM_THROTTLE_POWER_BRAKE, now);
	return 0;
}

static const struct jm_source throttled = {.name = "throttled",
	.summary = "a toy",
	.options = no_options,
	.origin = JM_MEASURED,
	.open = open_throttled,
	.read = read_throttled,
	.close = close_source};

/* ---- the tests ---- */

/* The bits of a phase are those of all its readings, not of the largest one. */
static void bits_of_all_readings_are_reported(void **state)
{
	static const char *const names[] = {"throttled", NULL};
	static const struct jm_source *const table[] = {&throttled, NULL};
	struct jm_ctx ctx = {.clock = jm_clock_new_simulated(0)};
	struct jm_session_options o = {.sources = names, .table = table};
	struct jm_err err = JM_ERR_INIT;
	struct jm_session *s;
	struct jm_sleeper me;
	json_t *report, *signal;
	int phase;

	(void)state;
	assert_ok(jm_session_open(&ctx, &o, &s, &err), err);
	jm_sleeper_init(&me, ctx.clock);
	assert_ok(jm_session_start(s, &err), err);
	phase = jm_session_begin(s, "command", 0, &err);
	jm_sleep_until(&me, 2 * JM_SECOND);
	jm_session_announce_stop(s);
	jm_sleeper_done(&me);
	assert_ok(jm_session_stop(s, &err), err);
	report = jm_session_report(s, phase, &err);
	signal = json_array_get(
		json_object_get(json_array_get(json_object_get(report, "meters"), 0), "signals"),
		0);
	assert_int_equal(json_integer_value(json_object_get(signal, "bits")), 2 | 4);
	json_decref(report);
	jm_session_close(s);
	jm_clock_free(ctx.clock);
}

static int until_it_fails; /* allocations */

static void *scarce(size_t n)
{
	return until_it_fails-- ? malloc(n) : NULL;
}

/* A report made while one allocation failed is the whole report or an error, never one with a part
 * left out. */
static void a_report_is_whole_or_an_error(void **state)
{
	static const char *const names[] = {"circumstances", NULL};
	static const struct jm_source *const table[] = {&circumstances, NULL};
	struct jm_ctx ctx = {.clock = jm_clock_new_simulated(0)};
	struct jm_session_options o = {.sources = names, .table = table};
	struct jm_err err = JM_ERR_INIT;
	json_t *whole, *report = NULL;
	struct jm_session *s;
	struct jm_sleeper me;
	int phase, n = 0;

	(void)state;
	assert_ok(jm_session_open(&ctx, &o, &s, &err), err);
	jm_sleeper_init(&me, ctx.clock);
	assert_ok(jm_session_start(s, &err), err);
	phase = jm_session_begin(s, "command", 0, &err);
	jm_sleep_until(&me, 2 * JM_SECOND);
	jm_session_announce_stop(s);
	jm_sleeper_done(&me);
	assert_ok(jm_session_stop(s, &err), err);
	whole = jm_session_report(s, phase, &err);
	assert_non_null(whole);
	assert_int_equal(json_array_size(json_object_get(whole, "context")), 1);
	for (bool failed = true; failed; n++) {
		until_it_fails = n;
		json_set_alloc_funcs(scarce, free);
		err = (struct jm_err)JM_ERR_INIT;
		report = jm_session_report(s, phase, &err);
		json_set_alloc_funcs(malloc, free);
		failed = until_it_fails < 0;
		if (report)
			assert_true(json_equal(report, whole));
		else
			assert_int_equal(err.code, JM_ENOMEM);
		json_decref(report);
	}
	assert_true(n > 100);
	json_decref(whole);
	jm_session_close(s);
	jm_clock_free(ctx.clock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bits_of_all_readings_are_reported),
		cmocka_unit_test(a_report_is_whole_or_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
