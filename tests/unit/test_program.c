/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes: places in memory, layouts, refusals. A backend that wants odd layouts and adds nothing, made
 * from ref, must give ref's very losses.
 */
#include <stdio.h>
#include <unistd.h>

#include "engine/device.h"
#include "engine/kit.h"
#include "engine/model.h"
#include "engine/op.h"
#include "unit/test.h"

#define STEPS 3

/* ---- a backend with wishes: ref, told through plain copies ------------------------------------------- */

extern const struct jm_backend jm_backend_ref;

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

/* ---- a small GPT, trained for a few steps -------------------------------------------------------------- */

static const char *const small[] = {"gpt", "layers=2", "hidden=12", "heads=2", "ffn=20", "vocab=19",
	"context=10", "positions=rotary", NULL};

static struct jm_program *plan_steps(
	struct jm_device *device, enum jm_dtype precision, int micro_steps)
{
	struct jm_training t = {.batch = 2,
		.seq = 10,
		.precision = precision,
		.micro_steps = micro_steps,
		.adamw = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1}};
	struct jm_err err = JM_ERR_INIT;
	struct jm_program *p;
	struct jm_graph *g;
	struct jm_values v;

	kit_model(small, &t.model, &v);
	t.dims = &v;
	assert_ok(jm_model_train(&t, &g, &err), err);
	assert_ok(jm_program_plan(g, device, &p, &err), err);
	jm_values_done(&v);
	return p;
}

static struct jm_program *plan_gpt(struct jm_device *device, enum jm_dtype precision)
{
	return plan_steps(device, precision, 1);
}

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
		assert_ok(jm_program_read(p, loss, data, &err), err);
		ret_loss[s] = jm_element_get(loss->type, data, 0);
	}
}

static void free_gpt(struct jm_program *p)
{
	struct jm_graph *g = p->graph;

	jm_program_free(p);
	jm_graph_free(g);
}

static int count_units(const struct jm_program *p, enum jm_op op)
{
	int n = 0;

	for (int i = 0; i < p->n_units; i++)
		n += p->unit[i]->group.node[0]->op == op;
	return n;
}

static void compare_with_fussy(enum jm_dtype precision)
{
	struct jm_backend backend = jm_backend_ref;
	struct jm_device ref, fussy;
	struct jm_err err = JM_ERR_INIT;
	struct jm_program *a, *b;
	double mine[STEPS], his[STEPS];

	assert_ok(jm_device_open("ref", 0, &ref, &err), err);
	fussy = ref;
	backend.select = fussy_select;
	backend.build = fussy_build;
	backend.run = fussy_run;
	backend.drop = fussy_drop;
	fussy.backend = &backend;
	a = plan_gpt(&ref, precision);
	b = plan_gpt(&fussy, precision);
	assert_true(count_units(b, JM_OP_ADD) > count_units(a, JM_OP_ADD));
	/* In f32 weights are brought into the layout by casts; in bf16 the copies are made so at once. */
	if (precision == JM_BF16)
		assert_int_equal(count_units(b, JM_OP_CAST), count_units(a, JM_OP_CAST));
	else
		assert_true(count_units(b, JM_OP_CAST) > count_units(a, JM_OP_CAST));
	train(a, his);
	train(b, mine);
	for (int s = 0; s < STEPS; s++)
		assert_near(mine[s], his[s], precision == JM_F64 ? 1e-12 : 1e-3);
	assert_true(mine[STEPS - 1] < mine[0]);
	free_gpt(a);
	free_gpt(b);
	jm_device_close(&ref);
}

static void odd_layouts_and_no_sums(void **unused)
{
	(void)unused;
	compare_with_fussy(JM_F64);
	compare_with_fussy(JM_BF16);
}

/* ---- a backend that records: ref, each part of a step as one exec --------------------------------------- */

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
	for (int i = 0; i < t->n && !code; i++)
		code = jm_backend_ref.run(dev, t->exec[i], err);
	return code;
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
	struct jm_program *a = plan_steps(ref, JM_BF16, micro_steps), *b;
	double his[STEPS], mine[STEPS];

	memset(&recorder, 0, sizeof(recorder));
	recorder.refuses = refuses;
	b = plan_steps(taping, JM_BF16, micro_steps);
	train(a, his);
	train(b, mine);
	assert_memory_equal(mine, his, sizeof(his));
	assert_int_equal(recorder.tapes, refuses ? 0 : 1 + micro_steps);
	assert_int_equal(recorder.runs, STEPS * (refuses ? b->n_units : 1 + micro_steps));
	free_gpt(a);
	free_gpt(b);
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
	taping = ref;
	taping.backend = &backend;
	for (int micro_steps = 1; micro_steps <= 2; micro_steps++) {
		compare_with_recorded(&ref, &taping, micro_steps, false);
		compare_with_recorded(&ref, &taping, micro_steps, true);
	}
	jm_device_close(&ref);
}

/* ---- memory -------------------------------------------------------------------------------------------- */

static const struct jm_cell *owner(const struct jm_program *p, const struct jm_cell *c)
{
	while (c->alias)
		c = jm_graph_cell(p->graph, c->alias);
	return c;
}

