/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backends with special requests, made from ref: one requests unusual layouts and refuses to add,
 * one requests memory, one records. Each must give exactly the losses of ref.
 */
#include <stdlib.h>

#include "kit/engine_kit.h"
#include "kit/test.h"
#include "engine/run/start_values.h"

#define STEPS 3

extern const struct jm_backend jm_backend_ref;

/* ---- a small GPT, trained for a few steps ---------------------------------------------------- */

static const char *const small[] = {"gpt", "layers=2", "hidden=12", "heads=2", "ffn=20", "vocab=19",
	"context=10", "positions=rotary", NULL};

static struct jm_program *plan_gpt(
	struct jm_device *device, enum jm_dtype precision, int micro_steps, bool recompute)
{
	return kit_plan(small,
		&(struct jm_training){.batch = 2,
			.precision = precision,
			.micro_steps = micro_steps,
			.recompute = recompute,
			.adamw = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1}},
		device);
}

static bool pending; /* the recording backend has started work that was not waited for */

static void train(struct jm_program *p, double *ret_loss)
{
	struct jm_graph *g = p->graph;
	struct jm_tensor *now = jm_graph_find(g, "adamw.now"), *loss = jm_graph_find(g, "loss");
	struct jm_err err = JM_ERR_INIT;
	int32_t ids[20];
	double data[3];

	for (int i = 0; i < 20; i++)
		ids[i] = i * 7 % 19;
	assert_ok(jm_program_build(p, &err), err);
	assert_ok(jm_program_init(p, 5, &err), err);
	assert_ok(jm_program_write(p, jm_graph_find(g, "ids"), ids, &err), err);
	assert_ok(jm_program_write(p, jm_graph_find(g, "target"), ids, &err), err);
	for (int s = 0; s < STEPS; s++) {
		double value[3] = {0.01, 1 - pow(0.9, s + 1), 1 - pow(0.99, s + 1)};

		for (int i = 0; i < 3; i++)
			jm_element_set(now->type, data, i, value[i]);
		assert_ok(jm_program_write(p, now, data, &err), err);
		assert_ok(jm_program_run(p, &err), err);
		assert_false(pending);
		assert_ok(jm_program_read(p, loss, data, &err), err);
		ret_loss[s] = jm_element_get(loss->type, data, 0);
	}
}

static int count_units(const struct jm_program *p, enum jm_op op)
{
	int n = 0;

	for (int i = 0; i < p->n_units; i++)
		n += p->unit[i]->group.node[0]->op == op;
	return n;
}

/* ---- a backend that asks for layouts: ref, after copies to plain layouts --------------------- */

/* Rows in blocks of 4, columns slowest. */
static const struct jm_layout odd = {
	.rank = 2, .order = {1, 0}, .n_blocks = 1, .block_dim = {0}, .block = {4}};

/* An exec: the group with a plain copy of the odd operand. */
struct fussy {
	struct jm_group group;
	struct jm_node node;
	struct jm_tensor plain;
	const struct jm_tensor *odd;
	void *exec;
};

static bool wants_odd(const struct jm_node *n)
{
	return n->op == JM_OP_LINEAR || n->op == JM_OP_LINEAR_DGRAD;
}

static int fussy_select(
	void *dev, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err)
{
	int n = jm_backend_ref.select(dev, group, choice, err);

	if (group->node[0]->accumulate) {
		jm_err_set(err, JM_ENOSUP, "It does not add.");
		return 0;
	}
	if (n && wants_odd(group->node[0]))
		choice->in[0][1] = odd;
	return n;
}

static int fussy_build(void *dev, const struct jm_group *group, const struct jm_choice *choice,
	void **ret_exec, struct jm_err *err)
{
	struct fussy *f = calloc(1, sizeof(*f));

	f->group = *group;
	f->node = *group->node[0];
	f->group.node[0] = &f->node;
	if (wants_odd(&f->node)) {
		f->odd = f->node.in[1];
		assert_memory_equal(&f->odd->layout, &odd, sizeof(odd));
		f->plain = *f->odd;
		f->plain.layout = (struct jm_layout){0};
		f->plain.data = malloc(f->plain.bytes);
		f->node.in[1] = &f->plain;
	}
	*ret_exec = f;
	return jm_backend_ref.build(dev, &f->group, choice, &f->exec, err);
}

