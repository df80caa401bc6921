/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: sources by rule, phases, items, chunks, failing sources, a recording and its replay. */
#include "kit/test.h"
#include "measure/session/sampler.h"
#include "measure/session/session_report.h"
#include "base/ctx.h"
#include "base/clock.h"
#include "measure/view/trace_csv.h"
#include "kit/toy_source.h"
#include "kit/wave.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

/* ---- opening ---- */

static void estimate_where_nothing_measures(void **state)
{
	struct jm_ctx ctx = {.clock = jm_clock_real()};
	struct jm_err err = JM_ERR_INIT;
	struct jm_session *s;

	(void)state;
	toy_covers = "gpu/0";
	s = open_session(&ctx, NULL, &err);
	assert_non_null(s);
	assert_int_equal(jm_session_meters(s)->n, 2);
	assert_string_equal(jm_session_meters(s)->meter[0].id, "toy:0");
	assert_string_equal(jm_session_meters(s)->meter[1].id, "guess:0");
	jm_session_close(s);
	assert_int_equal(toys_opened, toys_closed);

	toy_covers = "cpu/0";
	s = open_session(&ctx, NULL, &err);
	assert_int_equal(jm_session_meters(s)->n, 1);
	assert_int_equal(jm_session_meters(s)->n_signals, 1);
	jm_session_close(s);
	assert_int_equal(toys_opened, toys_closed);
}

static void a_source_that_is_named_twice_may_have_options_of_its_own(void **state)
{
	static const char *const good[] = {"toy:a", "toy:b", NULL};
	struct jm_ctx ctx = {.clock = jm_clock_real()};
	struct jm_err err = JM_ERR_INIT;
	struct jm_session *s;

	(void)state;
	toy_covers = "cpu/0";
	s = open_session(&ctx, good, &err);
	assert_string_equal(jm_session_meters(s)->meter[0].id, "a");
	assert_string_equal(jm_session_meters(s)->meter[1].id, "b");
	jm_session_close(s);
}

/* No session is opened; sources that were open already are closed again. */
static void refuses_sources(const char *const *names, int code)
{
	struct jm_ctx ctx = {.clock = jm_clock_real()};
	struct jm_err err = JM_ERR_INIT;

	toy_covers = "cpu/0";
	assert_null(open_session(&ctx, names, &err));
	assert_sentence(&err, code);
	assert_int_equal(toys_opened, toys_closed);
}

static void one_named_source_that_fails_is_an_error(void **state)
{
	(void)state;
	refuses_sources((const char *const[]){"toy", "broken", NULL}, JM_ENOENT);
}

static void an_unknown_source_is_refused(void **state)
{
	(void)state;
	refuses_sources((const char *const[]){"toys", NULL}, JM_EUSAGE);
}

static void one_id_of_two_sources_is_refused(void **state)
{
	(void)state;
	refuses_sources((const char *const[]){"toy:a", "pretend:a", NULL}, JM_EUSAGE);
}

static void an_option_of_a_source_that_has_none_is_refused(void **state)
{
	struct jm_session_options too_much = {.sources = (const char *const[]){"null:a", NULL}};
	struct jm_ctx ctx = {.clock = jm_clock_real()};
	struct jm_err err = JM_ERR_INIT;
	struct jm_session *s;

	(void)state;
	assert_int_equal(jm_session_open(&ctx, &too_much, &s, &err), JM_EUSAGE);
	assert_sentence(&err, JM_EUSAGE);
}

/* ---- running ---- */

static double real(const json_t *o, const char *key)
{
	return json_number_value(json_object_get(o, key));
}

/* Ten seconds of simulated time: phase `all` from second 1 and still open at the end, `part` from 2
 * to 6. */
struct two_phases {
	struct jm_ctx ctx;
	struct jm_session *s;
	int all, part;
};

