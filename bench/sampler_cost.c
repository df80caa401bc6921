/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the cost of sampling:
 *	1. processor time of 8 fake GPUs sampled at 1 kHz, against an empty loop at 1 kHz (aim:
 *	twice)
 *	   and a live view that reads ten times a second (aim: below 1 % of a core)
 *	2. a simulated day of 8 GPUs at 100 Hz: seconds and peak memory (aim: 64 MiB)
 *	   and of 1 and 8 fake NVIDIA GPUs whose counter costs the driver 3 ms of a core per
 *	   reading, like an H200's: read at every interval ("raw"), and with the budget of
 *	read_budget.h (aims: one
 *	   GPU at 1 ms below 10 % of a core, at the default interval below 3 %)
 *	3. `measure`: from its start to CMD's (aim: 10 ms), from CMD's end to its own (aim: one
 *	refresh
 *	   + 20 ms)
 * With the argument "day" only the simulated day of part 2 runs.
 */
#include "sampling.h"
#include "base/stat/stat.h"

#include "measure/view/live.h"
#include "base/ctx.h"
#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GPUS	8
#define LOOKS	30
#define REFRESH (100 * JM_MILLISECOND)

/* ---- a source of 8 GPUs that step every 100 ms ---- */

static int fast_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	static const enum jm_quantity quantities[] = {JM_Q_ENERGY, JM_Q_POWER};
	int rc = 0;

	(void)options;
	for (int i = 0; rc >= 0 && i < GPUS; i++) {
		char covers[32];
		struct jm_meter meter = {.source = "fast", .scope = JM_SCOPE_GPU, .covers = covers};

		snprintf(meter.id, sizeof(meter.id), "fast:%d", i);
		snprintf(covers, sizeof(covers), "gpu/%d", i);
		rc = jm_meters_add(set, &meter, err);
		for (int k = 0; rc >= 0 && k < 2; k++) {
			struct jm_signal signal = {.quantity = quantities[k],
				.step = 1e-3,
				.refresh_ns = REFRESH,
				.window_ns = k ? 25 * JM_MILLISECOND : 0,
				.accuracy = 0.05};

			rc = jm_meters_add_signal(set, &signal, err);
		}
	}
	*ret_state = ctx;
	return rc < 0 ? rc : 0;
}

static int fast_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	int64_t now = jm_ctx_now(state), tick = now / REFRESH;

	(void)err;
	for (int i = 0; i < GPUS; i++) {
		int64_t mj = tick * (30000 + i) + (tick * 7919 + i) % 997;

		jm_give(sink, 2 * i, (double)mj / 1e3, now);
		jm_give(sink, 2 * i + 1, (double)(300000 + (tick * 104729 + i) % 1009) / 1e3, now);
	}
	return 0;
}

static void fast_close(void *state)
{
	(void)state;
}

static const struct jm_source source_fast = {
	.name = "fast",
	.summary = "eight GPUs",
	.open = fast_open,
	.read = fast_read,
	.close = fast_close,
};
static const struct jm_source *const table[] = {&source_fast, NULL};

/* ---- 1 ---- */

static double empty_loop(double seconds)
{
	double before = cpu_seconds();
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	for (int i = 0; i < (int)(seconds * 1000); i++) {
		sleep_step(&ts, 1000000);
	}
	return cpu_seconds() - before;
}

static double sampled(double seconds)
{
	struct jm_ctx ctx = {.clock = jm_clock_real()};
	struct jm_session *s = must_open(
		&ctx, &(struct jm_session_options){.table = table, .interval_ns = JM_MILLISECOND});
	double before = cpu_seconds();

	jm_session_start(s, NULL);
	sleep_s(seconds);
	jm_session_stop(s, NULL);
	before = cpu_seconds() - before;
	jm_session_close(s);
	return before;
}

static void cost(void)
{
	double empty = 0, ours = 0;

	for (int i = 0; i < 3; i++) {
		empty += empty_loop(2);
		ours += sampled(2);
	}
	printf("8 fake GPUs at 1 kHz: %.2f %% of a core; an empty 1 kHz loop: %.2f %%; ratio "
	       "%.2f\n",
		100 * ours / 6, 100 * empty / 6, ours / empty);
}