static int fussy_run(void *dev, void *exec, struct jm_err *err)
{
	struct fussy *f = exec;

	for (int64_t i = 0; f->odd && i < f->plain.dim[0]; i++)
		for (int64_t j = 0; j < f->plain.dim[1]; j++)
			jm_element_set(f->plain.type, f->plain.data, i * f->plain.dim[1] + j,
				jm_element_get(f->odd->type, f->odd->data,
					jm_layout_offset(f->odd, &odd, DIMS(i, j))));
	return jm_backend_ref.run(dev, f->exec, err);
}

static void fussy_drop(void *dev, void *exec)
{
	struct fussy *f = exec;

	(void)dev;
	if (f)
		free(f->plain.data);
	free(f);
}

/* The bytes that are read and written without conversion, padding included. */
static void check_bytes(const struct jm_program *p)
{
	int padded = 0;

	for (int u = 0; u < p->n_units; u++) {
		const struct jm_node *n = p->unit[u]->group.node[0];
		size_t bytes = n->out[0]->bytes;

		if (!wants_odd(n))
			continue;
		for (int i = 0; i < n->n_in; i++)
			bytes += n->in[i] ? n->in[i]->bytes : 0;
		assert_near(n->bytes, (double)bytes, 0);
		padded += n->in[1]->dim[0] % 4 != 0;
	}
	assert_true(padded > 0);
}

static void compare_with_fussy(enum jm_dtype precision)
{
	struct jm_backend backend = jm_backend_ref;
	struct jm_device ref, fussy;
	struct jm_err err = JM_ERR_INIT;
	struct jm_program *a, *b;
	double losses_b[STEPS], losses_a[STEPS];

	assert_ok(jm_device_open("ref", 0, &ref, &err), err);
	fussy = ref;
	backend.select = fussy_select;
	backend.build = fussy_build;
	backend.run = fussy_run;
	backend.drop = fussy_drop;
	fussy.backend = &backend;
	a = plan_gpt(&ref, precision, 1, false);
	b = plan_gpt(&fussy, precision, 1, false);
	assert_true(count_units(b, JM_OP_ADD) > count_units(a, JM_OP_ADD));
	/* In f32 weights are brought into the layout by casts; in bf16 the copies are made so at
	 * once. */
	if (precision == JM_BF16)
		assert_int_equal(count_units(b, JM_OP_CAST), count_units(a, JM_OP_CAST));
	else
		assert_true(count_units(b, JM_OP_CAST) > count_units(a, JM_OP_CAST));
	check_bytes(b);
	train(a, losses_a);
	train(b, losses_b);
	for (int s = 0; s < STEPS; s++)
		assert_near(losses_b[s], losses_a[s], precision == JM_F64 ? 1e-12 : 1e-3);
	assert_true(losses_b[STEPS - 1] < losses_b[0]);
	kit_plan_free(a);
	kit_plan_free(b);
	jm_device_close(&ref);
}

static void odd_layouts_and_no_sums(void **unused)
{
	(void)unused;
	compare_with_fussy(JM_F64);
	compare_with_fussy(JM_BF16);
}

/* ---- a backend that wants memory ------------------------------------------------------------- */

#define SCRATCH 1000 /* bytes, and what ref asks for */
#define SAVED	100

static int
	from_duplicates; /* gradients that were built to read what a second run of their node saves */

/* An exec: ref's, and the memory of the group and of the forward group's. */
struct hoarder {
	void *exec;
	unsigned char *scratch, *saved, *found;
	size_t n_scratch;
	unsigned char mark, expected; /* in all of saved, in all of found */
};

static bool is_forward(const struct jm_group *group)
{
	return !group->fwd && group->node[0]->op != JM_OP_CAST;
}

static int hoard_select(
	void *dev, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err)
{
	int n = jm_backend_ref.select(dev, group, choice, err);

	choice->scratch += SCRATCH;
	choice->saved = is_forward(group) ? SAVED : 0;
	return n;
}