static int measure_two_phases(void **state)
{
	static const char *const names[] = {"toy", NULL};
	static struct two_phases t;
	struct jm_err err = JM_ERR_INIT;
	struct jm_sleeper me;

	t = (struct two_phases){.ctx.clock = jm_clock_new_simulated(0)};
	toy_covers = "cpu/0";
	t.s = open_session(&t.ctx, names, &err);
	jm_sleeper_init(&me, t.ctx.clock);
	assert_ok(jm_session_start(t.s, &err), err);
	jm_sleep_until(&me, JM_SECOND);
	t.all = jm_session_begin(t.s, "command", 0, &err);
	jm_sleep_until(&me, 2 * JM_SECOND);
	t.part = jm_session_begin(t.s, "steady", 0, &err);
	jm_session_credit(t.s, t.part, 3);
	jm_session_credit(t.s, t.part, 4);
	jm_session_credit(t.s, t.part, NAN);
	jm_sleep_until(&me, 6 * JM_SECOND);
	jm_session_end(t.s, t.part, 0);
	jm_sleep_until(&me, 10 * JM_SECOND);
	jm_session_announce_stop(t.s); /* else time runs on until this thread comes to the stop */
	jm_sleeper_done(&me);
	assert_ok(jm_session_stop(t.s, &err), err);
	*state = &t;
	return 0;
}

static int end_two_phases(void **state)
{
	struct two_phases *t = *state;

	jm_session_close(t->s);
	jm_clock_free(t->ctx.clock);
	return 0;
}

static void a_phase_ends_when_it_is_ended_or_with_the_session(void **state)
{
	struct two_phases *t = *state;
	const struct jm_phase *phases;
	int n;

	phases = jm_session_phases(t->s, &n);
	assert_int_equal(n, 2);
	assert_int_equal(phases[t->part].t0_ns, 2 * JM_SECOND);
	assert_int_equal(phases[t->part].t1_ns, 6 * JM_SECOND);
	assert_int_equal(phases[t->all].t1_ns, 10 * JM_SECOND);
}

static void items_are_added_and_unknown_where_there_are_none(void **state)
{
	struct two_phases *t = *state;
	const struct jm_phase *phases;
	int n;

	phases = jm_session_phases(t->s, &n);
	assert_near(phases[t->part].items, 7, 0);
	assert_true(isnan(phases[t->all].items));
}

/* The toy takes 50 W; the phase is nine seconds long. */
static void a_report_has_the_joules_of_its_phase(void **state)
{
	struct two_phases *t = *state;
	struct jm_err err = JM_ERR_INIT;
	json_t *report = jm_session_report(t->s, t->all, &err), *total;

	assert_non_null(report);
	total = json_object_get(report, "total");
	assert_near(real(total, "joules_measured"), 450, 5);
	assert_true(json_is_null(json_object_get(total, "joules_estimated")));
	json_decref(report);
}

static void a_report_lists_the_other_phases(void **state)
{
	struct two_phases *t = *state;
	struct jm_err err = JM_ERR_INIT;
	json_t *report = jm_session_report(t->s, t->all, &err);
	const json_t *part = json_array_get(json_object_get(report, "phases"), 1);

	assert_near(real(part, "start_s"), 2, 1e-9);
	assert_near(real(json_object_get(part, "total"), "joules_measured"), 200, 1);
	json_decref(report);
}

static void a_phase_that_is_not_there_has_no_report(void **state)
{
	struct two_phases *t = *state;
	struct jm_err err = JM_ERR_INIT;

	assert_null(jm_session_report(t->s, 7, &err));
}

/* The start, a phase's two ends and the stop are edges. Each is announced to the source, which is
 * asked until the edge has passed, and is then told that it is over. */
static void edges_are_told(void **state)
{
	static const struct jm_source *const edgy_table[] = {&edgy, NULL};
	struct jm_session_options o = {.table = edgy_table};
	struct jm_ctx ctx = {.clock = jm_clock_new_simulated(0)};
	struct jm_err err = JM_ERR_INIT;
	struct jm_sleeper me;
	struct jm_session *s;
	int phase;

	(void)state;
	toy_covers = "cpu/0";
	toy_state = (struct toy){.wrap = 1e9};
	memset(&edges, 0, sizeof(edges));
	assert_ok(jm_session_open(&ctx, &o, &s, &err), err);
	jm_sleeper_init(&me, ctx.clock);
	assert_ok(jm_session_start(s, &err), err);
	for (int i = 1; i <= 3; i++) {
		jm_sleep_until(&me, i * JM_SECOND);
		assert_int_equal(edges.begun, i);
		assert_int_equal(edges.over, i);
		assert_true(edges.asked >= i);
		if (i == 1)
			phase = jm_session_begin(s, "command", 0, &err);
		if (i == 2)
			jm_session_end(s, phase, 0);
	}
	jm_session_announce_stop(s);
	jm_sleeper_done(&me);
	assert_ok(jm_session_stop(s, &err), err);
	assert_int_equal(edges.begun, 4);
	jm_session_close(s);
	jm_clock_free(ctx.clock);
	toy_state = (struct toy){0};
}

