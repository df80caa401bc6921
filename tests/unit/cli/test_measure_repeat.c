/* SPDX-License-Identifier: Apache-2.0 */
/* Repeated runs whose energy stays unknown, or cannot be computed: how often it is asked for, and
 * what the record has. */
#include "kit/test.h"
#include "kit/toy_source.h"
#include "cli/measure/measure_repeat.h"
#include "cli/measure/repeat_figures.h"

#include <math.h>
#include <string.h>

#define RUNS   60
#define RUN_US 3000

/* ---- instead of the library's ---- */

static int asked;
static bool fails;

int __wrap_jm_session_energy_now(struct jm_session *s, int meter, int64_t t0_ns, int64_t t1_ns,
	struct jm_energy *ret, struct jm_err *err);
int __wrap_jm_session_energy_now(struct jm_session *s, int meter, int64_t t0_ns, int64_t t1_ns,
	struct jm_energy *ret, struct jm_err *err)
{
	(void)s;
	(void)meter;
	(void)t0_ns;
	(void)t1_ns;
	(void)err;
	asked++;
	*ret = jm_energy_unknown;
	return 0;
}

int __real_jm_session_energy(
	struct jm_session *s, int meter, int phase, struct jm_energy *ret, struct jm_err *err);
int __wrap_jm_session_energy(
	struct jm_session *s, int meter, int phase, struct jm_energy *ret, struct jm_err *err);
int __wrap_jm_session_energy(
	struct jm_session *s, int meter, int phase, struct jm_energy *ret, struct jm_err *err)
{
	return fails ? jm_err_set(err, JM_EIO, "The trace cannot be read, as the test wants it.")
		     : __real_jm_session_energy(s, meter, phase, ret, err);
}

const char *jm_cli_first_given(const struct jm_cli *cli, const char *const *names)
{
	(void)cli;
	(void)names;
	return NULL;
}

/* ---- runs ---- */

struct bench {
	struct jm_cli cli;
	struct jm_session *session;
	struct jm_measure_repeat r;
	char said[600];
};

static void keep_said(void *arg, enum jm_level level, const char *line)
{
	struct bench *b = arg;

	if (level == JM_WARNING)
		snprintf(b->said, sizeof(b->said), "%s", line);
}

static int run_once(void *arg, const struct jm_repeat_once *what, struct jm_outcome *ret)
{
	struct bench *b = arg;
	int64_t begin = jm_ctx_now(&b->cli.ctx);

	usleep(RUN_US);
	*ret = (struct jm_outcome){
		.start_ns = begin, .end_ns = jm_ctx_now(&b->cli.ctx), .items = NAN};
	if (*what->phase < 0)
		*what->phase =
			jm_session_begin(b->session, what->phase_name, ret->start_ns, &b->cli.err);
	return 0;
}

static void run_all(struct bench *b, const struct jm_repeat_options *options)
{
	static char word[] = "true", *command[] = {word, NULL};
	static const char *const sources[] = {"toy", NULL};
	const struct jm_repeat_calls calls = {run_once, NULL, b};
	struct jm_outcome whole = {.items = NAN};

	asked = 0;
	fails = false;
	b->cli.ctx = (struct jm_ctx){.clock = jm_clock_real(), .log = keep_said, .log_arg = b};
	b->cli.command = command;
	b->r = (struct jm_measure_repeat){
		.options = *options, .alone = true, .command = {command}, .n_commands = 1};
	b->r.share = options->interval ? 1e-6 : 0;
	b->session = open_session(&b->cli.ctx, sources, &b->cli.err);
	assert_non_null(b->session);
	assert_ok(jm_session_start(b->session, &b->cli.err), b->cli.err);
	assert_ok(jm_measure_repeat_run(&b->r, &b->cli, b->session, &calls, &whole), b->cli.err);
	assert_int_equal(b->r.runs, options->interval ? options->most : options->runs);
	assert_ok(jm_session_stop(b->session, &b->cli.err), b->cli.err);
}

static void close_bench(struct bench *b)
{
	jm_session_close(b->session);
	jm_measure_repeat_close(&b->r);
}

/* A run that is at least as long as a refresh is asked for once, whatever the answer was. */
static void asks_once_for_the_energy_of_each_run(void **state)
{
	const struct jm_repeat_options options = {.interval = "0.0001%", .most = RUNS};
	struct bench b = {0};

	(void)state;
	run_all(&b, &options);
	assert_in_range(asked, RUNS - 2, RUNS);
	close_bench(&b);
}

static void an_energy_that_cannot_be_computed_is_null_and_reported(void **state)
{
	const struct jm_repeat_options options = {.runs = 3};
	struct bench b = {0};
	json_t *json, *energies, *one;

	(void)state;
	run_all(&b, &options);
	for (int i = 0; i < 2; i++) {
		fails = i;
		json = jm_measure_repeat_json(&b.r, &b.cli.ctx, b.session, &b.cli.err);
		assert_non_null(json);
		energies = json_object_get(json, "energy");
		assert_int_equal(
			json_array_size(energies), 1); /* of origins that no meter has: none */
		one = json_array_get(energies, 0);
		assert_string_equal(json_string_value(json_object_get(one, "origin")), "measured");
		assert_int_equal(json_is_null(json_object_get(one, "joules")), fails);
		assert_int_equal(strstr(b.said, "The trace cannot be read") != NULL, fails);
		json_decref(json);
	}
	close_bench(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(asks_once_for_the_energy_of_each_run),
		cmocka_unit_test(an_energy_that_cannot_be_computed_is_null_and_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
