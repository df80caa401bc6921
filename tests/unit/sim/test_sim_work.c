/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated work: its throughput is the published one at every point for any seed, and with the
 * node's sensors the most efficient setting is that of the paper.
 */
#include "kit/test.h"
#include "base/ctx.h"
#include "kit/source_row.h"
#include "sim/registers.h"
#include "meter/source.h"
#include "run/workload.h"

#include <pthread.h>
#include <stdio.h>

extern const struct jm_workload jm_workload_sim;
extern const struct jm_source jm_source_sim;

#define NODE_WATTS 100. /* the paper adds this much per node of four GPUs */

/* A node in simulated time, its work set up. */
struct bench {
	struct jm_ctx ctx;
	struct jm_sleeper sleeper;
	struct jm_values options;
	struct jm_work work;
	struct jm_sim_registers *registers;
	void *state;
};

static void bench_open(struct bench *b, const char *device, const char *response, uint64_t seed)
{
	struct jm_err err = JM_ERR_INIT;

	assert_ok(jm_ctx_init(&b->ctx, &err), err);
	b->ctx.clock = jm_clock_new_simulated(0);
	jm_sleeper_init(&b->sleeper, b->ctx.clock);
	assert_ok(jm_values_init(&b->options, jm_workload_sim.options, &err), err);
	assert_ok(jm_values_set(&b->options, "response", response, &err), err);
	b->work = (struct jm_work){
		.ctx = &b->ctx,
		.sleeper = &b->sleeper,
		.options = &b->options,
		.device = device,
		.seed = seed,
	};
	assert_ok(jm_sim_registers_open(&b->ctx, device + 4, &b->registers, &err), err);
	assert_ok(jm_workload_sim.setup(&b->work, &b->state, &err), err);
}

static void bench_close(struct bench *b)
{
	jm_workload_sim.teardown(b->state);
	jm_sim_registers_close(b->registers);
	jm_values_done(&b->options);
	jm_sleeper_done(&b->sleeper);
	jm_clock_free(b->ctx.clock);
}

static void set_caps(struct bench *b, double watts)
{
	struct jm_err err = JM_ERR_INIT;

	for (int i = 0; i < jm_sim_registers_name(b->registers)->n; i++)
		assert_ok(jm_sim_registers_set_cap(b->registers, i, watts, &err), err);
}

/* Items of n steps. */
static double work(struct bench *b, int n)
{
	struct jm_err err = JM_ERR_INIT;
	double items = 0;

	for (int i = 0; i < n; i++) {
		struct jm_step step;

		assert_ok(jm_workload_sim.step(b->state, &step, &err), err);
		items += step.items;
		assert_true(isnan(step.loss) && isnan(step.flops_model));
	}
	return items;
}

/* Items per second of n steps. */
static double throughput(struct bench *b, int n)
{
	int64_t start = jm_ctx_now(&b->ctx);
	double items = work(b, n);

	return items / ((double)(jm_ctx_now(&b->ctx) - start) * 1e-9);
}

/* arXiv 2603.16164, typed in again here: first and last column of each row, per GPU. */
static const struct {
	const char *gpu, *response;
	double first, last;
} published[] = {
	{"h100", "resnet50", 842.78, 1479.3},
	{"h200", "resnet50", 650.93, 2148.6},
	{"mi300x", "resnet50", 771.68, 1525.1},
	{"h100", "vit-l16", 116.40, 305.97},
	{"h200", "vit-l16", 87.23, 358.70},
	{"mi300x", "vit-l16", 76.64, 206.61},
	{"h100", "sd-v2", 20.14, 43.28},
	{"h200", "sd-v2", 15.50, 57.30},
	{"mi300x", "sd-v2", 23.94, 48.87},
	{"h100", "llama3-8b-train", 9699.3, 30271.0},
	{"h200", "llama3-8b-train", 8914.9, 34107.2},
	{"mi300x", "llama3-8b-train", 9200.7, 16843.3},
	{"h100", "llama3-8b-infer", 780.5, 2191.4},
	{"h200", "llama3-8b-infer", 571.8, 2417.5},
	{"mi300x", "llama3-8b-infer", 960.6, 1849.7},
};