/* A source that fails for good: its meter is unknown, the session goes on and ends. */
static void die_at_3_of_5_s(bool gives_first)
{
	static const char *const names[] = {"toy:a", NULL};
	struct jm_ctx ctx = {.clock = jm_clock_new_simulated(0)};
	struct jm_err err = JM_ERR_INIT;
	struct jm_energy e;
	struct jm_sleeper me;
	struct jm_session *s;
	int phase;

	toy_covers = "cpu/0";
	s = open_session(&ctx, names, &err);
	toy_state.fails_at = 3 * JM_SECOND;
	toy_state.gives_first = gives_first;
	jm_sleeper_init(&me, ctx.clock);
	assert_ok(jm_session_start(s, &err), err);
	phase = jm_session_begin(s, "command", 0, &err);
	jm_sleep_until(&me, 5 * JM_SECOND);
	jm_session_end(s, phase, 0);
	jm_session_announce_stop(s);
	jm_sleeper_done(&me);
	assert_ok(jm_session_stop(s, &err), err);
	assert_ok(jm_session_energy(s, 0, phase, &e, &err), err);
	assert_true(isnan(e.joules));
	assert_near(e.covered_s, 3, 0.1);
	assert_near(e.watts_mean, 50, 1e-6);
	assert_int_equal(e.gaps, 1);
	jm_session_close(s);
	jm_clock_free(ctx.clock);
	toy_state = (struct toy){0};
}

static void a_source_dies(void **state)
{
	(void)state;
	die_at_3_of_5_s(false);
}

/* The reading that it gave before it failed does not hold for the rest of the time. */
static void a_source_dies_after_it_gave_a_reading(void **state)
{
	(void)state;
	die_at_3_of_5_s(true);
}

/* A counter that goes round each 10 s, and a user who wants a reading an hour. */
static void a_counter_goes_round(void **state)
{
	static const char *const names[] = {"toy:a", NULL};
	struct jm_ctx ctx = {.clock = jm_clock_new_simulated(0)};
	struct jm_session_options o = {
		.sources = names, .table = table, .interval_ns = 3600 * JM_SECOND};
	struct jm_err err = JM_ERR_INIT;
	struct jm_energy e;
	struct jm_sleeper me;
	struct jm_session *s;
	int phase;

	(void)state;
	toy_covers = "cpu/0";
	toy_state = (struct toy){.wrap = 2000};
	assert_ok(jm_session_open(&ctx, &o, &s, &err), err);
	jm_sleeper_init(&me, ctx.clock);
	assert_ok(jm_session_start(s, &err), err);
	jm_sleep_until(&me, JM_SECOND);
	phase = jm_session_begin(s, "command", 0, &err);
	jm_sleep_until(&me, 101 * JM_SECOND);
	jm_session_end(s, phase, 0);
	jm_session_announce_stop(s);
	jm_sleeper_done(&me);
	assert_ok(jm_session_stop(s, &err), err);
	assert_ok(jm_session_energy(s, 0, phase, &e, &err), err);
	assert_near(e.joules, 20000, 10);
	jm_session_close(s);
	jm_clock_free(ctx.clock);
	toy_state = (struct toy){0};
}

/* A driver that hangs, or a sampler that is stopped: the power during this time is unknown. */
static void stall(bool and_die)
{
	static const char *const names[] = {"toy:a", NULL};
	struct jm_ctx ctx = {.clock = jm_clock_real()};
	struct jm_err err = JM_ERR_INIT;
	struct jm_energy e;
	const struct jm_phase *p;
	struct jm_session *s;
	double rest;
	int phase, n;

	toy_covers = "cpu/0";
	s = open_session(&ctx, names, &err);
	toy_state = (struct toy){.ctx = &ctx, .stalls_in = 5, .gives_first = and_die};
	assert_ok(jm_session_start(s, &err), err);
	phase = jm_session_begin(s, "command", 0, &err);
	usleep(1600000);
	jm_session_end(s, phase, 0);
	assert_ok(jm_session_stop(s, &err), err);
	assert_ok(jm_session_energy(s, 0, phase, &e, &err), err);
	assert_true(isnan(e.joules));
	assert_true(e.gaps >= 1);
	p = &jm_session_phases(s, &n)[phase];
	rest = (double)(p->t1_ns - p->t0_ns) * 1e-9 - toy_state.stalled_s;
	assert_true(e.covered_s < rest + 0.15 && (and_die || e.covered_s > rest - 0.15));
	assert_near(e.watts_mean, 50, 1e-6);
	jm_session_close(s);
	toy_state = (struct toy){0};
}