static unsigned char mark_of(const struct jm_group *group)
{
	return (unsigned char)(1 + group->node[0]->id % 255);
}

static int hoard_build(void *dev, const struct jm_group *group, const struct jm_choice *choice,
	void **ret_exec, struct jm_err *err)
{
	struct hoarder *h = calloc(1, sizeof(*h));

	assert_non_null(group->scratch);
	assert_true((group->saved != NULL) == is_forward(group));
	h->scratch = group->scratch;
	h->n_scratch = choice->scratch;
	h->saved = group->saved;
	h->mark = mark_of(group);
	if (group->fwd) {
		h->found = group->fwd->saved;
		h->expected = mark_of(group->fwd);
		assert_non_null(h->found);
		from_duplicates += group->fwd->node[0]->again;
	}
	*ret_exec = h;
	return jm_backend_ref.build(dev, group, choice, &h->exec, err);
}

/* Scratch is full of anything when it comes, and left so. */
static int hoard_run(void *dev, void *exec, struct jm_err *err)
{
	struct hoarder *h = exec;
	int code = jm_backend_ref.run(dev, h->exec, err);

	memset(h->scratch, 0xff, h->n_scratch);
	for (int i = 0; h->saved && i < SAVED; i++)
		h->saved[i] = h->mark;
	for (int i = 0; h->found && i < SAVED; i++)
		assert_int_equal(h->found[i], h->expected);
	return code;
}

static void hoard_drop(void *dev, void *exec)
{
	struct hoarder *h = exec;

	if (h)
		jm_backend_ref.drop(dev, h->exec);
	free(h);
}

static void memory_is_kept(void **unused)
{
	struct jm_backend backend = jm_backend_ref;
	struct jm_device ref, hoarding;
	struct jm_err err = JM_ERR_INIT;

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &ref, &err), err);
	backend.select = hoard_select;
	backend.build = hoard_build;
	backend.run = hoard_run;
	backend.drop = hoard_drop;
	hoarding = ref;
	hoarding.backend = &backend;
	for (int i = 0; i < 4; i++) {
		struct jm_program *a = plan_gpt(&ref, JM_BF16, 1 + i / 2, i % 2);
		struct jm_program *b = plan_gpt(&hoarding, JM_BF16, 1 + i / 2, i % 2);
		double losses_a[STEPS], losses_b[STEPS];

		from_duplicates = 0;
		train(a, losses_a);
		train(b, losses_b);
		assert_memory_equal(losses_b, losses_a, sizeof(losses_a));
		assert_true((from_duplicates > 0) == (i % 2));
		assert_true(b->class_bytes[JM_CLASS_SAVED] > 10 * (size_t)SAVED);
		kit_plan_free(a);
		kit_plan_free(b);
	}
	jm_device_close(&ref);
}

/* ---- a backend that records: ref, each part of a step as one exec ---------------------------- */

struct tape {
	int n;
	void **exec; /* of ref; NULL: one that was built by itself */
	void *own;
};

static struct {
	int runs, tapes, dropped; /* dropped: units, while tapes of them were still there */
	bool refuses;
} recorder;

static int tape_build(void *dev, const struct jm_group *group, const struct jm_choice *choice,
	void **ret_exec, struct jm_err *err)
{
	struct tape *t = calloc(1, sizeof(*t));

	*ret_exec = t;
	return jm_backend_ref.build(dev, group, choice, &t->own, err);
}

static int tape_capture(void *dev, void *const *exec, int n, void **ret_exec, struct jm_err *err)
{
	struct tape *t = calloc(1, sizeof(*t));

	(void)dev, (void)err;
	if (recorder.refuses) {
		free(t);
		return 0;
	}
	t->n = n;
	t->exec = calloc((size_t)n, sizeof(*t->exec));
	for (int i = 0; i < n; i++)
		t->exec[i] = ((const struct tape *)exec[i])->own;
	recorder.tapes++;
	*ret_exec = t;
	return 0;
}

