/* SPDX-License-Identifier: Apache-2.0 */
/* A backend, made from ref, whose filters have channels last: it must give exactly the parameters
 * of ref. One whose gradients of filters are in f32 alone: in bf16 they are those of ref, also as a
 * sum. */
#include <stdlib.h>

#include "kit/engine_kit.h"
#include "kit/test.h"
#include "engine/run/start_values.h"

extern const struct jm_backend jm_backend_ref;

static int count_units(const struct jm_program *p, enum jm_op op)
{
	int n = 0;

	for (int i = 0; i < p->n_units; i++)
		n += p->unit[i]->group.node[0]->op == op;
	return n;
}

static const struct jm_layout last = {.rank = 4, .order = {0, 2, 3, 1}};

/* ref on plain copies of tensors in another layout. */
struct turned {
	struct jm_group group;
	struct jm_node node;
	struct jm_tensor plain[JM_NODE_IN + JM_NODE_OUT];
	const struct jm_tensor *real[JM_NODE_IN + JM_NODE_OUT];
	int n, n_in;
	void *exec;
};

static int last_select(
	void *dev, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	int found = jm_backend_ref.select(dev, group, choice, err);

	if (n->op == JM_OP_CONV || n->op == JM_OP_CONV_DGRAD)
		choice->in[0][1] = last;
	if (n->op == JM_OP_CONV_WGRAD && n->out[0]->class == JM_CLASS_ACT)
		choice->out[0][0] = last;
	if (n->op == JM_OP_CONV_WGRAD && n->out[0]->class == JM_CLASS_GRAD)
		choice->out[0][0] = n->out[0]->layout;
	return found;
}

static void turn(struct turned *x, struct jm_tensor **t)
{
	struct jm_tensor *plain = &x->plain[x->n];

	if (!*t || !(*t)->layout.rank)
		return;
	*plain = **t;
	plain->layout = (struct jm_layout){0};
	plain->data = calloc(1, plain->bytes);
	x->real[x->n++] = *t;
	*t = plain;
}

static int last_build(void *dev, const struct jm_group *group, const struct jm_choice *choice,
	void **ret_exec, struct jm_err *err)
{
	struct turned *x = calloc(1, sizeof(*x));

	x->group = *group;
	x->node = *group->node[0];
	x->group.node[0] = &x->node;
	for (int i = 0; i < x->node.n_in && x->node.op != JM_OP_CAST; i++)
		turn(x, &x->node.in[i]);
	x->n_in = x->n;
	for (int i = 0; i < x->node.n_out && x->node.op != JM_OP_CAST; i++)
		turn(x, &x->node.out[i]);
	*ret_exec = x;
	return jm_backend_ref.build(dev, &x->group, choice, &x->exec, err);
}

static void move(const struct jm_tensor *real, struct jm_tensor *plain, bool to_plain)
{
	int64_t i = 0;

	for (int64_t a = 0; a < real->dim[0]; a++)
		for (int64_t b = 0; b < real->dim[1]; b++)
			for (int64_t c = 0; c < real->dim[2]; c++)
				for (int64_t d = 0; d < real->dim[3]; d++, i++) {
					/* [a][c][d][b] */
					int64_t at = ((a * real->dim[2] + c) * real->dim[3] + d) *
							     real->dim[1] +
						     b;
					void *to = to_plain ? plain->data : real->data;
					void *from = to_plain ? real->data : plain->data;

					jm_element_set(real->type, to, to_plain ? i : at,
						jm_element_get(
							real->type, from, to_plain ? at : i));
				}
}

static int last_run(void *dev, void *exec, struct jm_err *err)
{
	struct turned *x = exec;
	int code;

	for (int i = 0; i < x->n; i++)
		move(x->real[i], &x->plain[i], true);
	code = jm_backend_ref.run(dev, x->exec, err);
	for (int i = x->n_in; i < x->n; i++)
		move(x->real[i], &x->plain[i], false);
	return code;
}

static void last_drop(void *dev, void *exec)
{
	struct turned *x = exec;

	(void)dev;
	for (int i = 0; x && i < x->n; i++)
		free(x->plain[i].data);
	free(x);
}