static void the_table_is_the_papers(void **state)
{
	(void)state;
	for (size_t k = 0; k < sizeof(published) / sizeof(published[0]); k++) {
		struct jm_sim_name node;
		struct jm_err err = JM_ERR_INIT;
		const struct jm_sim_response *r;
		char name[32];
		int i;

		snprintf(name, sizeof(name), "%sx1", published[k].gpu);
		assert_ok(jm_sim_name_parse(name, &node, &err), err);
		i = jm_sim_response_find(node.gpu, published[k].response, &err);
		assert_ok(i, err);
		r = &node.gpu->response[i];
		assert_int_equal(r->n, strcmp(published[k].gpu, "mi300x") ? 6 : 7);
		assert_near(r->rate[0], published[k].first, 0);
		assert_near(r->rate[r->n - 1], published[k].last, 0);
		assert_near(r->cap[0], 200, 0);
	}
}

static void check_points(const char *device, const struct jm_sim_response *r, int gpus)
{
	enum { SEEDS = 4, STEPS = 100 };
	double mean[JM_SIM_POINTS_MAX] = {0};

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct bench b;

		bench_open(&b, device, r->name, seed);
		assert_int_equal(b.work.n_devices, gpus);
		assert_string_equal(b.work.unit, r->unit);
		for (int i = 0; i < r->n; i++) {
			set_caps(&b, r->cap[i]);
			mean[i] += throughput(&b, STEPS) / gpus / SEEDS;
		}
		bench_close(&b);
	}
	/* 0.5 % per step, 0.2 % per run: three standard deviations of the mean of 4 runs */
	for (int i = 0; i < r->n; i++)
		assert_near(mean[i] * (1 / r->rate[i] + r->exchange_s[gpus]), 1, 0.0035);
}

static void every_point_is_met(void **state)
{
	(void)state;
	for (const struct jm_sim_gpu *g = jm_sim_gpus; g->name; g++) {
		char device[32];
		int gpus = g == jm_sim_gpus ? 4 : 8;

		snprintf(device, sizeof(device), "sim:%sx%d", g->name, gpus);
		for (int i = 0; i < g->n_responses; i++)
			check_points(device, &g->response[i], gpus);
	}
}

/* As the paper has them: 50,000 pictures on the first GPUs of eight, at 260 W. */
static void times_by_gpus_are_the_papers(void **state)
{
	static const struct {
		const char *gpus;
		double seconds;
	} printed[] = {{"1", 85.6 * 4.95}, {"2", 228}, {"4", 85.6 * 4.95 / 3.3}, {"8", 85.6}};

	(void)state;
	for (size_t k = 0; k < sizeof(printed) / sizeof(printed[0]); k++) {
		struct jm_err err = JM_ERR_INIT;
		struct bench b;

		bench_open(&b, "sim:rtx6000x8", "xception", 1);
		jm_workload_sim.teardown(b.state);
		assert_ok(jm_values_set(&b.options, "gpus", printed[k].gpus, &err), err);
		assert_ok(jm_values_set(&b.options, "noise", "0", &err), err);
		assert_ok(jm_workload_sim.setup(&b.work, &b.state, &err), err);
		assert_int_equal(b.work.n_devices, atoi(printed[k].gpus));
		assert_near(50000 / throughput(&b, 100) / printed[k].seconds, 1, 1e-3);
		bench_close(&b);
	}
}

static void a_seed_repeats_and_another_differs(void **state)
{
	double rate[3];

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct bench b;

		bench_open(&b, "sim:h200x2", "sd-v2", i < 2 ? 7 : 8);
		rate[i] = throughput(&b, 10);
		bench_close(&b);
	}
	assert_true(rate[0] == rate[1]);
	assert_true(rate[0] != rate[2]);
}

static void the_slowest_sets_the_pace(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct bench b;

	(void)state;
	bench_open(&b, "sim:h100x3", "vit-l16", 1);
	set_caps(&b, 700);
	assert_ok(jm_sim_registers_set_cap(b.registers, 1, 300, &err), err);
	assert_near(throughput(&b, 200) / (3 * 214.90), 1, 0.008);
	bench_close(&b);
}

