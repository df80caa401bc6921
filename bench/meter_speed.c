/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the cost of many meters:
 *	1. processor time of a sampler of 8 GPUs x 6 signals at 100 Hz whose calls compute for 20 us
 *	each, against a
 *	   loop that makes the same calls and nothing else (aim: at most 1.2 times)
 *	2. a source that hangs for 10 s while another one is read every 10 ms (aim: the readings of
 *	   the other have no longer gaps than the machine alone causes)
 *	3. a day of 48 signals at 100 Hz in a store, changes only (aims: below 1 GB; opened and
 *	summarised in 2 s)
 */
#include "sampling.h"
#include "measure/session/session_report.h"
#include "base/stat/stat.h"

#include "base/clock.h"
#include "base/ctx.h"
#include "result/record.h"
#include "store/store.h"
#include "store/store_run.h"
#include "store/store_trace.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GPUS	8
#define SIGNALS 6
#define CALL_US 20
#define DAY	86400

static const enum jm_quantity quantities[SIGNALS] = {
	JM_Q_ENERGY, JM_Q_POWER, JM_Q_LIMIT, JM_Q_CLOCK, JM_Q_TEMPERATURE, JM_Q_UTILISATION};

static int add_gpus(struct jm_meters *set, const char *source, struct jm_err *err)
{
	int rc = 0;

	for (int i = 0; rc >= 0 && i < GPUS; i++) {
		char covers[32];
		struct jm_meter meter = {.source = source, .scope = JM_SCOPE_GPU, .covers = covers};

		snprintf(meter.id, sizeof(meter.id), "%s:%d", source, i);
		snprintf(meter.label, sizeof(meter.label), "GPU %d", i);
		snprintf(covers, sizeof(covers), "gpu/%d", i);
		rc = jm_meters_add(set, &meter, err);
		for (int k = 0; rc >= 0 && k < SIGNALS; k++) {
			struct jm_signal signal = {.quantity = quantities[k],
				.step = 1e-3,
				.refresh_ns = 100 * JM_MILLISECOND,
				.window_ns = quantities[k] == JM_Q_POWER ? 25 * JM_MILLISECOND : 0,
				.accuracy = 0.05};

			rc = jm_meters_add_signal(set, &signal, err);
		}
	}
	return rc < 0 ? rc : 0;
}

/* Energy and power step ten times a second, the rest once a second, the limit never. */
static double value_of(int gpu, int signal, int64_t now)
{
	int64_t tick = now / (100 * JM_MILLISECOND), second = now / JM_SECOND;

	switch (quantities[signal]) {
	case JM_Q_ENERGY:
		return (double)(tick * (30000 + gpu) + (tick * 7919 + gpu) % 997) / 1e3;
	case JM_Q_POWER:
		return (double)(300000 + (tick * 104729 + gpu) % 100009) / 1e3;
	case JM_Q_LIMIT:
		return 700;
	case JM_Q_CLOCK:
		return 15e6 * (double)(120 + (second * 31 + gpu) % 13);
	case JM_Q_TEMPERATURE:
		return (double)(60 + (second / 7 + gpu) % 9);
	default:
		return (double)(90 + (second * 17 + gpu) % 11) / 100;
	}
}

/* ---- 1 ---- */

static double one_call(struct jm_ctx *ctx, int gpu, int signal)
{
	int64_t end = jm_clock_thread() + CALL_US * 1000;

	while (jm_clock_thread() < end)
		;
	return value_of(gpu, signal, jm_ctx_now(ctx));
}

static int slow_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	(void)options;
	*ret_state = ctx;
	return add_gpus(set, "slow", err);
}

static long rounds; /* of the sampler: on a busy machine it omits some */

static int slow_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	(void)err;
	rounds++;
	for (int i = 0; i < GPUS; i++)
		for (int k = 0; k < SIGNALS; k++)
			jm_give(sink, i * SIGNALS + k, one_call(state, i, k), jm_ctx_now(state));
	return 0;
}

static void no_close(void *state)
{
	(void)state;
}

static const struct jm_source source_slow = {.name = "slow",
	.summary = "calls of 20 us",
	.open = slow_open,
	.read = slow_read,
	.close = no_close};

static double empty_loop(double seconds, double *sum)
{
	struct jm_ctx ctx = {.clock = jm_clock_real()};
	double before = cpu_seconds();
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	for (int i = 0; i < (int)(seconds * 100); i++) {
		for (int k = 0; k < GPUS * SIGNALS; k++)
			*sum += one_call(&ctx, k / SIGNALS, k % SIGNALS);
		sleep_step(&ts, 10000000);
	}
	return cpu_seconds() - before;
}