static bool share_memory(const struct jm_cell *a, const struct jm_cell *b)
{
	return a->offset < b->offset + b->t.bytes && b->offset < a->offset + a->t.bytes;
}

static bool outlasts_step(const struct jm_cell *c)
{
	return c->t.class <= JM_CLASS_OPT || c->t.class == JM_CLASS_INPUT ||
	       c->t.class == JM_CLASS_SCALAR;
}

static bool live_together(const struct jm_cell *a, const struct jm_cell *b)
{
	return outlasts_step(a) || outlasts_step(b) || (a->first <= b->last && b->first <= a->last);
}

static void check_pair(const struct jm_program *p, const struct jm_cell *a, const struct jm_cell *b)
{
	if (owner(p, a) == owner(p, b) || a->slab == &b->t || b->slab == &a->t)
		return;
	if (live_together(a, b) && share_memory(a, b))
		fail_msg("%s (units %d to %d) and %s (%d to %d) overlap", a->t.name, a->first,
			a->last, b->t.name, b->first, b->last);
}

/* No two tensors alive at the same time share a byte; nothing lies beyond the peak. */
static void check_places(const struct jm_program *p)
{
	const struct jm_graph *g = p->graph;
	size_t end = 0;
	int shared = 0;

	for (int i = 0; i < g->n_cells; i++) {
		const struct jm_cell *a = g->cell[i];

		if (a->first < 0 && !a->slab)
			continue;
		assert_int_equal(a->offset % 64, 0);
		end = a->offset + a->t.bytes > end ? a->offset + a->t.bytes : end;
		shared += a->alias != NULL;
		for (int k = 0; k < i; k++)
			if (g->cell[k]->first >= 0 || g->cell[k]->slab)
				check_pair(p, a, g->cell[k]);
	}
	assert_true(end <= p->peak_bytes && p->peak_bytes < end + 64);
	assert_true(shared > 0);
}

/* What is alive at the fullest unit, by the bytes of the owners, is told and fits. */
static void check_live(const struct jm_program *p)
{
	int at;
	size_t most = 0, told = jm_program_live(p, &at);

	for (int u = 0; u < p->n_units; u++) {
		size_t sum = 0;

		for (int i = 0; i < p->graph->n_cells; i++) {
			const struct jm_cell *c = p->graph->cell[i];

			if (c->first >= 0 && !c->alias && !c->slab && !outlasts_step(c) &&
				c->first <= u && c->last >= u)
				sum += (c->t.bytes + 63) / 64 * 64;
		}
		most = sum > most ? sum : most;
		assert_true(u != at || sum == told);
	}
	assert_int_equal(told, most);
	assert_true(told <= p->arena_bytes);
}

static void memory_is_planned(void **unused)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_program *p;
	struct jm_device d;

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &d, &err), err);
	for (int precision = JM_F32; precision <= JM_F64; precision++) {
		p = plan_gpt(&d, (enum jm_dtype)precision);
		check_places(p);
		check_live(p);
		free_gpt(p);
	}
	jm_device_close(&d);
}

/* Two rows of three ids: a table of four rows is touched once at most, of a hundred rows six are. */
static void bytes_of_gradients_of_tables(void **unused)
{
	struct jm_tensor ids = {.type = JM_I32, .rank = 2, .dim = {2, 3}, .bytes = 24};
	struct jm_tensor dy = {.type = JM_F64, .rank = 3, .dim = {2, 3, 5}, .bytes = 240};
	struct jm_tensor table = {.type = JM_F64, .rank = 2, .dim = {4, 5}, .bytes = 160};
	struct jm_node n = {
		.op = JM_OP_EMBED_GRAD, .n_in = 2, .n_out = 2, .in = {&ids, &dy}, .out = {&table}};

	(void)unused;
	jm_node_cost(&n);
	assert_near(n.bytes, 24 + 240 + 160, 0);
	n.accumulate = 1;
	jm_node_cost(&n);
	assert_near(n.bytes, 24 + 240 + 2 * 160, 0);
	table.dim[0] = 100;
	table.bytes = 4000;
	jm_node_cost(&n);
	assert_near(n.bytes, 24 + 240 + 2 * 6 * 5 * 8, 0);
}

static void too_large_is_said(void **unused)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_program *p;
	struct jm_device d;

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &d, &err), err);
	p = plan_gpt(&d, JM_F32);
	d.props.memory_bytes = p->peak_bytes - 1;
	assert_int_equal(jm_program_build(p, &err), JM_ENOMEM);
	assert_sentence(&err, JM_ENOMEM);
	assert_non_null(strstr(err.text, "batch"));
	free_gpt(p);
	jm_device_close(&d);
}

/* ---- devices ------------------------------------------------------------------------------------------- */

static void expect(const char *device, int code, const char *word)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_device d;

	assert_int_equal(jm_device_open(device, 0, &d, &err), code);
	assert_sentence(&err, code);
	if (!strstr(err.text, word))
		fail_msg("'%s' does not say '%s'", err.text, word);
}