static void a_reading_takes_long(void **state)
{
	(void)state;
	stall(false);
}

/* The value from before a reading that hangs and then fails does not hold while it hangs. */
static void a_source_dies_while_it_stalls(void **state)
{
	(void)state;
	stall(true);
}

struct taken {
	int chunks;
	bool fail;
};

static int take(void *arg, const struct jm_chunk *chunk, struct jm_err *err)
{
	struct taken *taken = arg;
	struct jm_chunk parsed;

	assert_int_equal(jm_chunk_parse(chunk->signal, chunk->data, chunk->bytes, &parsed, err), 0);
	taken->chunks++;
	return taken->fail ? jm_err_set(err, JM_EIO, "The store is full, as the test wants it.")
			   : 0;
}

static void chunk_by_chunk(void **state)
{
	static const char *const names[] = {"toy", NULL};

	(void)state;
	toy_covers = "cpu/0";
	toy_state = (struct toy){0};
	for (int fail = 0; fail < 2; fail++) {
		struct jm_ctx ctx = {.clock = jm_clock_real()};
		struct taken taken = {.fail = fail};
		struct jm_session_options o = {.sources = names,
			.table = table,
			.interval_ns = JM_MILLISECOND,
			.on_chunk = take,
			.on_chunk_arg = &taken};
		struct jm_err err = JM_ERR_INIT;
		struct jm_session *s;
		struct jm_energy e;
		int phase, rc;

		assert_ok(jm_session_open(&ctx, &o, &s, &err), err);
		assert_ok(jm_session_start(s, &err), err);
		phase = jm_session_begin(s, "command", 0, &err);
		usleep(100000);
		rc = jm_session_stop(s, &err);
		assert_int_equal(rc, fail ? JM_EIO : 0);
		assert_true(taken.chunks >= 1);
		err = (struct jm_err)JM_ERR_INIT;
		assert_ok(jm_session_energy(s, 0, phase, &e, &err), err);
		assert_near(e.watts_mean, 50, 1e-6);
		jm_session_close(s);
	}
}

/* ---- a recording and its replay ---- */

static json_t *replayed(const char *folder, double seconds)
{
	char source[300];
	const char *const names[] = {source, NULL};
	struct jm_session_options o = {.sources = names};
	struct jm_ctx ctx = {.clock = jm_clock_new_simulated(0)};
	struct jm_err err = JM_ERR_INIT;
	struct jm_sleeper me;
	struct jm_session *s;
	json_t *report;
	int phase;

	snprintf(source, sizeof(source), "replay:%s", folder);
	assert_ok(jm_session_open(&ctx, &o, &s, &err), err);
	jm_sleeper_init(&me, ctx.clock);
	jm_sleep_until(&me, JM_SECOND);
	assert_ok(jm_session_start(s, &err), err);
	jm_sleep_until(&me, JM_SECOND + (int64_t)(0.004 * 1e9));
	phase = jm_session_begin(s, "command", 0, &err);
	jm_sleep_until(&me, JM_SECOND + (int64_t)((0.004 + seconds) * 1e9));
	jm_session_end(s, phase, 0);
	jm_session_announce_stop(s);
	jm_sleeper_done(&me);
	assert_ok(jm_session_stop(s, &err), err);
	report = jm_session_report(s, phase, &err);
	jm_session_close(s);
	jm_clock_free(ctx.clock);
	return report;
}

/* ---- one that is left in a call ---- */

static struct {
	_Atomic int reads;
	_Atomic bool hangs, returns;
} held;

/* The second reading gives a sample and does not return. */
static int held_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct jm_reading r = {.value = 77, .t_ns = jm_ctx_now(state)};

	(void)err;
	if (++held.reads == 2) {
		sink->give(sink, 0, 1, &r);
		held.hangs = true;
		while (!held.returns)
			usleep(1000);
		pthread_exit(NULL);
	}
	jm_give(sink, 0, 50, r.t_ns);
	return 0;
}

static bool held_leave(void *state, int64_t since_ns)
{
	(void)state;
	(void)since_ns;
	return atomic_exchange(&held.hangs, false);
}

static void drain_at_end(void *arg)
{
	(void)arg;
	fail_msg("the ring is full");
}

