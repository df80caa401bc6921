/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training repeats its bits however fast the processor seemed when the device was opened: on a busy
 * machine either type's rate may be measured too low. The clock by which they are measured is this
 * file's.
 */
#include <omp.h>
#include <stdio.h>

#include "engine/device/device.h"
#include "engine/run/program.h"
#include "engine/run/start_values.h"
#include "kit/engine_kit.h"
#include "kit/test.h"

enum { STEPS = 3, FIRST_CALLS = 40 /* of the rate measured first */ };

static double now, pace[2];
static int calls;

/* Stands before that of OpenMP: a call takes pace[0], from the second rate on pace[1] seconds. */
__attribute__((visibility("default"))) double omp_get_wtime(void)
{
	now += pace[calls++ >= FIRST_CALLS];
	return now;
}

static void open_at(double first, double second, struct jm_device *d)
{
	struct jm_err err = JM_ERR_INIT;

	pace[0] = first;
	pace[1] = second;
	calls = 0;
	assert_ok(jm_device_open("cpu", 2, d, &err), err);
}

static void write(struct jm_program *p, const char *name, int shift)
{
	struct jm_tensor *t = jm_graph_find(p->graph, name);
	struct jm_err err = JM_ERR_INIT;
	void *data;

	if (!t)
		return;
	data = malloc(t->bytes);
	for (int64_t i = 0; i < jm_tensor_count(t); i++) {
		int64_t k = (i + shift) * 7919;

		jm_element_set(t->type, data, i,
			t->type == JM_I32 ? (double)(k % 10) : (double)(k % 2003) / 1000 - 1);
	}
	assert_ok(jm_program_write(p, t, data, &err), err);
	free(data);
}

static double read_scalar(struct jm_program *p, const char *name)
{
	const struct jm_tensor *t = jm_graph_find(p->graph, name);
	struct jm_err err = JM_ERR_INIT;
	double data;

	assert_ok(jm_program_read(p, t, &data, &err), err);
	return jm_element_get(t->type, &data, 0);
}

static void step(struct jm_program *p, int number)
{
	struct jm_tensor *t = jm_graph_find(p->graph, "adamw.now");
	double value[3] = {1e-2, 1 - pow(0.9, number + 1), 1 - pow(0.99, number + 1)}, data[3];
	struct jm_err err = JM_ERR_INIT;

	for (int i = 0; i < 3; i++)
		jm_element_set(t->type, data, i, value[i]);
	assert_ok(jm_program_write(p, t, data, &err), err);
	write(p, "image", number);
	write(p, "ids", number);
	write(p, "target", number + 1);
	assert_ok(jm_program_begin(p, &err), err);
	assert_ok(jm_program_micro(p, &err), err);
	assert_ok(jm_program_update(p, &err), err);
}

/* ret: loss and norm of the gradients of each step. */
static void train(
	const char *const *model, enum jm_dtype precision, struct jm_device *d, double (*ret)[2])
{
	const struct jm_training how = {.batch = 4,
		.seq = strcmp(model[0], "llama") ? 0 : 8,
		.precision = precision,
		.micro_steps = 1,
		.adamw = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1}};
	struct jm_program *p = kit_plan(model, &how, d);
	struct jm_err err = JM_ERR_INIT;

	assert_ok(jm_program_build(p, &err), err);
	assert_ok(jm_program_init(p, 7, &err), err);
	for (int s = 0; s < STEPS; s++) {
		step(p, s);
		ret[s][0] = read_scalar(p, "loss");
		ret[s][1] = read_scalar(p, "grad.norm");
	}
	kit_plan_free(p);
}

static void same_at_any_pace(const char *const *model, enum jm_dtype precision)
{
	static const double paces[][2] = {{1e-5, 1e-5}, {1e-5, 1e-3}, {1e-3, 1e-5}};
	double seen[3], result[3][STEPS][2];

	for (int i = 0; i < 3; i++) {
		struct jm_device d;

		open_at(paces[i][0], paces[i][1], &d);
		seen[i] = d.props.peak_flops[JM_F32];
		train(model, precision, &d, result[i]);
		jm_device_close(&d);
	}
	/* the clock was that of this file, and a rate is that of one type */
	assert_near(seen[0] / seen[1] * (seen[0] / seen[2]), 100, 1e-6);
	for (int i = 1; i < 3; i++)
		assert_memory_equal(result[i], result[0], sizeof(result[0]));
}

static void bits_do_not_depend_on_measured_rates(void **unused)
{
	static const char *const llama[] = {"llama", "layers=2", "hidden=128", "heads=4",
		"kv-heads=2", "ffn=256", "vocab=64", "context=8", "theta=10000", NULL};
	static const char *const resnet[] = {
		"resnet18", "hidden=8", "image=32", "classes=10", NULL};

	(void)unused;
	same_at_any_pace(llama, JM_F32);
	same_at_any_pace(llama, JM_BF16);
	same_at_any_pace(resnet, JM_F32);
	same_at_any_pace(resnet, JM_BF16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bits_do_not_depend_on_measured_rates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
