/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device that works while the host continues (tests/peers/backend_later.c): training gives the
 * same numbers as the synchronous loops, no memory is read or overwritten too early, and the host
 * waits only for the step before the last one.
 */
#include <dlfcn.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "run/workload.h"
#include "base/ctx.h"
#include "kit/test.h"

#define STEPS 7
#define MOST  32

extern const struct jm_workload jm_workload_train;

struct trained {
	int n_losses, n_late; /* late: steps that returned before any was done */
	double loss[MOST];
	int skipped; /* steps that overflowed */
	double held_out[MOST];
	int n_held_out;
	long peak;  /* bytes that were planned */
	long waits; /* of the host for the whole device, in all steps but the first */
};

/* How often the host waited for all that is queued; 0 where the device is not the fake. */
static long host_waits(void)
{
	char path[4096];
	void *library;
	long (*waits)(void);

	snprintf(path, sizeof(path), "%s/later.so", getenv("JM_BACKENDS"));
	library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	if (!library)
		return 0;
	*(void **)&waits = dlsym(library, "jm_fake_later_waits");
	assert_non_null(waits);
	dlclose(library);
	return waits();
}

static void keep(struct trained *t, const struct jm_step *step)
{
	assert_true(step->items > 0);
	t->loss[t->n_losses++] = step->loss;
}

/* option, value..., NULL; the model first */
static void set_options(struct jm_values *values, const char *const *option)
{
	const struct jm_workload *w = &jm_workload_train;
	const struct jm_option *rows;
	struct jm_err err = JM_ERR_INIT;

	assert_ok(jm_values_init(values, w->options, &err), err);
	assert_string_equal(option[0], w->chooser); /* the model brings in further options */
	assert_ok(w->chosen_options(option[1], &rows, &err), err);
	assert_ok(jm_values_add(values, rows, &err), err);
	for (; *option; option += 2)
		assert_ok(jm_values_set(values, option[0], option[1], &err), err);
}

/* Takes STEPS steps; the losses are those of all. */
static void take_steps(struct trained *t, void *state)
{
	const struct jm_workload *w = &jm_workload_train;
	struct jm_err err = JM_ERR_INIT;
	struct jm_step step;
	int code;

	for (int i = 0; i < STEPS; i++) {
		if (i == 1)
			t->waits = -host_waits();
		code = w->step(state, &step, &err);
		if (code < 0)
			fail_msg("%s", err.text);
		if (code)
			t->n_late++;
		else
			keep(t, &step);
	}
	t->waits += host_waits();
	while (!w->finish(state, &step, &err))
		keep(t, &step);
	assert_int_equal(t->n_losses, STEPS);
}

/* What the workload has told about itself. */
static void read_more(struct trained *t, const json_t *more)
{
	const json_t *all = json_object_get(more, "evaluations");

	t->skipped = (int)json_integer_value(
		json_object_get(json_object_get(more, "loss_scale"), "steps_skipped"));
	for (; t->n_held_out < (int)json_array_size(all); t->n_held_out++)
		t->held_out[t->n_held_out] = json_real_value(
			json_object_get(json_array_get(all, (size_t)t->n_held_out), "loss"));
	t->peak = (long)json_integer_value(
		json_object_get(json_object_get(more, "plan"), "peak_bytes"));
}

static struct trained train(const char *device, const char *precision, const char *const *option)
{
	const struct jm_workload *w = &jm_workload_train;
	struct jm_err err = JM_ERR_INIT;
	struct trained t = {0};
	struct jm_values values;
	struct jm_ctx ctx;
	void *state;

	assert_ok(jm_ctx_init(&ctx, &err), err);
	set_options(&values, option);
	struct jm_work work = {.ctx = &ctx,
		.options = &values,
		.device = device,
		.precision = precision,
		.seed = 3,
		.more = json_object()};

	assert_ok(w->setup(&work, &state, &err), err);
	take_steps(&t, state);
	assert_true(w->verify(state, &err) >= 0);
	read_more(&t, work.more);
	json_decref(work.more);
	w->teardown(state);
	jm_values_done(&values);
	return t;
}

static void compare(const char *precision, const char *const *option)
{
	struct trained now = train("ref", precision, option);
	struct trained later = train("later", precision, option);

	assert_int_equal(now.n_late, 0);
	assert_int_equal(later.n_late, 1);
	assert_int_equal(later.waits, 0);
	for (int i = 0; i < STEPS; i++)
		assert_true(now.loss[i] == later.loss[i]);
	assert_true(now.loss[1] != now.loss[2]);
	/* inputs on their way are twice on the device, and planned */
	assert_true(later.peak > now.peak);
}

#define GPT                                                                                        \
	"model", "gpt", "batch", "2", "seq", "8", "layers", "1", "hidden", "16", "heads", "2",     \
		"ffn", "32", "vocab", "256", "context", "16", "positions", "learned", "lr", "0.01"

static void text_has_the_same_losses(void **unused)
{
	(void)unused;
	compare("f32", (const char *const[]){GPT, NULL});
	compare("bf16", (const char *const[]){GPT, "accumulate", "3", "dropout", "0.1",
				"loss-scale", "dynamic:512", NULL});
}

static void images_have_the_same_losses(void **unused)
{
	static const char *const kinds[] = {"once", "fresh"};

	(void)unused;
	for (int i = 0; i < 2; i++)
		compare("f32", (const char *const[]){"model", "resnet", "layers", "10", "image",
				       "32", "batch", "2", "hidden", "4", "classes", "5", "lr",
				       "0.01", "images", kinds[i], NULL});
}

/* Evaluations use the weights after the step, in the arena that training uses too. */
static void evaluations_find_the_same(void **unused)
{
	static const char *const options[] = {GPT, "eval-every", "2", "eval-batches", "3", NULL};
	struct trained now = train("ref", "bf16", options);
	struct trained later = train("later", "bf16", options);

	(void)unused;
	assert_int_equal(now.n_held_out, STEPS / 2);
	assert_int_equal(later.n_held_out, STEPS / 2);
	for (int i = 0; i < STEPS / 2; i++)
		assert_true(now.held_out[i] == later.held_out[i]);
	for (int i = 0; i < STEPS; i++)
		assert_true(now.loss[i] == later.loss[i]);
	assert_true(now.held_out[0] != now.held_out[1]);
}

/* A scale that overflows: skipped steps are seen one step late, and training goes on to the end. */
static void overflows_are_skipped_late(void **unused)
{
	/* gradients that grow by orders of magnitude a step */
	static const char *const options[] = {"model", "resnet", "layers", "10", "hidden", "4",
		"image", "32", "classes", "5", "batch", "4", "optimizer", "sgd", "lr", "500",
		"momentum", "0", "weight-decay", "0", "clip", "0", "loss-scale",
		"dynamic:1267650600228229401496703205376", NULL};
	struct trained now = train("ref", "f32", options);
	struct trained later = train("later", "f32", options);

	(void)unused;
	for (int i = 0; i < STEPS; i++)
		assert_true(isfinite(later.loss[i]));
	assert_true(now.skipped > 0 && later.skipped >= now.skipped);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_has_the_same_losses),
		cmocka_unit_test(images_have_the_same_losses),
		cmocka_unit_test(evaluations_find_the_same),
		cmocka_unit_test(overflows_are_skipped_late),
	};

	use_peer_backends();
	setenv("JM_FAKE_LATER_US", "200", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