static int count_samples(void *arg, struct jm_signal_reading *r, size_t n, struct jm_err *err)
{
	(void)err;
	for (size_t i = 0; i < n; i++)
		*(int *)arg += r[i].reading.value == 77;
	return 0;
}

static void samples_of_a_poll_that_was_given_up_are_kept(void **state)
{
	const struct jm_source source = {.name = "held", .read = held_read, .leave = held_leave};
	struct jm_ctx ctx = {.clock = jm_clock_real()};
	struct jm_err err = JM_ERR_INIT;
	struct jm_meters set = {0};
	struct jm_reader_options o = {.ctx = &ctx,
		.source = &source,
		.state = &ctx,
		.set = &set,
		.n_signals = 1,
		.interval_ns = 20 * JM_MILLISECOND,
		.full = drain_at_end};
	struct jm_reader *reader;
	int n = 0;

	(void)state;
	assert_ok(toy_add(&set, "held:0", JM_MEASURED, &err), err);
	assert_ok(jm_reader_new(&o, &reader, &err), err);
	assert_ok(jm_reader_start(reader, &err), err);
	for (; held.reads < 4; usleep(1000))
		jm_reader_look(reader);
	held.returns = true;
	jm_reader_stop(reader);
	assert_true(jm_reader_join(reader, JM_FOREVER));
	assert_ok(jm_reader_drain(reader, count_samples, &n, &err), err);
	assert_int_equal(n, 1);
	jm_reader_free(reader);
	jm_meters_done(&set);
}

static void replay(void **state)
{
	char folder[] = "/tmp/jm-replay-XXXXXX", path[64];
	static const char *const files[] = {
		"meters.csv", "readings.csv", "phases.csv", "clock.csv"};
	struct jm_err err = JM_ERR_INIT;
	struct wave_run run;
	struct jm_energy e;
	json_t *report, *meter;

	(void)state;
	wave_reset();
	wave_setup.gpus = 2;
	for (int i = 0; i < 2; i++)
		wave_square(&wave_setup.wave[i], 100, 600, 2, i / 8.0, 60);
	assert_ok(wave_measure(&run, 1.234, 4.534, 0, &err), err);
	assert_non_null(mkdtemp(folder));
	assert_ok(jm_csv_write(run.session, folder, &err), err);
	report = replayed(folder, 3.3);
	for (int i = 0; i < 2; i++) {
		assert_ok(jm_session_energy(run.session, i, run.phase, &e, &err), err);
		meter = json_array_get(json_object_get(report, "meters"), (size_t)i);
		assert_near(real(meter, "joules"), e.joules, 0.005 * e.joules);
		assert_string_equal(
			json_string_value(json_object_get(meter, "origin")), "replayed");
	}
	assert_true(
		json_is_null(json_object_get(json_object_get(report, "total"), "joules_measured")));
	json_decref(report);
	wave_close(&run);
	wave_reset();
	for (size_t i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
		unlink(path);
	}
	rmdir(folder);
}

int main(void)
{
#define PHASES_TEST(f) cmocka_unit_test_setup_teardown(f, measure_two_phases, end_two_phases)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(estimate_where_nothing_measures),
		cmocka_unit_test(a_source_that_is_named_twice_may_have_options_of_its_own),
		cmocka_unit_test(one_named_source_that_fails_is_an_error),
		cmocka_unit_test(an_unknown_source_is_refused),
		cmocka_unit_test(one_id_of_two_sources_is_refused),
		cmocka_unit_test(an_option_of_a_source_that_has_none_is_refused),
		PHASES_TEST(a_phase_ends_when_it_is_ended_or_with_the_session),
		PHASES_TEST(items_are_added_and_unknown_where_there_are_none),
		PHASES_TEST(a_report_has_the_joules_of_its_phase),
		PHASES_TEST(a_report_lists_the_other_phases),
		PHASES_TEST(a_phase_that_is_not_there_has_no_report),
		cmocka_unit_test(edges_are_told),
		cmocka_unit_test(a_source_dies),
		cmocka_unit_test(a_source_dies_after_it_gave_a_reading),
		cmocka_unit_test(a_source_dies_while_it_stalls),
		cmocka_unit_test(a_counter_goes_round),
		cmocka_unit_test(a_reading_takes_long),
		cmocka_unit_test(chunk_by_chunk),
		cmocka_unit_test(samples_of_a_poll_that_was_given_up_are_kept),
		cmocka_unit_test(replay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