/* Of a round. */
static double sampled(double seconds)
{
	static const struct jm_source *const table[] = {&source_slow, NULL};
	const struct jm_session_options o = {.table = table, .interval_ns = 10 * JM_MILLISECOND};
	struct jm_ctx ctx = {.clock = jm_clock_real()};
	struct jm_session *s = must_open(&ctx, &o);
	double before = cpu_seconds();

	rounds = 0;
	jm_session_start(s, NULL);
	sleep_s(seconds);
	jm_session_stop(s, NULL);
	before = cpu_seconds() - before;
	jm_session_close(s);
	return before / (double)rounds;
}

static void cost(void)
{
	double ratio[5], sum = 0, empty = 0, ours = 0;

	for (int i = 0; i < 5; i++) {
		double e = empty_loop(4, &sum) / 400, o = sampled(4);

		empty += e;
		ours += o;
		ratio[i] = o / e;
	}
	qsort(ratio, 5, sizeof(ratio[0]), jm_stat_by_value);
	printf("8 GPUs x 6 signals at 100 Hz, 20 us a call: %.3f ms of a processor each time; the "
	       "calls alone %.3f ms; ratio %.3f (of five runs %.3f to %.3f)%s\n",
		1e3 * ours / 5, 1e3 * empty / 5, ratio[2], ratio[0], ratio[4],
		isnan(sum) ? "!" : "");
}

/* ---- 2 ---- */

static int hang_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	struct jm_meter meter = {
		.id = "hang:0", .label = "hang", .source = "hang", .covers = "psu/9"};
	struct jm_signal signal = {.quantity = JM_Q_POWER, .accuracy = NAN};
	int rc = jm_meters_add(set, &meter, err);

	(void)options;
	*ret_state = ctx;
	return rc < 0 ? rc : jm_meters_add_signal(set, &signal, err) < 0 ? JM_ENOMEM : 0;
}

static int hang_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	static int reads;

	(void)err;
	if (reads++ == 3)
		sleep_s(10);
	jm_give(sink, 0, 100, jm_ctx_now(state));
	return 0;
}

static const struct jm_source source_hang = {.name = "hang",
	.summary = "hangs",
	.open = hang_open,
	.read = hang_read,
	.close = no_close};

static int quick_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	(void)options;
	*ret_state = ctx;
	return add_gpus(set, "quick", err);
}

static int quick_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	int64_t now = jm_ctx_now(state);

	(void)err;
	for (int i = 0; i < GPUS; i++)
		for (int k = 0; k < SIGNALS; k++)
			jm_give(sink, i * SIGNALS + k, value_of(i, k, now), now);
	return 0;
}

static const struct jm_source source_quick = {.name = "quick",
	.summary = "no cost",
	.open = quick_open,
	.read = quick_read,
	.close = no_close};

struct gaps {
	int signal;
	int64_t last, longest;
};

static void note_reading(void *arg, int signal, struct jm_reading reading)
{
	struct gaps *g = arg;

	if (signal != g->signal)
		return;
	if (g->last && reading.t_ns - g->last > g->longest)
		g->longest = reading.t_ns - g->last;
	g->last = reading.t_ns;
}

/* The longest time between two readings of the quick source. */
static double longest_gap(bool hanging)
{
	static const struct jm_source *const both[] = {&source_quick, &source_hang, NULL};
	static const struct jm_source *const one[] = {&source_quick, NULL};
	struct gaps gaps = {.signal = 0};
	const struct jm_session_options o = {.table = hanging ? both : one,
		.interval_ns = 10 * JM_MILLISECOND,
		.on_reading = note_reading,
		.on_reading_arg = &gaps};
	struct jm_ctx ctx = {.clock = jm_clock_real()};
	struct jm_session *s = must_open(&ctx, &o);

	jm_session_start(s, NULL);
	sleep_s(11);
	jm_session_stop(s, NULL);
	jm_session_close(s);
	return (double)gaps.longest * 1e-6;
}

/* ---- 3 ---- */

static int keep_chunk(void *arg, const struct jm_chunk *chunk, struct jm_err *err)
{
	return jm_store_add_chunk(arg, chunk, err);
}

static double now_s(void)
{
	return (double)jm_clock_now(jm_clock_real()) * 1e-9;
}