/* ---- 1, a live view ---- */

/* At the session's default interval, as the live line reads it; the cost of the sampler itself is
 * measured above. */
static void live_view(void)
{
	struct jm_ctx ctx = {.clock = jm_clock_real()};
	struct jm_session *s =
		must_open(&ctx, &(struct jm_session_options){.table = table, .interval_ns = 0});
	struct jm_live *live = NULL;
	int64_t spent = 0;

	jm_session_start(s, NULL);
	sleep_s(1);
	if (!jm_live_new(s, jm_ctx_now(&ctx), &live, NULL)) {
		for (int i = 0; i < LOOKS; i++) {
			int64_t before;

			sleep_s(0.1);
			before = jm_clock_thread();
			jm_live_step(live, NULL);
			spent += jm_clock_thread() - before;
		}
		printf("a live view of 8 fake GPUs, 10 looks a second: %.2f %% of a core, %.0f us "
		       "a look\n",
			100 * (double)spent * 1e-9 / (LOOKS * 0.1), (double)spent * 1e-3 / LOOKS);
	}
	jm_live_free(live);
	jm_session_stop(s, NULL);
	jm_session_close(s);
}

/* ---- 1, a counter that is slow to read ---- */

/* Share of a core, including the start, at which the sampler searches for the steps of the
 * counters. */
static double dear(const char *source, int64_t interval, double seconds)
{
	const char *const sources[] = {source, NULL};
	struct jm_session_options o = {.sources = sources, .interval_ns = interval};
	struct jm_ctx ctx = {.clock = jm_clock_real()};
	struct jm_err err = JM_ERR_INIT;
	struct jm_session *s;
	double before;

	if (jm_session_open(&ctx, &o, &s, &err)) {
		printf("%s\n", err.text);
		exit(1);
	}
	before = cpu_seconds();
	jm_session_start(s, NULL);
	sleep_s(seconds);
	jm_session_stop(s, NULL);
	before = cpu_seconds() - before;
	jm_session_close(s);
	return before / seconds;
}

static void dear_counters(const char *nvml)
{
	static const struct {
		const char *config, *name;
		int64_t interval;
	} rows[] = {
		{"gpus=1;wave=square;energycost=3000", "1 GPU, 1 ms", JM_MILLISECOND},
		{"gpus=1;wave=square;energycost=3000", "1 GPU, default interval", 0},
		{"gpus=8;wave=square;energycost=3000", "8 GPUs, 1 ms", JM_MILLISECOND},
		{"gpus=8;wave=square;energycost=3000", "8 GPUs, default interval", 0},
	};

	setenv("JM_NVML_LIB", nvml, 1);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		double raw = 0, ours = 0;

		setenv("JM_FAKE_NVML", rows[i].config, 1);
		for (int k = 0; k < 2; k++) {
			raw += dear("nvml:raw", rows[i].interval, 5) / 2;
			ours += dear("nvml", rows[i].interval, 5) / 2;
		}
		printf("a counter of 3 ms, %s: %.1f %% of a core; read each time %.1f %%; ratio "
		       "%.3f\n",
			rows[i].name, 100 * ours, 100 * raw, ours / raw);
	}
}

/* ---- 2 ---- */

static long peak_kib(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_maxrss;
}

static double now_s(void)
{
	return (double)jm_clock_now(jm_clock_real()) * 1e-9;
}