static const char *const images[] = {
	"resnet", "layers=10", "hidden=4", "image=32", "classes=5", NULL};

static struct jm_program *start(struct jm_device *d, const struct jm_training *t)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_program *p = kit_plan(images, t, d);
	struct jm_tensor *image = jm_graph_find(p->graph, "image");
	void *data = malloc(image->bytes);
	const int32_t target[2] = {1, 3};

	for (int64_t i = 0; i < jm_tensor_count(image); i++)
		jm_element_set(image->type, data, i, sin((double)i));
	assert_ok(jm_program_build(p, &err), err);
	assert_ok(jm_program_init(p, 5, &err), err);
	assert_ok(jm_program_write(p, image, data, &err), err);
	assert_ok(jm_program_write(p, jm_graph_find(p->graph, "target"), target, &err), err);
	free(data);
	return p;
}

static struct jm_program *start_images(
	struct jm_device *d, enum jm_dtype precision, int micro_steps)
{
	return start(d, &(struct jm_training){.batch = 2,
				.precision = precision,
				.micro_steps = micro_steps,
				.adamw = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1}});
}

/* Two steps; every parameter as the host reads it is the same. */
static void step_both(struct jm_program *a, struct jm_program *b)
{
	struct jm_program *both[] = {a, b};
	struct jm_err err = JM_ERR_INIT;
	int turned = 0;

	for (int i = 0; i < 2; i++)
		for (int s = 1; s <= 2; s++) {
			float now[3] = {0.01F, (float)(1 - pow(0.9, s)), (float)(1 - pow(0.99, s))};
			struct jm_tensor *t = jm_graph_find(both[i]->graph, "adamw.now");

			assert_ok(jm_program_write(both[i], t, now, &err), err);
			assert_ok(jm_program_run(both[i], &err), err);
		}
	for (int i = 0; i < a->graph->n_cells; i++) {
		const struct jm_tensor *x = &a->graph->cell[i]->t, *y;
		void *values_b, *values_a;

		if (x->class != JM_CLASS_PARAM || x->rank < 2)
			continue;
		y = jm_graph_find(b->graph, x->name);
		assert_memory_equal(
			&y->layout, &jm_graph_cell(b->graph, y)->grad->layout, sizeof(y->layout));
		turned += y->layout.rank == 4;
		values_a = malloc(x->bytes);
		values_b = malloc(x->bytes);
		assert_ok(jm_program_read(a, x, values_a, &err), err);
		assert_ok(jm_program_read(b, y, values_b, &err), err);
		assert_memory_equal(values_b, values_a, x->bytes);
		free(values_b);
		free(values_a);
	}
	assert_true(turned > 8);
}

/* ref, and ref as a backend that turns filters around. backend: that of the second. */
static void open_both(struct jm_device *ref, struct jm_device *turning, struct jm_backend *backend)
{
	struct jm_err err = JM_ERR_INIT;

	assert_ok(jm_device_open("ref", 0, ref, &err), err);
	*backend = jm_backend_ref;
	backend->select = last_select;
	backend->build = last_build;
	backend->run = last_run;
	backend->drop = last_drop;
	*turning = *ref;
	turning->backend = backend;
}

/* No filter is turned around in a step: neither it nor its gradient nor its compute copy. */
static void filters_lie_as_asked(void **unused)
{
	struct jm_backend backend;
	struct jm_device ref, turning;

	(void)unused;
	open_both(&ref, &turning, &backend);
	for (int i = 0; i < 3; i++) {
		enum jm_dtype precision = i == 1 ? JM_BF16 : JM_F32;
		struct jm_program *a = start_images(&ref, precision, 1 + i / 2);
		struct jm_program *b = start_images(&turning, precision, 1 + i / 2);

		assert_int_equal(count_units(b, JM_OP_CAST), count_units(a, JM_OP_CAST));
		assert_int_equal(b->n_units, a->n_units);
		step_both(a, b);
		kit_plan_free(a);
		kit_plan_free(b);
	}
	jm_device_close(&ref);
}

/* On a device with memory of its own the update writes the compute copies of turned filters, too:
 * none is made in a step. */
