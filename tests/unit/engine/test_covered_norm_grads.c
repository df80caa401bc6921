/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend, made from ref, that takes the gradient of a convolution's image together with that of
 * the norm before it: the gradient between both is not stored, and what the norm saved is found.
 * Losses are those of ref.
 */
#include <stdlib.h>

#include "kit/engine_kit.h"
#include "kit/test.h"
#include "engine/run/start_values.h"

#define STEPS 3

extern const struct jm_backend jm_backend_ref;

static struct {
	int inner, last; /* pairs whose gradient has no memory, or is not read again */
} seen;

/* An exec: ref's of one node, or of both, with the gradient between them. */
struct pair {
	struct jm_node node[2];
	struct jm_tensor between;
	void *own;
	struct kit_parts parts;
};

static bool is_pair(const struct jm_group *group)
{
	return group->n_nodes == 2 && group->node[0]->op == JM_OP_CONV_DGRAD &&
	       group->node[1]->op == JM_OP_BN_GRAD;
}

static int pair_select(
	void *dev, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err)
{
	const struct jm_tensor *d = group->node[0]->out[0];
	int n;

	if (group->n_nodes > 1 && !(is_pair(group) && (d->is_virtual || d->is_last)))
		return 0;
	n = kit_parts_select(dev, group, choice, err);
	if (group->node[0]->op == JM_OP_BN_APPLY)
		choice->saved = 4;
	return n;
}

static void build_pair(struct pair *h, const struct jm_group *group)
{
	struct jm_tensor *d = group->node[0]->out[0];

	assert_non_null(group->fwd);
	assert_non_null(group->fwd->saved);
	assert_int_equal(group->fwd->node[0]->op, JM_OP_BN_APPLY);
	h->between = *d;
	if (d->is_virtual) {
		h->between.is_virtual = false;
		h->between.data = h->own = malloc(d->bytes);
		assert_non_null(h->own);
	}
	seen.inner += d->is_virtual;
	seen.last += d->is_last;
	h->node[0].out[0] = h->node[1].in[0] = &h->between;
}

static int pair_build(void *dev, const struct jm_group *group, const struct jm_choice *choice,
	void **ret_exec, struct jm_err *err)
{
	struct pair *h = calloc(1, sizeof(*h));
	struct jm_group own = *group;

	assert_non_null(h);
	for (int i = 0; i < group->n_nodes; i++) {
		h->node[i] = *group->node[i];
		own.node[i] = &h->node[i];
	}
	if (is_pair(group))
		build_pair(h, group);
	*ret_exec = h;
	return kit_parts_build(&h->parts, dev, &own, choice, err);
}

/* Leaves no gradient between both nodes: all its bits are set. */
static int pair_run(void *dev, void *exec, struct jm_err *err)
{
	struct pair *h = exec;
	int code = kit_parts_run(&h->parts, dev, err);

	if (h->parts.n == 2)
		memset(h->between.data, 0xff, h->between.bytes);
	return code;
}

static void pair_drop(void *dev, void *exec)
{
	struct pair *h = exec;

	if (!h)
		return;
	kit_parts_drop(&h->parts, dev);
	free(h->own);
	free(h);
}

static void train(struct jm_device *device, double *ret_loss)
{
	static const char *const net[] = {"resnet18", "hidden=4", "image=32", "classes=5", NULL};
	struct jm_program *p = kit_plan(net,
		&(struct jm_training){.batch = 2,
			.precision = JM_F32,
			.micro_steps = 1,
			.keep_all = true,
			.adamw = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1}},
		device);
	struct jm_graph *g = p->graph;
	static float pixels[2 * 3 * 32 * 32], data[3] = {0.01F, 0.1F, 0.01F};
	const int32_t target[2] = {1, 3};
	struct jm_err err = JM_ERR_INIT;
	float loss;

	for (size_t i = 0; i < sizeof(pixels) / sizeof(*pixels); i++)
		pixels[i] = (float)(i * 37 % 101) / 50 - 1;
	assert_ok(jm_program_build(p, &err), err);
	assert_ok(jm_program_init(p, 5, &err), err);
	assert_ok(jm_program_write(p, jm_graph_find(g, "image"), pixels, &err), err);
	assert_ok(jm_program_write(p, jm_graph_find(g, "target"), target, &err), err);
	assert_ok(jm_program_write(p, jm_graph_find(g, "adamw.now"), data, &err), err);
	for (int s = 0; s < STEPS; s++) {
		assert_ok(jm_program_run(p, &err), err);
		assert_ok(jm_program_read(p, jm_graph_find(g, "loss"), &loss, &err), err);
		ret_loss[s] = (double)loss;
	}
	kit_plan_free(p);
}

static void the_gradient_between_is_not_read_again(void **unused)
{
	struct jm_backend backend = jm_backend_ref;
	struct jm_device ref, pairing;
	struct jm_err err = JM_ERR_INIT;
	double expected[STEPS], loss[STEPS];

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &ref, &err), err);
	backend.select = pair_select;
	backend.build = pair_build;
	backend.run = pair_run;
	backend.drop = pair_drop;
	pairing = ref;
	pairing.backend = &backend;
	train(&ref, expected);
	train(&pairing, loss);
	assert_memory_equal(loss, expected, sizeof(loss));
	assert_true(loss[0] > 0 && loss[STEPS - 1] != loss[0]);
	assert_int_equal(seen.inner, 8); /* one in each block */
	/* the inputs of blocks, except that of the first and of those whose norm is one of a
	 * pair */
	assert_int_equal(seen.last, 7 - 3);
	jm_device_close(&ref);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_gradient_between_is_not_read_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
