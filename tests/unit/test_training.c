/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must not change a result: gradients added up over micro-steps, activations computed again. And
 * what must be told: where a NaN was born, where the time went.
 */
#include <stdio.h>

#include "engine/device.h"
#include "engine/kit.h"
#include "engine/model.h"
#include "engine/profile.h"
#include "unit/test.h"

#define STEPS 3
#define SEQ   8

struct trainer {
	struct jm_values dims;
	struct jm_training t;
	struct jm_device device;
	struct jm_graph *graph;
	struct jm_program *program;
};

static void set_up(struct trainer *x, const char *device, enum jm_dtype precision, int batch,
	int micro_steps, bool recompute)
{
	static const char *const dims[][2] = {{"layers", "3"}, {"hidden", "32"}, {"heads", "2"},
		{"ffn", "64"}, {"vocab", "64"}, {"context", "8"}, {"positions", "learned"}};
	const struct jm_preset *preset;
	struct jm_err err = JM_ERR_INIT;

	*x = (struct trainer){
		.t = {.batch = batch,
			.seq = SEQ,
			.precision = precision,
			.micro_steps = micro_steps,
			.recompute = recompute,
			.adamw = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1}}};
	assert_ok(jm_model_find("gpt", &x->t.model, &preset, &err), err);
	assert_ok(jm_values_init(&x->dims, x->t.model->options, &err), err);
	for (size_t i = 0; i < sizeof(dims) / sizeof(*dims); i++)
		assert_ok(jm_values_set(&x->dims, dims[i][0], dims[i][1], &err), err);
	x->t.dims = &x->dims;
	assert_ok(jm_device_open(device, 2, &x->device, &err), err);
	assert_ok(jm_model_train(&x->t, &x->graph, &err), err);
	assert_ok(jm_program_plan(x->graph, &x->device, &x->program, &err), err);
	assert_ok(jm_program_build(x->program, &err), err);
	assert_ok(jm_program_init(x->program, 7, &err), err);
}

static void tear_down(struct trainer *x)
{
	jm_program_free(x->program);
	jm_graph_free(x->graph);
	jm_device_close(&x->device);
	jm_values_done(&x->dims);
}

/* Sample k of the whole run, whatever the batch. */
static void feed(struct trainer *x, const char *name, int first, int shift)
{
	struct jm_tensor *t = jm_graph_find(x->graph, name);
	struct jm_err err = JM_ERR_INIT;
	int32_t ids[8 * SEQ];

	for (int i = 0; i < x->t.batch * SEQ; i++)
		ids[i] = (first * SEQ + i + shift) * 7919 % 61;
	assert_ok(jm_program_write(x->program, t, ids, &err), err);
}

static double scalar(struct trainer *x, const char *name)
{
	const struct jm_tensor *t = jm_graph_find(x->graph, name);
	struct jm_err err = JM_ERR_INIT;
	double data;

	assert_ok(jm_program_read(x->program, t, &data, &err), err);
	return jm_element_get(t->type, &data, 0);
}

/* The mean loss of the step's micro-steps. */
static double step(struct trainer *x, int number)
{
	int k = jm_program_micro_steps(x->program), per_step = k * (int)x->t.batch;
	struct jm_tensor *now = jm_graph_find(x->graph, "adamw.now");
	double value[3] = {1e-2, 1 - pow(0.9, number + 1), 1 - pow(0.99, number + 1)}, data[3];
	struct jm_err err = JM_ERR_INIT;
	double loss = 0;

	for (int i = 0; i < 3; i++)
		jm_element_set(now->type, data, i, value[i]);
	assert_ok(jm_program_write(x->program, now, data, &err), err);
	assert_ok(jm_program_begin(x->program, &err), err);
	for (int i = 0; i < k; i++) {
		feed(x, "ids", number * per_step + i * (int)x->t.batch, 0);
		feed(x, "target", number * per_step + i * (int)x->t.batch, 1);
		assert_ok(jm_program_micro(x->program, &err), err);
		loss += scalar(x, "loss") / k;
	}
	assert_ok(jm_program_update(x->program, &err), err);
	return loss;
}

static bool have(const char *device)
{
	return !jm_backend_check(device, NULL);
}