static void simulated_day(void)
{
	struct jm_ctx ctx = {.clock = jm_clock_new_simulated(0)};
	struct jm_session *s = must_open(&ctx,
		&(struct jm_session_options){.table = table, .interval_ns = 10 * JM_MILLISECOND});
	double began = now_s(), sampled_s;
	struct jm_energy e = {.joules = NAN};
	struct jm_sleeper me;
	int phase;

	jm_sleeper_init(&me, ctx.clock);
	jm_session_start(s, NULL);
	jm_sleep_until(&me, JM_SECOND);
	phase = jm_session_begin(s, "day", 0, NULL);
	jm_sleep_until(&me, 86401 * JM_SECOND);
	jm_session_end(s, phase, 0);
	jm_sleeper_done(&me);
	jm_session_stop(s, NULL);
	sampled_s = now_s() - began;
	for (int i = 0; i < GPUS; i++)
		jm_session_energy(s, i, phase, &e, NULL);
	printf("a simulated day, 8 GPUs, 100 Hz: %.3f s, and %.3f s for the energies; most memory "
	       "%.1f MiB; last GPU %.0f J (truth about %.0f J)\n",
		sampled_s, now_s() - began - sampled_s, (double)peak_kib() / 1024, e.joules,
		86400 * 10 * 30.007);
	jm_session_close(s);
	jm_clock_free(ctx.clock);
}

/* ---- 3 ---- */

/* Runs `joulemark measure -- /proc/self/exe --stamp`; the stamp has the times at which the command
 * began and ended. */
static void one_measure(char *joulemark, double *ret_start, double *ret_return)
{
	char self[4096],
		*argv[] = {joulemark, "measure", "--source", "nvml", "--", self, "--stamp", NULL};
	long long began = 0, ended = 0;
	int64_t before, after;
	int out[2], status;
	FILE *f;

	self[readlink("/proc/self/exe", self, sizeof(self) - 1)] = '\0';
	if (pipe(out))
		exit(1);
	before = jm_clock_now(jm_clock_real());
	if (!fork()) {
		dup2(out[1], 1);
		if (!freopen("/dev/null", "w", stderr))
			_exit(1);
		execv(joulemark, argv);
		_exit(1);
	}
	close(out[1]);
	wait(&status);
	after = jm_clock_now(jm_clock_real());
	f = fdopen(out[0], "r");
	if (!f || fscanf(f, "%lld %lld", &began, &ended) != 2)
		printf("measure failed\n");
	if (f)
		fclose(f);
	*ret_start = (double)(began - before) * 1e-6;
	*ret_return = (double)(after - ended) * 1e-6;
}

static void latency(char *joulemark, const char *nvml)
{
	double start[20], back[20];

	setenv("JM_NVML_LIB", nvml, 1);
	setenv("JM_FAKE_NVML", "gpus=8;wave=square;low=100;high=600;period=2;shift=0.25", 1);
	for (int i = 0; i < 20; i++)
		one_measure(joulemark, &start[i], &back[i]);
	qsort(start, 20, sizeof(*start), jm_stat_by_value);
	qsort(back, 20, sizeof(*back), jm_stat_by_value);
	printf("measure with 8 fake GPUs: CMD begins after %.1f ms (median; worst %.1f), joulemark "
	       "ends %.1f ms after it (median; worst %.1f)\n",
		start[10], start[19], back[10], back[19]);
}

/* A path in the build folder, two above this program's. */
static void beside(char *out, size_t size, const char *name)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[n > 0 ? n : 0] = '\0';
	for (int i = 0; i < 2 && strrchr(self, '/'); i++)
		*strrchr(self, '/') = '\0';
	snprintf(out, size, "%s%s", self, name);
}

int main(int argc, char **argv)
{
	char joulemark[4200], nvml[4200];

	if (argc > 1 && !strcmp(argv[1], "--stamp")) {
		long long began = jm_clock_now(jm_clock_real());

		sleep_s(0.25);
		printf("%lld %lld\n", began, (long long)jm_clock_now(jm_clock_real()));
		return 0;
	}
	beside(joulemark, sizeof(joulemark), "/joulemark");
	beside(nvml, sizeof(nvml), "/tests/peers/libnvidia-ml-fake.so");
	if (argc > 1 && !strcmp(argv[1], "day")) {
		simulated_day();
		return 0;
	}
	cost();
	live_view();
	if (!access(nvml, R_OK))
		dear_counters(nvml);
	simulated_day();
	if (!access(joulemark, X_OK) && !access(nvml, R_OK))
		latency(joulemark, nvml);
	return 0;
}