static void without_noise_steps_are_exact(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct bench b;

	(void)state;
	bench_open(&b, "sim:h100x4", "resnet50", 1);
	jm_workload_sim.teardown(b.state);
	assert_ok(jm_values_set(&b.options, "noise", "0", &err), err);
	assert_ok(jm_values_set(&b.options, "step-items", "1000", &err), err);
	assert_ok(jm_workload_sim.setup(&b.work, &b.state, &err), err);
	set_caps(&b, 500);
	assert_near(throughput(&b, 7), 4 * 1463.2, 1e-4);
	assert_ok(jm_workload_sim.verify(b.state, &err), err);
	bench_close(&b);
}

static void other_devices_are_refused(void **state)
{
	struct jm_err err = JM_ERR_INIT, again = JM_ERR_INIT;
	struct bench b;
	void *none = NULL;

	(void)state;
	bench_open(&b, "sim:h100x1", "resnet50", 1);
	b.work.device = "cpu";
	assert_int_equal(jm_workload_sim.setup(&b.work, &none, &err), JM_EUSAGE);
	assert_sentence(&err, JM_EUSAGE);
	b.work.device = "sim:h300x4";
	assert_int_equal(jm_workload_sim.setup(&b.work, &none, &again), JM_EUSAGE);
	assert_sentence(&again, JM_EUSAGE);
	assert_null(none);
	bench_close(&b);
}

/* ---- sampled from another thread ------------------------------------------------------------- */

enum { READS = 400 };

struct sampler {
	struct jm_sleeper sleeper;
	void *source;
	int n_signals;
	struct jm_reading reading[READS][64];
};

static void *sample(void *arg)
{
	struct sampler *s = arg;

	for (int i = 0; i < READS; i++) {
		jm_sleep_until(&s->sleeper, i * 50 * JM_MILLISECOND);
		if (read_row(&jm_source_sim, s->source, s->reading[i], NULL))
			break;
	}
	jm_sleeper_done(&s->sleeper);
	return NULL;
}

static void run_sampled(struct sampler *s)
{
	struct jm_meters set = {0};
	struct jm_err err = JM_ERR_INIT;
	struct bench b;
	pthread_t thread;

	bench_open(&b, "sim:h100x4", "llama3-8b-infer", 11);
	set_caps(&b, 500);
	assert_ok(jm_source_open(&jm_source_sim, &b.ctx, "h100x4", &set, &s->source, &err), err);
	assert_true(set.n_signals <= 64);
	jm_sleeper_init(&s->sleeper, b.ctx.clock);
	assert_int_equal(pthread_create(&thread, NULL, sample, s), 0);
	/* begins at the very moment of a reading; the end is under way when the sampler ends */
	jm_sleep_until(&b.sleeper, JM_SECOND);
	work(&b, 50);
	jm_sleep_until(&b.sleeper, READS * 50 * JM_MILLISECOND);
	assert_ok(jm_workload_sim.verify(b.state, &err), err);
	pthread_join(thread, NULL);
	jm_source_sim.close(s->source);
	jm_meters_done(&set);
	bench_close(&b);
}

/* Which of two threads of one simulated moment comes first must not show. */
static void threads_do_not_show(void **state)
{
	struct sampler *first = calloc(1, sizeof(*first)), *again = calloc(1, sizeof(*again));

	(void)state;
	assert_true(first && again);
	run_sampled(first);
	assert_true(first->reading[READS - 1][0].value > 400 * 20);
	for (int i = 0; i < 20; i++) {
		run_sampled(again);
		assert_memory_equal(first->reading, again->reading, sizeof(first->reading));
	}
	free(first);
	free(again);
}

/* ---- efficiency ------------------------------------------------------------------------------ */

/* The counters of all GPUs, J. */
static double joules(void *source, const struct jm_meters *set)
{
	struct jm_reading all[128];
	struct jm_err err = JM_ERR_INIT;
	double sum = 0;

	assert_true(set->n_signals <= 128);
	assert_ok(read_row(&jm_source_sim, source, all, &err), err);
	for (int i = 0; i < set->n; i++)
		if (set->meter[i].scope == JM_SCOPE_GPU)
			sum += all[jm_meter_signal(set, i, JM_Q_ENERGY)].value;
	return sum;
}