static int tape_run(void *dev, void *exec, struct jm_err *err)
{
	const struct tape *t = exec;
	int code = t->own ? jm_backend_ref.run(dev, t->own, err) : 0;

	recorder.runs++;
	pending = true;
	for (int i = 0; i < t->n && !code; i++)
		code = jm_backend_ref.run(dev, t->exec[i], err);
	return code;
}

static int tape_sync(void *dev, struct jm_err *err)
{
	pending = false;
	return jm_backend_ref.sync(dev, err);
}

static void tape_drop(void *dev, void *exec)
{
	struct tape *t = exec;

	if (!t)
		return;
	recorder.tapes -= t->exec != NULL;
	recorder.dropped += t->own && recorder.tapes;
	jm_backend_ref.drop(dev, t->own);
	free(t->exec);
	free(t);
}

/* With two micro-steps copies are made before them: three parts; else two. */
static void compare_with_recorded(
	struct jm_device *ref, struct jm_device *taping, int micro_steps, bool refuses)
{
	struct jm_program *a = plan_gpt(ref, JM_BF16, micro_steps, false), *b;
	double losses_a[STEPS], losses_b[STEPS];

	memset(&recorder, 0, sizeof(recorder));
	recorder.refuses = refuses;
	b = plan_gpt(taping, JM_BF16, micro_steps, false);
	train(a, losses_a);
	train(b, losses_b);
	assert_memory_equal(losses_b, losses_a, sizeof(losses_a));
	assert_int_equal(recorder.tapes, refuses ? 0 : 1 + micro_steps);
	assert_int_equal(recorder.runs, STEPS * (refuses ? b->n_units : 1 + micro_steps));
	kit_plan_free(a);
	kit_plan_free(b);
	assert_int_equal(recorder.dropped, 0);
}

static void parts_are_recorded(void **unused)
{
	struct jm_backend backend = jm_backend_ref;
	struct jm_device ref, taping;
	struct jm_err err = JM_ERR_INIT;

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &ref, &err), err);
	backend.build = tape_build;
	backend.run = tape_run;
	backend.drop = tape_drop;
	backend.capture = tape_capture;
	backend.sync = tape_sync;
	taping = ref;
	taping.backend = &backend;
	for (int micro_steps = 1; micro_steps <= 2; micro_steps++) {
		compare_with_recorded(&ref, &taping, micro_steps, false);
		compare_with_recorded(&ref, &taping, micro_steps, true);
	}
	jm_device_close(&ref);
}

/* ---- a backend that writes gradients in the type of the operands ----------------------------- */

static int narrow_select(
	void *dev, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	bool weights = n->op == JM_OP_LINEAR_WGRAD;

	if (weights && (n->out[0]->type != n->in[0]->type || n->accumulate & 1)) {
		jm_err_set(err, JM_ENOSUP, "Its gradients are as wide as their operands.");
		return 0;
	}
	return jm_backend_ref.select(dev, group, choice, err);
}

/* All of them in bf16, each followed by a node that widens it or adds it up. */
static void narrow_gradients_are_widened(void **unused)
{
	struct jm_backend backend = jm_backend_ref;
	struct jm_device ref, narrow;
	struct jm_err err = JM_ERR_INIT;

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &ref, &err), err);
	backend.select = narrow_select;
	narrow = ref;
	narrow.backend = &backend;
	for (int micro_steps = 1; micro_steps <= 2; micro_steps++) {
		enum jm_op home = micro_steps > 1 ? JM_OP_ADD : JM_OP_CAST;
		struct jm_program *a = plan_gpt(&ref, JM_BF16, micro_steps, false);
		struct jm_program *b = plan_gpt(&narrow, JM_BF16, micro_steps, false);
		double losses_a[STEPS], losses_b[STEPS];
		int n = count_units(a, JM_OP_LINEAR_WGRAD);

		assert_true(n > 3);
		assert_int_equal(count_units(b, JM_OP_LINEAR_WGRAD), n);
		assert_int_equal(count_units(b, home), count_units(a, home) + n);
		for (int u = 0; u < b->n_units; u++)
			if (b->unit[u]->group.node[0]->op == JM_OP_LINEAR_WGRAD)
				assert_int_equal(b->unit[u]->group.node[0]->out[0]->type, JM_BF16);
		train(a, losses_a);
		train(b, losses_b);
		assert_near(losses_b[0], losses_a[0], 0);
		for (int s = 1; s < STEPS; s++)
			assert_near(losses_b[s], losses_a[s], 5e-3);
		assert_true(losses_b[STEPS - 1] < losses_b[0]);
		kit_plan_free(a);
		kit_plan_free(b);
	}
	jm_device_close(&ref);
}

