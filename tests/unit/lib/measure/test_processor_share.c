/* SPDX-License-Identifier: Apache-2.0 */
/* A command's share of the processors, where the machine's time is what a file says. */
#include "kit/test.h"
#include "base/clock.h"
#include "base/ctx.h"
#include "base/text/json.h"
#include "measure/command/processor_share.h"

#include <sys/stat.h>
#include <unistd.h>

static int open_package(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	static const struct jm_signal counter = {.quantity = JM_Q_ENERGY};
	struct jm_meter cpu = {.id = "t:cpu",
		.label = "CPU 0",
		.source = "t",
		.scope = JM_SCOPE_PACKAGE,
		.covers = "cpu/0"};
	int rc = jm_meters_add_whole(set, &cpu, &counter, 1, err);

	(void)ctx, (void)options;
	*ret_state = NULL;
	return rc < 0 ? rc : 0;
}

static int read_nothing(void *state, struct jm_sink *sink, struct jm_err *err)
{
	(void)state, (void)sink, (void)err;
	return 0;
}

static void close_nothing(void *state)
{
	(void)state;
}

static const struct jm_source source = {.name = "t",
	.summary = "a counter",
	.open = open_package,
	.read = read_nothing,
	.close = close_nothing};

/* Seconds of user and of system time, as ticks; the time at rest and of waiting counts nowhere. */
static void write_machine(const struct jm_ctx *ctx, double user_s, double system_s)
{
	double hz = (double)sysconf(_SC_CLK_TCK);
	char path[300];
	FILE *file;

	snprintf(path, sizeof(path), "%s/proc/stat", ctx->root);
	file = fopen(path, "we");
	assert_non_null(file);
	fprintf(file, "cpu  %.0f 0 %.0f 90000 70000 0 0 0 0 0\n", user_s * hz, system_s * hz);
	fclose(file);
}

static json_t *share_of_two_runs(struct jm_ctx *ctx, double cpu_s)
{
	static const struct jm_source *const table[] = {&source, NULL};
	struct jm_session_options o = {.table = table, .no_trace = true};
	struct jm_own_share own = {0};
	struct jm_session *session;
	struct jm_err err = JM_ERR_INIT;
	json_t *json;

	assert_ok(jm_session_open(ctx, &o, &session, &err), err);
	write_machine(ctx, 100, 50);
	jm_own_share_begin(&own, session, ctx);
	write_machine(ctx, 102, 51);
	jm_own_share_end(&own, ctx);
	write_machine(ctx, 902, 451); /* a pause, in which others ran */
	jm_own_share_begin(&own, session, ctx);
	write_machine(ctx, 904, 454);
	jm_own_share_end(&own, ctx);
	json = jm_own_share_json(&own, cpu_s, session, -1, &err);
	assert_non_null(json);
	jm_session_close(session);
	return json;
}

static void sums_the_runs_and_not_the_time_between(void **state)
{
	struct jm_ctx ctx = {.root = "/tmp/test_processor_share.XXXXXX"};
	char text[300];
	json_t *json;

	(void)state;
	assert_non_null(mkdtemp(ctx.root));
	snprintf(text, sizeof(text), "%s/proc", ctx.root);
	assert_int_equal(mkdir(text, 0755), 0);
	ctx.clock = jm_clock_new_simulated(0);
	json = share_of_two_runs(&ctx, 2);
	assert_near(jm_json_real_of(json, "machine_cpu_s"), 3 + 5, 1e-9);
	assert_near(jm_json_real_of(json, "share"), 2.0 / 8, 1e-9);
	assert_true(json_is_null(json_object_get(json, "joules_estimated")));
	assert_true(json_is_null(json_object_get(json, "watts_before")));
	assert_int_equal(json_array_size(json_object_get(json, "meters")), 1);
	json_decref(json);
	/* by the rounding of the machine's time to ticks, no share is above 1 */
	json = share_of_two_runs(&ctx, 8.01);
	assert_near(jm_json_real_of(json, "share"), 1, 0);
	json_decref(json);
	jm_clock_free(ctx.clock);
	snprintf(text, sizeof(text), "rm -r %s", ctx.root);
	assert_int_equal(system(text), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_the_runs_and_not_the_time_between),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