/* Items per joule of a minute's work as the sensors see it, 100 W per node added. */
static double efficiency(struct bench *b, void *source, const struct jm_meters *set)
{
	double items = 0, start_joules, seconds;
	int64_t start;

	work(b, 10); /* the caps take hold */
	start = jm_ctx_now(&b->ctx);
	start_joules = joules(source, set);
	do {
		items += work(b, 1);
		seconds = (double)(jm_ctx_now(&b->ctx) - start) * 1e-9;
	} while (seconds < 60);
	return items / (joules(source, set) - start_joules + NODE_WATTS * seconds);
}

/* The published cap with the most items per joule. */
static double peak_of(const char *device, const char *response)
{
	struct jm_meters set = {0};
	struct jm_err err = JM_ERR_INIT;
	struct bench b;
	double best = 0, peak = NAN;
	void *source;

	bench_open(&b, device, response, 3);
	assert_ok(jm_source_open(&jm_source_sim, &b.ctx, device + 4, &set, &source, &err), err);
	for (double cap = 200; cap <= 700; cap += 100) {
		double found;

		set_caps(&b, cap);
		found = efficiency(&b, source, &set);
		if (found > best) {
			best = found;
			peak = cap;
		}
	}
	jm_source_sim.close(source);
	jm_meters_done(&set);
	bench_close(&b);
	return peak;
}

static void efficiency_peaks_are_where_the_paper_says(void **state)
{
	static const struct {
		const char *device, *response;
		double cap;
	} said[] = {
		{"sim:h100x4", "resnet50", 300},
		{"sim:h100x4", "sd-v2", 300},
		{"sim:h100x4", "llama3-8b-infer", 300},
		{"sim:h100x4", "llama3-8b-train", 400},
		{"sim:h200x4", "resnet50", 400},
		{"sim:h200x4", "vit-l16", 400},
		{"sim:h200x4", "sd-v2", 400},
		{"sim:h200x4", "llama3-8b-infer", 400},
		{"sim:h200x4", "llama3-8b-train", 500},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
		assert_near(peak_of(said[i].device, said[i].response), said[i].cap, 0);
}

/*
 * The one peak that the paper's text and its own table disagree on: the text says 400 W. From 300 W
 * to 400 W the table gains 20.5 % of throughput; with caps used up the node's power rises by 30.8
 * %. The text would need GPUs that draw less than 367 W under a cap of 400 W.
 */
static void vit_on_h100_peaks_at_300_by_the_table(void **state)
{
	double at_300 = 214.90, at_400 = 259.00;

	(void)state;
	assert_near(peak_of("sim:h100x4", "vit-l16"), 300, 0);
	assert_near(((4 * 300 + NODE_WATTS) * at_400 / at_300 - NODE_WATTS) / 4, 366.7, 0.05);
}

static void choices_are_those_of_the_data(void **state)
{
	const struct jm_option *o = jm_workload_sim.options;

	(void)state;
	for (const struct jm_sim_gpu *g = jm_sim_gpus; g->name; g++) {
		int found = 0;

		for (int n = 0; o->choices[n]; n++)
			for (int i = 0; i < g->n_responses; i++)
				found += !strcmp(g->response[i].name, o->choices[n]);
		assert_int_equal(found, g->n_responses);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_table_is_the_papers),
		cmocka_unit_test(every_point_is_met),
		cmocka_unit_test(times_by_gpus_are_the_papers),
		cmocka_unit_test(a_seed_repeats_and_another_differs),
		cmocka_unit_test(the_slowest_sets_the_pace),
		cmocka_unit_test(without_noise_steps_are_exact),
		cmocka_unit_test(other_devices_are_refused),
		cmocka_unit_test(choices_are_those_of_the_data),
		cmocka_unit_test(threads_do_not_show),
		cmocka_unit_test(efficiency_peaks_are_where_the_paper_says),
		cmocka_unit_test(vit_on_h100_peaks_at_300_by_the_table),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