static void test_accumulation(void **state)
{
	static const char *const devices[] = {"ref", "cpu"};
	struct trainer whole, parts;

	(void)state;
	for (int d = 0; d < 2; d++) {
		if (!have(devices[d]))
			continue;
		set_up(&whole, devices[d], JM_F32, 8, 1, false);
		set_up(&parts, devices[d], JM_F32, 1, 8, false);
		for (int s = 0; s < STEPS; s++) {
			assert_near(step(&whole, s), step(&parts, s), 2e-5);
			assert_near(scalar(&whole, "grad.norm"), scalar(&parts, "grad.norm"), 2e-5);
		}
		assert_near(whole.program->flops_model, parts.program->flops_model, 1);
		assert_true(parts.program->peak_bytes < whole.program->peak_bytes);
		tear_down(&whole);
		tear_down(&parts);
	}
}

/* In f64 there is next to no rounding: what is left would be a mistake. */
static void test_accumulation_exact(void **state)
{
	struct trainer whole, parts;

	(void)state;
	set_up(&whole, "ref", JM_F64, 6, 1, false);
	set_up(&parts, "ref", JM_F64, 2, 3, true);
	for (int s = 0; s < STEPS; s++)
		assert_near(step(&whole, s), step(&parts, s), 1e-12);
	tear_down(&whole);
	tear_down(&parts);
}

static void same_bits(const char *device, enum jm_dtype precision)
{
	struct trainer kept, again;

	if (!have(device))
		return;
	set_up(&kept, device, precision, 4, 1, false);
	set_up(&again, device, precision, 4, 1, true);
	for (int s = 0; s < STEPS; s++) {
		double a = step(&kept, s), b = step(&again, s);

		if (memcmp(&a, &b, sizeof(a)))
			fail_msg("%s: step %d: %.17g with all kept, %.17g with recompute", device,
				s, a, b);
		assert_true(scalar(&kept, "grad.norm") == scalar(&again, "grad.norm"));
	}
	assert_true(again.program->arena_bytes < kept.program->arena_bytes);
	assert_near(again.program->flops_model, kept.program->flops_model, 1);
	assert_true(again.program->flops_executed > 1.2 * kept.program->flops_executed);
	tear_down(&kept);
	tear_down(&again);
}

static void test_recompute(void **state)
{
	(void)state;
	same_bits("ref", JM_F32);
	same_bits("ref", JM_BF16);
	same_bits("cpu", JM_F32);
	same_bits("cpu", JM_BF16);
}

static void poison(struct trainer *x, const char *name, double value)
{
	struct jm_tensor *t = jm_graph_find(x->graph, name);
	struct jm_err err = JM_ERR_INIT;
	float *data = malloc(t->bytes);

	assert_ok(jm_program_read(x->program, t, data, &err), err);
	data[3] = (float)value;
	assert_ok(jm_program_write(x->program, t, data, &err), err);
	free(data);
}

static void test_birth(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct trainer x;
	char where[160];

	(void)state;
	set_up(&x, "ref", JM_F32, 2, 1, false);
	step(&x, 0);
	assert_ok(jm_program_birth(x.program, where, sizeof(where), &err), err);
	assert_non_null(strstr(where, "did not come back"));
	/* finite, but its product overflows */
	poison(&x, "h1.ln_2.weight", 1e30);
	poison(&x, "h1.mlp.in.weight", 1e30);
	assert_false(isfinite(step(&x, 1)));
	assert_ok(jm_program_birth(x.program, where, sizeof(where), &err), err);
	if (!strstr(where, "linear, in its result h1.linear"))
		fail_msg("%s", where);
	poison(&x, "h2.ln_1.bias", NAN);
	assert_ok(jm_program_birth(x.program, where, sizeof(where), &err), err);
	assert_non_null(strstr(where, "parameter h2.ln_1.bias was not finite"));
	tear_down(&x);
}

static void test_profile(void **state)
{
	struct jm_profile_line line[64];
	struct jm_err err = JM_ERR_INIT;
	double flops = 0, calls = 0;
	struct trainer x;
	int n;

	(void)state;
	set_up(&x, "ref", JM_F32, 1, 3, true);
	assert_ok(jm_profile_start(x.program, &err), err);
	step(&x, 0);
	step(&x, 1);
	n = jm_profile_kinds(x.program, line, 64);
	assert_true(n > 10);
	for (int i = 0; i < n; i++) {
		assert_true(line[i].seconds > 0 && (!i || line[i].seconds <= line[i - 1].seconds));
		flops += line[i].flops;
		calls += line[i].calls;
	}
	assert_near(flops, x.program->flops_executed, 1);
	assert_near(calls, 3 * x.program->n_micro + x.program->n_units - x.program->n_micro, 0);
	tear_down(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accumulation),
		cmocka_unit_test(test_accumulation_exact),
		cmocka_unit_test(test_recompute),
		cmocka_unit_test(test_birth),
		cmocka_unit_test(test_profile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