static void devices_that_cannot_be(void **unused)
{
	char folder[] = "/tmp/joulemark-backends.XXXXXX", path[64];
	const char *before = getenv("JM_BACKENDS");
	char *kept = before ? strdup(before) : NULL;
	FILE *f;

	(void)unused;
	assert_non_null(mkdtemp(folder));
	setenv("JM_BACKENDS", folder, 1);
	snprintf(path, sizeof(path), "%s/torn.so", folder);
	f = fopen(path, "w");
	assert_non_null(f);
	fclose(f);
	expect("nowhere", JM_ENOENT, "nowhere.so");
	expect("torn", JM_ENOSUP, "torn.so");
	expect("../torn", JM_EUSAGE, "../torn");
	expect("ref:1", JM_ERANGE, "ref:1");
	expect("ref:x", JM_EUSAGE, "index");
	expect("", JM_EUSAGE, "device");
	unlink(path);
	rmdir(folder);
	if (kept)
		setenv("JM_BACKENDS", kept, 1);
	else
		unsetenv("JM_BACKENDS");
	free(kept);
}

/* ---- presets -------------------------------------------------------------------------------------------- */

/* 6 FLOPs per weight and token, and attention's two products of S x C per layer, half masked, 3 times. */
static double flops_per_token(double layers, double hidden, double ffn, double vocab, double seq)
{
	double weights = layers * (4 * hidden * hidden + 2 * hidden * ffn) + vocab * hidden;

	return 6 * weights + 3 * layers * 2 * seq * hidden;
}

static void check_preset(
	struct jm_device *d, const struct jm_model *model, const struct jm_preset *preset)
{
	struct jm_training t = {.model = model, .batch = 2};
	struct jm_err err = JM_ERR_INIT;
	struct jm_program *p;
	struct jm_graph *g;
	struct jm_values v;

	assert_ok(jm_model_dims(model, preset, NULL, &v, &err), err);
	t.dims = &v;
	assert_ok(jm_model_train(&t, &g, &err), err);
	assert_int_equal(jm_graph_parameters(g), preset->parameters);
	assert_ok(jm_program_plan(g, d, &p, &err), err);
	assert_true(p->persistent_bytes >= 16 * (size_t)preset->parameters);
	if (strcmp(model->name, "gpt") != 0) { /* the formula is GPT's */
		jm_values_done(&v);
		free_gpt(p);
		return;
	}
	assert_near(p->flops_model / (double)(t.batch * t.seq) /
			    flops_per_token(jm_values_number(&v, "layers"),
				    jm_values_number(&v, "hidden"), jm_values_number(&v, "ffn"),
				    jm_values_number(&v, "vocab"), (double)t.seq),
		1, 1e-12);
	assert_true(p->flops_executed > p->flops_model);
	jm_values_done(&v);
	free_gpt(p);
}

static void presets_as_published(void **unused)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_device d;
	int n = 0;

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &d, &err), err);
	for (int i = 0; jm_models[i]; i++)
		for (const struct jm_preset *p = jm_models[i]->presets; p && p->name; p++, n++) {
			assert_ptr_equal(jm_model_find_preset(p->name), p);
			check_preset(&d, jm_models[i], p);
		}
	assert_true(n >= 4);
	assert_null(jm_model_find_preset("gpt-9000"));
	jm_device_close(&d);
}

/* A look-up of 6 ids, then of 60: the rows of the table that they name, and no more than it has. */
static void bytes_of_look_ups(void **unused)
{
	struct jm_tensor ids = {.type = JM_I32, .rank = 2, .dim = {2, 3}, .bytes = 24};
	struct jm_tensor table = {.type = JM_BF16, .rank = 2, .dim = {50, 5}, .bytes = 500};
	struct jm_tensor pos = {.type = JM_F32, .rank = 2, .dim = {7, 5}, .bytes = 140};
	struct jm_tensor y = {.type = JM_F32, .rank = 3, .dim = {2, 3, 5}, .bytes = 120};
	struct jm_node n = {.op = JM_OP_EMBED, .n_in = 3, .n_out = 1, .in = {&ids, &table}};

	(void)unused;
	n.out[0] = &y;
	jm_node_cost(&n);
	assert_near(n.bytes, 24 + 6 * 5 * 2 + 120, 0);
	n.in[2] = &pos;
	jm_node_cost(&n);
	assert_near(n.bytes, 24 + 6 * 5 * 2 + 3 * 5 * 4 + 120, 0);
	ids.dim[0] = 20;
	ids.bytes = 240;
	y.bytes = 1200;
	jm_node_cost(&n);
	assert_near(n.bytes, 240 + 500 + 3 * 5 * 4 + 1200, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(odd_layouts_and_no_sums),
		cmocka_unit_test(parts_are_recorded),
		cmocka_unit_test(memory_is_planned),
		cmocka_unit_test(bytes_of_gradients_of_tables),
		cmocka_unit_test(bytes_of_look_ups),
		cmocka_unit_test(too_large_is_said),
		cmocka_unit_test(devices_that_cannot_be),
		cmocka_unit_test(presets_as_published),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