static json_t *day_record(struct jm_session *s, int phase, struct jm_err *err)
{
	json_t *job = json_pack("{s:{s:s, s:{}}, s:{s:s, s:{}, s:i, s:i, s:i, s:b, s:i}, s:[]}",
		"parameters", "workload", "day", "options", "case", "id",
		"0123456789abcdef0123456789abcdef", "parameters", "repeat", 1, "block", 1,
		"position", 1, "reference", 0, "seed", 1, "settings");
	json_t *record = jm_record_new(job, err), *report = jm_session_report(s, phase, err);

	json_object_update(record, report);
	jm_record_set(record, "status", json_string("ok"));
	jm_record_set(record, "wall_s", json_real(DAY));
	json_decref(report);
	json_decref(job);
	return record;
}

static void must(int rc, const struct jm_err *err)
{
	if (!rc)
		return;
	printf("%s\n", err->text);
	exit(1);
}

static void sample_a_day(struct jm_store *store, struct jm_err *err)
{
	static const struct jm_source *const table[] = {&source_quick, NULL};
	const struct jm_session_options o = {.table = table,
		.interval_ns = 10 * JM_MILLISECOND,
		.on_chunk = keep_chunk,
		.on_chunk_arg = store};
	struct jm_ctx ctx = {.clock = jm_clock_new_simulated(0)};
	struct jm_session *s = must_open(&ctx, &o);
	struct jm_sleeper me;
	json_t *record;
	int phase;

	must(jm_store_add_case(store, "0123456789abcdef0123456789abcdef", json_object(), err), err);
	must(jm_store_begin(store, "0123456789abcdef0123456789abcdef", 1, err), err);
	must(jm_store_add_signals(store, jm_session_meters(s), err), err);
	jm_sleeper_init(&me, ctx.clock);
	jm_session_start(s, NULL);
	phase = jm_session_begin(s, "steady", 0, NULL);
	jm_sleep_until(&me, DAY * JM_SECOND);
	jm_session_end(s, phase, 0);
	jm_sleeper_done(&me);
	must(jm_session_stop(s, err), err);
	record = day_record(s, phase, err);
	must(jm_store_finish(store, record, err), err);
	json_decref(record);
	jm_session_close(s);
	jm_clock_free(ctx.clock);
}

/* page: with the plot of its trace */
static double report_s(const char *joulemark, const char *path, bool page)
{
	double began = now_s();
	int status;

	fflush(stdout);
	if (!fork()) {
		if (!freopen("/dev/null", "w", stdout))
			_exit(1);
		execl(joulemark, joulemark, "report", "--quiet", "--format",
			page ? "html" : "table", "--output", "-", path, (char *)NULL);
		_exit(1);
	}
	wait(&status);
	if (status)
		printf("joulemark report failed\n");
	return now_s() - began;
}

static void a_day(const char *joulemark)
{
	char path[] = "/tmp/meter-speed-XXXXXX.db";
	int fd = mkstemps(path, 3);
	double began = now_s(), cpu = cpu_seconds();
	struct jm_err err = JM_ERR_INIT;
	struct jm_store *store;
	struct stat st;

	if (fd < 0)
		exit(1);
	close(fd);
	unlink(path);
	must(jm_store_open(path, JM_STORE_WRITE, &store, &err), &err);
	sample_a_day(store, &err);
	must(jm_store_close(store, &err), &err);
	stat(path, &st);
	printf("a day of 48 signals at 100 Hz in a store: %.1f MB, sampled and stored in %.1f s "
	       "(%.1f s of processors)\n",
		(double)st.st_size / 1e6, now_s() - began, cpu_seconds() - cpu);
	printf("opened and summarised by 'joulemark report': %.2f s; as a page with the plot of "
	       "the "
	       "trace: %.2f s\n",
		report_s(joulemark, path, false), report_s(joulemark, path, true));
	unlink(path);
}

int main(void)
{
	char self[4096] = "", joulemark[4200];
	double alone, beside;

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return 1;
	snprintf(joulemark, sizeof(joulemark), "%.*s/joulemark",
		(int)(strstr(self, "/bench/") ? strstr(self, "/bench/") - self : 0), self);
	cost();
	alone = longest_gap(false);
	beside = longest_gap(true);
	printf("longest time between two readings at 10 ms: %.1f ms alone, %.1f ms beside a source "
	       "that hangs for 10 s\n",
		alone, beside);
	a_day(joulemark);
	return 0;
}
