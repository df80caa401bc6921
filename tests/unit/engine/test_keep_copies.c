/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of parameters that the update writes (engine/plan/keep_copies.c), on a device that has
 * memory of its own (tests/peers/backend_later.c): the losses are those of a device that makes the
 * copies in each step, and the copies follow every change of a parameter.
 */
#include <stdio.h>
#include <stdlib.h>

#include "kit/engine_kit.h"
#include "kit/test.h"
#include "engine/run/start_values.h"

#define STEPS 3

static const char *const gpt[] = {"gpt", "layers=2", "hidden=32", "heads=2", "ffn=64", "vocab=64",
	"context=8", "positions=learned", NULL};

struct one {
	struct jm_device device;
	struct jm_program *program;
	int number; /* of the step */
};

static struct jm_training how(enum jm_dtype precision, int micro_steps)
{
	return (struct jm_training){.batch = 2,
		.seq = 8,
		.precision = precision,
		.micro_steps = micro_steps,
		.adamw = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1}};
}

static void start(struct one *x, const char *device, enum jm_dtype precision, int micro_steps)
{
	struct jm_training t = how(precision, micro_steps);
	struct jm_err err = JM_ERR_INIT;

	*x = (struct one){0};
	assert_ok(jm_device_open(device, 1, &x->device, &err), err);
	x->program = kit_plan(gpt, &t, &x->device);
	assert_ok(jm_program_build(x->program, &err), err);
	assert_ok(jm_program_init(x->program, 7, &err), err);
}

static void finish(struct one *x)
{
	struct jm_err err = JM_ERR_INIT;

	assert_ok(jm_device_sync(&x->device, &err), err);
}

static void stop(struct one *x)
{
	finish(x);
	kit_plan_free(x->program);
	jm_device_close(&x->device);
}

static void feed(struct jm_program *p, const char *name, int first)
{
	struct jm_tensor *t = jm_graph_find(p->graph, name);
	struct jm_err err = JM_ERR_INIT;
	int32_t ids[16];

	for (int i = 0; i < 16; i++)
		ids[i] = (first + i) * 7919 % 61;
	assert_ok(jm_program_write(p, t, ids, &err), err);
}

static double read_loss(struct jm_program *p)
{
	struct jm_err err = JM_ERR_INIT;
	float loss;

	assert_ok(jm_program_read(p, jm_graph_find(p->graph, "loss"), &loss, &err), err);
	return (double)loss;
}

static double step_of(struct jm_program *p, int number)
{
	const float now[] = {
		1e-2F, (float)(1 - pow(0.9, number + 1)), (float)(1 - pow(0.99, number + 1))};
	struct jm_err err = JM_ERR_INIT;
	double loss = 0;

	assert_ok(jm_program_write(p, jm_graph_find(p->graph, "adamw.now"), now, &err), err);
	assert_ok(jm_program_begin(p, &err), err);
	for (int i = 0; i < jm_program_micro_steps(p); i++) {
		feed(p, "ids", 50 * number + 9 * i);
		feed(p, "target", 50 * number + 9 * i + 1);
		assert_ok(jm_program_micro(p, &err), err);
		loss += read_loss(p);
	}
	assert_ok(jm_program_update(p, &err), err);
	return loss;
}

static double step(struct one *x)
{
	return step_of(x->program, x->number++);
}

static void check_copies(struct one *x, enum jm_dtype type)
{
	int checked = 0;

	finish(x);
	for (int i = 0; i < x->program->n_kept; i++) {
		const struct jm_node *n = x->program->unit[i]->group.node[0];

		assert_int_equal(n->out[0]->type, type);
		for (int64_t k = 0; k < jm_tensor_count(n->in[0]); k++, checked++) {
			char rounded[8];

			jm_element_set(type, rounded, 0, (double)((float *)n->in[0]->data)[k]);
			assert_memory_equal(rounded, (char *)n->out[0]->data + 2 * k, 2);
		}
	}
	assert_true(checked > 0);
}

static void add_one(struct one *x, const char *name)
{
	struct jm_tensor *t = jm_graph_find(x->program->graph, name);
	struct jm_err err = JM_ERR_INIT;
	float *data = malloc(t->bytes);

	assert_ok(jm_program_read(x->program, t, data, &err), err);
	data[5] += 1;
	assert_ok(jm_program_write(x->program, t, data, &err), err);
	free(data);
}

static void same_losses(enum jm_dtype precision, int micro_steps)
{
	struct one each, kept;

	start(&each, "ref", precision, micro_steps);
	start(&kept, "later", precision, micro_steps);
	assert_int_equal(each.program->n_kept, 0);
	assert_int_equal(kept.program->n_kept, 2 * 4 + 1);
	assert_int_equal(jm_program_times(kept.program, 0), 0);
	for (int i = kept.program->n_kept; i < kept.program->n_units; i++)
		assert_int_not_equal(
			kept.program->unit[i]->group.node[0]->out[0]->class, JM_CLASS_COPY);
	for (int i = 0; i < STEPS; i++) {
		double loss = step(&each);

		assert_true(loss == step(&kept));
		check_copies(&kept, precision);
	}
	add_one(&each, "h1.mlp.in.weight");
	add_one(&kept, "h1.mlp.in.weight");
	assert_true(step(&each) == step(&kept));
	check_copies(&kept, precision);
	assert_true(step(&each) == step(&kept));
	stop(&each);
	stop(&kept);
}

static void copies_follow_the_update(void **unused)
{
	(void)unused;
	same_losses(JM_BF16, 1);
	same_losses(JM_BF16, 3);
	same_losses(JM_F16, 1);
}

/* A second program with its own update trains the same parameters. */
static void copies_follow_another_program(void **unused)
{
	struct jm_err err = JM_ERR_INIT;
	double loss[2][STEPS];

	(void)unused;
	for (int d = 0; d < 2; d++) {
		struct jm_training t = how(JM_BF16, 1);
		struct jm_program *other;
		struct jm_values dims;
		struct jm_graph *g;
		struct one x;

		start(&x, d ? "later" : "ref", JM_BF16, 1);
		kit_model(gpt, &t.model, &dims);
		t.dims = &dims;
		assert_ok(jm_model_train(&t, &g, &err), err);
		assert_ok(jm_program_plan_beside(g, x.program, &other, &err), err);
		assert_ok(jm_program_build(other, &err), err);
		for (int i = 0; i < STEPS; i++) {
			loss[d][i] = step(&x);
			loss[d][i] += 10 * step_of(other, x.number++);
		}
		assert_int_equal(other->n_kept, 0);
		assert_int_equal(x.program->n_kept > 0, d);
		finish(&x);
		jm_program_free(other);
		jm_graph_free(g);
		jm_values_done(&dims);
		stop(&x);
	}
	for (int i = 0; i < STEPS; i++)
		assert_true(loss[0][i] == loss[1][i]);
}

static void nothing_is_kept_without_copies(void **unused)
{
	struct one x;

	(void)unused;
	start(&x, "later", JM_F32, 1);
	assert_int_equal(x.program->n_kept, 0);
	assert_null(jm_graph_find(x.program->graph, "update.copies"));
	stop(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_follow_the_update),
		cmocka_unit_test(copies_follow_another_program),
		cmocka_unit_test(nothing_is_kept_without_copies),
	};

	use_peer_backends();
	setenv("JM_FAKE_LATER_OWN_MEMORY", "1", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