static void copies_of_turned_filters_are_kept(void **unused)
{
	struct jm_backend backend;
	struct jm_device ref, turning;
	struct jm_program *a, *b;

	(void)unused;
	open_both(&ref, &turning, &backend);
	turning.props.host_memory = false;
	a = start_images(&ref, JM_BF16, 1);
	b = start_images(&turning, JM_BF16, 1);
	assert_int_equal(a->n_kept, 0);
	assert_int_equal(b->n_kept, 12 + 1); /* the filters, and the classifier */
	for (int i = b->n_kept; i < b->n_units; i++)
		assert_int_not_equal(b->unit[i]->group.node[0]->out[0]->class, JM_CLASS_COPY);
	step_both(a, b);
	kit_plan_free(a);
	kit_plan_free(b);
	jm_device_close(&ref);
}

/* ---- gradients that are written in f32 ------------------------------------------------------- */

static int wide_select(
	void *dev, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];

	if (n->op == JM_OP_CONV_WGRAD && n->out[0]->type != JM_F32)
		return jm_err_set(err, JM_ENOSUP, "Gradients of filters are written in f32.");
	if (n->op == JM_OP_ADD && n->in[0]->type != n->in[1]->type)
		return jm_err_set(err, JM_ENOSUP, "Both operands of a sum have one type.");
	return jm_backend_ref.select(dev, group, choice, err);
}

/* With a rate of 0. */
static struct jm_program *start_pure(struct jm_device *d, int micro_steps)
{
	const float now[8] = {0, 0.1F, 0.01F};
	struct jm_err err = JM_ERR_INIT;
	struct jm_program *p;
	struct jm_tensor *t_now;
	struct jm_training t = {.batch = 2,
		.micro_steps = micro_steps,
		.adamw = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1}};

	assert_ok(jm_precision_set(&t, "bf16-true", &err), err);
	p = start(d, &t);
	t_now = jm_graph_find(p->graph, "adamw.now");
	assert_true(t_now->bytes <= sizeof(now));
	assert_ok(jm_program_write(p, t_now, now, &err), err);
	return p;
}

/* Two micro-steps on the same pictures, whose losses count half each, have the gradients of one. */
static void sums_of_gradients_in_bf16_are_those_of_one_step(void **unused)
{
	struct jm_backend backend = jm_backend_ref;
	struct jm_err err = JM_ERR_INIT;
	struct jm_device ref, wide;
	struct jm_program *one, *sum;
	int compared = 0;

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &ref, &err), err);
	backend.select = wide_select;
	wide = ref;
	wide.backend = &backend;
	one = start_pure(&ref, 1);
	sum = start_pure(&wide, 2);
	assert_ok(jm_program_run(one, &err), err);
	assert_ok(jm_program_begin(sum, &err), err);
	assert_ok(jm_program_micro(sum, &err), err);
	assert_ok(jm_program_micro(sum, &err), err);
	assert_ok(jm_program_update(sum, &err), err);
	assert_ok(jm_device_sync(sum->device, &err), err);
	for (int i = 0; i < one->graph->n_cells; i++) {
		const struct jm_tensor *x = &one->graph->cell[i]->t, *y;
		void *expected, *found;

		if (x->class != JM_CLASS_GRAD || x->rank != 4)
			continue;
		y = jm_graph_find(sum->graph, x->name);
		assert_int_equal(y->type, JM_BF16);
		expected = malloc(x->bytes);
		found = malloc(x->bytes);
		assert_ok(jm_program_read(one, x, expected, &err), err);
		assert_ok(jm_program_read(sum, y, found, &err), err);
		for (int64_t k = 0; k < jm_tensor_count(x); k++)
			assert_near(jm_element_get(JM_BF16, found, k),
				jm_element_get(JM_BF16, expected, k), 1e-9);
		compared++;
		free(expected);
		free(found);
	}
	assert_true(compared > 8);
	kit_plan_free(one);
	kit_plan_free(sum);
	jm_device_close(&ref);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(filters_lie_as_asked),
		cmocka_unit_test(copies_of_turned_filters_are_kept),
		cmocka_unit_test(sums_of_gradients_in_bf16_are_those_of_one_step),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
