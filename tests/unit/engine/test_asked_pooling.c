/* SPDX-License-Identifier: Apache-2.0 */
/* A backend that saves what the gradient of a max pooling needs, made from ref: the operand is then
 * not kept. */
#include <stdlib.h>

#include "kit/engine_kit.h"
#include "kit/test.h"
#include "engine/run/start_values.h"

#define STEPS 3

extern const struct jm_backend jm_backend_ref;

/* An exec: ref's, the x of a max pooling, and where its copy is. */
struct pooler {
	struct jm_group group;
	struct jm_node node;
	struct jm_tensor kept;
	const struct jm_tensor *x;
	void *saved, *exec;
};

static int pool_select(
	void *dev, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err)
{
	int n = jm_backend_ref.select(dev, group, choice, err);

	if (group->node[0]->op == JM_OP_MAXPOOL)
		choice->saved = group->node[0]->in[0]->bytes;
	if (group->node[0]->op == JM_OP_MAXPOOL_GRAD)
		choice->unread[0] = 1 << 1;
	return n;
}

/* It does not say that its gradient reads what was saved. */
static int silent_select(
	void *dev, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err)
{
	int n = pool_select(dev, group, choice, err);

	memset(choice->unread, 0, sizeof(choice->unread));
	return n;
}

/* Its gradient reads the copy: x itself may be gone. */
static int pool_build(void *dev, const struct jm_group *group, const struct jm_choice *choice,
	void **ret_exec, struct jm_err *err)
{
	struct pooler *h = calloc(1, sizeof(*h));

	h->group = *group;
	h->node = *group->node[0];
	if (group->n_nodes == 1)
		h->group.node[0] = &h->node;
	if (h->node.op == JM_OP_MAXPOOL) {
		h->x = h->node.in[0];
		h->saved = group->saved;
	}
	if (h->node.op == JM_OP_MAXPOOL_GRAD) {
		h->kept = *h->node.in[1];
		h->kept.data = group->fwd->saved;
		h->node.in[1] = &h->kept;
	}
	*ret_exec = h;
	return jm_backend_ref.build(dev, &h->group, choice, &h->exec, err);
}

static int pool_run(void *dev, void *exec, struct jm_err *err)
{
	struct pooler *h = exec;
	int code = jm_backend_ref.run(dev, h->exec, err);

	if (h->x)
		memcpy(h->saved, h->x->data, h->x->bytes);
	return code;
}

static void pool_drop(void *dev, void *exec)
{
	struct pooler *h = exec;

	if (h)
		jm_backend_ref.drop(dev, h->exec);
	free(h);
}

static struct jm_program *plan_resnet(struct jm_device *device, const struct jm_remake *how)
{
	static const char *const net[] = {"resnet18", "hidden=4", "image=32", "classes=5", NULL};

	return kit_plan(net,
		&(struct jm_training){.batch = 2,
			.precision = JM_F32,
			.micro_steps = 1,
			.keep_all = !how,
			.remake = how ? *how : (struct jm_remake){0},
			.adamw = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1}},
		device);
}

/* The unit that reads x last, or -1, and the unit of the gradient of max pooling. */
static void find_pooling(const struct jm_program *p, int *ret_last, int *ret_grad)
{
	*ret_grad = -1;
	for (int u = 0; u < p->n_units; u++) {
		const struct jm_node *n = p->unit[u]->group.node[0];

		if (n->op == JM_OP_MAXPOOL)
			*ret_last = jm_graph_cell(p->graph, n->in[0])->last;
		if (n->op == JM_OP_MAXPOOL_GRAD)
			*ret_grad = u;
	}
	assert_true(*ret_grad > 0);
}

static void run_resnet(struct jm_program *p, double *ret_loss)
{
	struct jm_graph *g = p->graph;
	struct jm_tensor *image = jm_graph_find(g, "image"), *now = jm_graph_find(g, "adamw.now");
	static float pixels[2 * 3 * 32 * 32], data[3] = {0.01F, 0.1F, 0.01F};
	const int32_t target[2] = {1, 3};
	struct jm_err err = JM_ERR_INIT;
	float loss;

	assert_int_equal(image->bytes, sizeof(pixels));
	for (size_t i = 0; i < sizeof(pixels) / sizeof(*pixels); i++)
		pixels[i] = (float)(i * 37 % 101) / 50 - 1;
	assert_ok(jm_program_build(p, &err), err);
	assert_ok(jm_program_init(p, 5, &err), err);
	assert_ok(jm_program_write(p, image, pixels, &err), err);
	assert_ok(jm_program_write(p, jm_graph_find(g, "target"), target, &err), err);
	assert_ok(jm_program_write(p, now, data, &err), err);
	for (int s = 0; s < STEPS; s++) {
		assert_ok(jm_program_run(p, &err), err);
		assert_ok(jm_program_read(p, jm_graph_find(g, "loss"), &loss, &err), err);
		ret_loss[s] = (double)loss;
	}
}

/* Where a backend saves for max pooling, x is not kept for its gradient, and losses are the same
 * bits. */
static void pooling_does_not_keep_its_operand(void **unused)
{
	const struct jm_remake less = {.positions = true};
	struct jm_backend backend = jm_backend_ref;
	struct jm_device ref, pooling;
	struct jm_err err = JM_ERR_INIT;
	int last, grad;

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &ref, &err), err);
	backend.select = pool_select;
	backend.build = pool_build;
	backend.run = pool_run;
	backend.drop = pool_drop;
	pooling = ref;
	pooling.backend = &backend;
	for (int i = 0; i < 2; i++) {
		struct jm_program *a = plan_resnet(&ref, NULL);
		struct jm_program *b = plan_resnet(&pooling, i ? &less : NULL);
		double losses_a[STEPS], losses_b[STEPS];

		find_pooling(a, &last, &grad);
		assert_int_equal(last, grad);
		find_pooling(b, &last, &grad);
		assert_true(last >= 0 && last < grad / 2);
		run_resnet(a, losses_a);
		run_resnet(b, losses_b);
		assert_memory_equal(losses_b, losses_a, sizeof(losses_a));
		assert_true(losses_b[0] > 0 && losses_b[STEPS - 1] != losses_b[0]);
		kit_plan_free(a);
		kit_plan_free(b);
	}
	jm_device_close(&ref);
}

/* x is kept unless the backend says of the gradient that it is not read, and saves something. */
static void an_operand_is_kept_unless_the_backend_says_otherwise(void **unused)
{
	struct jm_backend backend = jm_backend_ref;
	struct jm_device silent;
	struct jm_err err = JM_ERR_INIT;
	struct jm_program *p;
	int last, grad;

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &silent, &err), err);
	backend.select = silent_select;
	silent.backend = &backend;
	p = plan_resnet(&silent, NULL);
	find_pooling(p, &last, &grad);
	assert_int_equal(last, grad);
	kit_plan_free(p);
	jm_device_close(&silent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pooling_does_not_keep_its_operand),
		cmocka_unit_test(an_operand_is_kept_unless_the_backend_says_otherwise),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