/* ---- a backend that takes the end of the network as one -------------------------------------- */

enum { HEAD = 4 };

static bool is_head(const struct jm_group *group)
{
	return group->n_nodes == HEAD && group->node[1]->op == JM_OP_SOFTMAX_XENT;
}

static size_t head_scratch(const struct jm_group *group)
{
	struct jm_choice choice;
	size_t most = 0;

	for (int i = 0; i < HEAD; i++) {
		struct jm_group one = {.n_nodes = 1, .node = {group->node[i]}};

		choice = (struct jm_choice){0};
		assert_int_equal(jm_backend_ref.select(NULL, &one, &choice, NULL), 1);
		most = choice.scratch > most ? choice.scratch : most;
	}
	return most;
}

/* Memory for the logits, after that of the nodes. */
static int head_select(
	void *dev, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err)
{
	if (!is_head(group))
		return jm_backend_ref.select(dev, group, choice, err);
	assert_true(group->node[0]->out[0]->is_virtual && group->node[1]->out[1]->is_virtual);
	choice->scratch = head_scratch(group) + group->node[0]->out[0]->bytes;
	choice->seconds = choice->flops_executed = NAN;
	return 1;
}

/* Node after node, logits and their gradient in scratch. */
static int head_run(void *dev, void *exec, struct jm_err *err)
{
	const struct jm_group *group = exec;
	struct jm_tensor logits;
	int code = 0;

	if (!is_head(group))
		return jm_backend_ref.run(dev, exec, err);
	logits = *group->node[0]->out[0];
	logits.data = (char *)group->scratch + head_scratch(group);
	for (int i = 0; i < HEAD && !code; i++) {
		struct jm_node n = *group->node[i];
		struct jm_group one = {.n_nodes = 1, .node = {&n}, .scratch = group->scratch};

		if (i)
			n.in[0] = &logits;
		if (i < 2)
			n.out[i] = &logits;
		code = jm_backend_ref.run(dev, &one, err);
	}
	return code;
}

/* Logits and their gradient then need no memory, with parameters kept in bf16 or copied, and no bit
 * changes. */
static void logits_need_no_memory(void **unused)
{
	struct jm_backend backend = jm_backend_ref;
	struct jm_err err = JM_ERR_INIT;
	struct jm_device ref, one;

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &ref, &err), err);
	backend.select = head_select;
	backend.run = head_run;
	one = ref;
	one.backend = &backend;
	for (int i = 0; i < 6; i++) {
		enum jm_dtype type = i % 2 ? JM_BF16 : JM_F32;
		struct jm_program *a = plan_gpt(&ref, type, 1 + (i & 2), i == 5);
		struct jm_program *b = plan_gpt(&one, type, 1 + (i & 2), i == 5);
		double losses_a[STEPS], losses_b[STEPS];

		assert_int_equal(count_units(a, JM_OP_SOFTMAX_XENT), 1);
		assert_int_equal(count_units(b, JM_OP_SOFTMAX_XENT), 0);
		assert_int_equal(b->n_units, a->n_units - HEAD + 1);
		assert_near(b->flops_executed, a->flops_executed, 0);
		train(a, losses_a);
		train(b, losses_b);
		assert_memory_equal(losses_b, losses_a, sizeof(losses_a));
		kit_plan_free(a);
		kit_plan_free(b);
	}
	jm_device_close(&ref);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(narrow_gradients_are_widened),
		cmocka_unit_test(odd_layouts_and_no_sums),
		cmocka_unit_test(memory_is_kept),
		cmocka_unit_test(logits_need_no_memory),
		cmocka_unit_test(parts_are_recorded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
