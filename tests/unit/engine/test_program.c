/* SPDX-License-Identifier: Apache-2.0 */
/* Programs: places in memory, bytes, programs that are too large; devices; the table of ops;
 * presets. */
#include <stdio.h>
#include <unistd.h>

#include "engine/device/device.h"
#include "kit/engine_kit.h"
#include "engine/graph/freeze.h"
#include "engine/graph/model.h"
#include "engine/graph/op.h"
#include "kit/test.h"
#include "engine/device/backend_find.h"
#include "engine/plan/arena.h"

static const char *const gpt[] = {"gpt", "layers=2", "hidden=12", "heads=2", "ffn=20", "vocab=19",
	"context=10", "positions=rotary", NULL};
/* Whose parameters leave no gaps between them. */
static const char *const dense[] = {"gpt", "layers=3", "hidden=32", "heads=2", "ffn=64", "vocab=64",
	"context=32", "positions=rotary", NULL};
static const char *const resnet[] = {"resnet18", "hidden=8", "image=32", "classes=10", NULL};

static struct jm_program *plan_gpt(struct jm_device *device, enum jm_dtype precision)
{
	return kit_plan(gpt, &(struct jm_training){.batch = 2, .precision = precision}, device);
}

/* ---- memory ---------------------------------------------------------------------------------- */

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
	return (c->t.class <= JM_CLASS_STATE || c->t.class == JM_CLASS_INPUT ||
		       c->t.class == JM_CLASS_SCALAR) &&
	       !c->own_life;
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

/* Kernels are slower on tensors that begin within a line of memory. */
static void check_blocks(const struct jm_program *p, const struct jm_cell *c)
{
	size_t start = c->offset < p->weight_bytes	 ? 0
		       : c->offset < p->persistent_bytes ? p->weight_bytes
							 : p->persistent_bytes;

	if (c->slab && c->t.rank > 1)
		assert_int_equal((c->offset - start) % 128, 0);
	if (!c->slab && c->t.bytes >= 4096)
		assert_int_equal((c->offset - start) % 512, 0);
}

/* No two tensors alive at the same time share a byte; nothing is placed above the peak. */
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
		check_blocks(p, a);
		end = a->offset + a->t.bytes > end ? a->offset + a->t.bytes : end;
		shared += a->alias != NULL;
		for (int k = 0; k < i; k++)
			if (g->cell[k]->first >= 0 || g->cell[k]->slab)
				check_pair(p, a, g->cell[k]);
	}
	assert_true(end <= p->peak_bytes && p->peak_bytes < end + 64);
	assert_true(shared > 0);
}

/* The tensors alive at the fullest unit, with the bytes of their owners, are listed and fit. */
static void check_live(const struct jm_program *p)
{
	int at;
	size_t most = 0, told = jm_program_live(p, &at);

	for (int u = 0; u < p->n_units; u++) {
		size_t sum = 0;

		for (int i = 0; i < p->graph->n_cells; i++) {
			const struct jm_cell *c = p->graph->cell[i];

			bool owns =
				c->slab ? c->own_life : !c->alias && c->t.class != JM_CLASS_GRAD;

			if (c->first >= 0 && owns && !outlasts_step(c) && c->first <= u &&
				c->last >= u)
				sum += (c->t.bytes + 63) / 64 * 64;
		}
		most = sum > most ? sum : most;
		assert_true(u != at || sum == told);
	}
	assert_int_equal(told, most);
	assert_true(told <= p->arena_bytes);
}

static void check_memory(
	const char *const *model, struct jm_device *d, enum jm_dtype precision, bool recompute)
{
	struct jm_program *p = kit_plan(model,
		&(struct jm_training){.batch = 2, .precision = precision, .recompute = recompute},
		d);

	check_places(p);
	check_live(p);
	kit_plan_free(p);
}

static void memory_is_planned(void **unused)
{
	static const char *const devices[] = {"ref", "cpu"};
	struct jm_err err = JM_ERR_INIT;
	struct jm_device d;

	(void)unused;
	for (int i = 0; i < 2; i++) {
		if (jm_backend_check(devices[i], NULL))
			continue;
		assert_ok(jm_device_open(devices[i], 0, &d, &err), err);
		for (int k = 0; k < 4; k++) {
			check_memory(gpt, &d, k % 2 ? JM_BF16 : JM_F32, k / 2);
			check_memory(resnet, &d, k % 2 ? JM_BF16 : JM_F32, k / 2);
		}
		if (!i)
			check_memory(gpt, &d, JM_F64, false);
		jm_device_close(&d);
	}
}

/* True if activations share memory with gradients. */
static bool shares_with_gradients(const struct jm_program *p)
{
	const struct jm_tensor *slab = jm_graph_find(p->graph, "slab.gradients");
	const struct jm_cell *s = jm_graph_cell(p->graph, slab);

	for (int i = 0; i < p->graph->n_cells; i++) {
		const struct jm_cell *c = p->graph->cell[i];

		if (c->t.class == JM_CLASS_ACT && c->first >= 0 && share_memory(c, s))
			return true;
	}
	return false;
}

static void check_gradients(struct jm_device *d, const struct jm_training *how, bool move)
{
	struct jm_program *p = kit_plan(dense, how, d);

	assert_int_equal(p->gradients_move, move);
	assert_int_equal(shares_with_gradients(p), move);
	check_places(p);
	check_live(p);
	kit_plan_free(p);
}

/* Of one micro-step; those of several add up and have to stay. */
static void gradients_share_memory(void **unused)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_device d;

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &d, &err), err);
	check_gradients(&d, &(struct jm_training){.batch = 2}, true);
	check_gradients(&d, &(struct jm_training){.batch = 2, .recompute = true}, true);
	check_gradients(&d, &(struct jm_training){.batch = 2, .micro_steps = 2}, false);
	check_gradients(
		&d, &(struct jm_training){.batch = 2, .precision = JM_BF16, .pure = true}, true);
	jm_device_close(&d);
}

static bool is_in_view(const struct jm_program *p, const struct jm_tensor *slab, size_t byte)
{
	for (int i = 0; i < p->graph->n_cells; i++) {
		const struct jm_cell *c = p->graph->cell[i];

		if (c->slab == slab && c->made_for && c->slab_offset <= byte &&
			byte < c->slab_offset + c->t.bytes)
			return true;
	}
	return false;
}

/* Bytes of the slab that belong to no gradient; none is a place of another tensor. */
static size_t check_gaps(const struct jm_program *p, const char *data)
{
	const struct jm_tensor *slab = jm_graph_find(p->graph, "slab.gradients");
	const size_t at = jm_graph_cell(p->graph, slab)->offset;
	size_t gaps = 0;

	for (size_t byte = 0; byte < slab->bytes; byte++) {
		if (is_in_view(p, slab, byte))
			continue;
		gaps++;
		assert_int_equal(data[byte], 0);
		for (int i = 0; i < p->graph->n_cells; i++) {
			const struct jm_cell *c = p->graph->cell[i];

			if (c->t.class == JM_CLASS_ACT && c->first >= 0)
				assert_false(c->offset <= at + byte &&
					     at + byte < c->offset + c->t.bytes);
		}
	}
	return gaps;
}

/* Biases of 40 elements fill blocks of 64 bytes but for half of the last one, the table of 61 x 16
 * lines of 128 bytes likewise. A norm of all gradients reads what is between them, where another
 * program may have written. */
static void gaps_between_gradients_are_cleared(void **unused)
{
	static const char *const few[] = {"gpt", "layers=2", "hidden=16", "heads=2", "ffn=40",
		"vocab=61", "context=8", "positions=rotary", NULL};
	static const char *const many[] = {"gpt", "layers=9", "hidden=16", "heads=2", "ffn=40",
		"vocab=61", "context=8", "positions=rotary", NULL};
	struct jm_err err = JM_ERR_INIT;
	struct jm_tensor *slab;
	struct jm_program *p;
	struct jm_device d;
	char *data;

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &d, &err), err);
	p = kit_plan(few, &(struct jm_training){.batch = 2}, &d);
	assert_true(p->gradients_move);
	check_places(p);
	check_live(p);
	assert_ok(jm_program_build(p, &err), err);
	slab = jm_graph_find(p->graph, "slab.gradients");
	data = malloc(slab->bytes);
	memset(data, 1, slab->bytes);
	assert_ok(jm_program_write(p, slab, data, &err), err);
	assert_ok(jm_program_run(p, &err), err);
	assert_ok(jm_program_read(p, slab, data, &err), err);
	assert_int_equal(check_gaps(p, data), 2 * 32 + 64);
	free(data);
	kit_plan_free(p);
	p = kit_plan(many, &(struct jm_training){.batch = 2}, &d);
	assert_false(p->gradients_move || p->n_gaps);
	kit_plan_free(p);
	jm_device_close(&d);
}

/* Gradients that add up start at zero in every step, to the last of several megabytes. */
static void gradients_start_at_zero(void **unused)
{
	static const char *const wide[] = {"gpt", "layers=1", "hidden=128", "heads=2", "ffn=8",
		"vocab=5000", "context=8", "positions=rotary", NULL};
	struct jm_err err = JM_ERR_INIT;
	struct jm_tensor *slab;
	struct jm_program *p;
	struct jm_device d;
	size_t nonzero = 0;
	char *data;

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &d, &err), err);
	p = kit_plan(wide, &(struct jm_training){.batch = 1, .micro_steps = 2}, &d);
	assert_ok(jm_program_build(p, &err), err);
	slab = jm_graph_find(p->graph, "slab.gradients");
	assert_true(slab->bytes > 2500000);
	data = malloc(slab->bytes);
	memset(data, 1, slab->bytes);
	assert_ok(jm_program_write(p, slab, data, &err), err);
	assert_ok(jm_program_begin(p, &err), err);
	assert_ok(jm_program_read(p, slab, data, &err), err);
	for (size_t i = 0; i < slab->bytes; i++)
		nonzero += data[i] != 0;
	assert_int_equal(nonzero, 0);
	free(data);
	kit_plan_free(p);
	jm_device_close(&d);
}

/* Two rows of three ids: a table of four rows is touched once at most, of a hundred rows six
 * are. */
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

/* Gradients are read; parameters and moments read and written. */
static void bytes_of_updates(void **unused)
{
	struct jm_tensor t = {.type = JM_F32, .rank = 1, .dim = {25}, .bytes = 100};
	struct jm_tensor now = {.type = JM_F32, .rank = 1, .dim = {3}, .bytes = 12};
	struct jm_node adamw = {.op = JM_OP_ADAMW, .n_in = 4, .n_out = 3, .in = {&t, NULL, &now}};
	struct jm_node sgd = {.op = JM_OP_SGD, .n_in = 4, .n_out = 2, .in = {&t, NULL, &now}};

	(void)unused;
	for (int i = 0; i < 3; i++)
		adamw.out[i] = sgd.out[i] = &t;
	jm_node_cost(&adamw);
	jm_node_cost(&sgd);
	assert_near(adamw.bytes, 7 * 100 + 12, 0);
	assert_near(sgd.bytes, 5 * 100 + 12, 0);
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
	kit_plan_free(p);
	jm_device_close(&d);
}

/* ---- devices --------------------------------------------------------------------------------- */

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
	expect("ref:-1", JM_EUSAGE, "index");
	expect("ref: 0", JM_EUSAGE, "index");
	expect("ref:0x0", JM_EUSAGE, "index");
	expect("ref:1024", JM_EUSAGE, "index");
	expect("", JM_EUSAGE, "device");
	unlink(path);
	rmdir(folder);
	if (kept)
		setenv("JM_BACKENDS", kept, 1);
	else
		unsetenv("JM_BACKENDS");
	free(kept);
}

/* Plug-ins of another version, or with a function missing, in the folder of the program's own. */
static void plug_ins_that_do_not_fit(void **unused)
{
	const char *before = getenv("JM_BACKENDS"), *build = getenv("JM_BUILD");
	char *kept, path[4096];

	(void)unused;
	if (!build)
		skip();
	kept = before ? strdup(before) : NULL;
	snprintf(path, sizeof(path), "%s/tests/peers", build);
	setenv("JM_BACKENDS", path, 1);
	expect("older", JM_EVERSION, "older.so was built for version");
	expect("older", JM_EVERSION, "build the plug-in from the sources");
	expect("hollow", JM_EBUG, "hollow");
	expect("empty", JM_EBUG, "empty.so gave no backend");
	expect("halfway", JM_EBUG, "all of them or none");
	expect("alien", JM_EFORMAT, "alien");
	if (kept)
		setenv("JM_BACKENDS", kept, 1);
	else
		unsetenv("JM_BACKENDS");
	free(kept);
}

/* ---- the table of ops ------------------------------------------------------------------------ */

/* What the contract says of an op: from its name to the next one's; NULL = nothing. */
static char *told_of(const char *contract, enum jm_op op)
{
	char start[40];
	const char *at, *end;

	snprintf(start, sizeof(start), "\n * %s:", jm_op_name(op));
	at = strstr(contract, start);
	if (!at)
		return NULL;
	for (end = at + 1; (end = strstr(end, "\n *")) && end[3] == '\t'; end++)
		;
	return strndup(at, end ? (size_t)(end - at) : strlen(at));
}

/* Results are laid over operands for the ops of which engine/graph/op_list.h says so, and for no
 * others. */
static void places_as_the_contract_has_them(void **unused)
{
	static char contract[100000];
	const char *source = getenv("JM_SOURCE");
	char path[4096];
	int in_place = 0;
	FILE *f;

	(void)unused;
	if (!source)
		skip();
	snprintf(path, sizeof(path), "%s/engine/graph/op_list.h", source);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_true(fread(contract, 1, sizeof(contract) - 1, f) > 10000);
	fclose(f);
	for (enum jm_op op = 0; op < JM_OP_COUNT; op++) {
		char *told = told_of(contract, op);

		if (!told)
			fail_msg("engine/graph/op_list.h says nothing of %s", jm_op_name(op));
		if ((strstr(told, "in place") != NULL) != (jm_op_row(op)->place_out >= 0))
			fail_msg("%s: its row says %d, the contract:%s", jm_op_name(op),
				jm_op_row(op)->place_out, told);
		in_place += jm_op_row(op)->place_out >= 0;
		free(told);
	}
	assert_true(in_place > 5);
}

/* ---- presets --------------------------------------------------------------------------------- */

/* 6 FLOPs per weight and token, and attention's two products of S x C per layer, half masked, 3
 * times. */
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
	size_t trained, frozen_bytes;
	struct jm_program *p;
	struct jm_graph *g;
	struct jm_values v;

	assert_ok(jm_model_dims(model, preset, NULL, &v, &err), err);
	t.dims = &v;
	assert_ok(jm_model_train(&t, &g, &err), err);
	assert_int_equal(jm_graph_parameters(g), preset->parameters);
	assert_ok(jm_program_plan(g, d, &p, &err), err);
	trained = (size_t)(preset->parameters - jm_freeze_parameters(g, &frozen_bytes));
	assert_true(p->persistent_bytes >= 12 * trained + frozen_bytes);
	assert_true(p->peak_bytes >= 16 * trained + frozen_bytes);
	if (strcmp(model->name, "gpt") != 0) { /* the formula is GPT's */
		jm_values_done(&v);
		kit_plan_free(p);
		return;
	}
	assert_near(p->flops_model / (double)(t.batch * t.seq) /
			    flops_per_token(jm_values_number(&v, "layers"),
				    jm_values_number(&v, "hidden"), jm_values_number(&v, "ffn"),
				    jm_values_number(&v, "vocab"), (double)t.seq),
		1, 1e-12);
	assert_true(p->flops_executed > p->flops_model);
	jm_values_done(&v);
	kit_plan_free(p);
}

static void presets_as_published(void **unused)
{
	struct jm_err err = JM_ERR_INIT;
	const struct jm_model *model;
	const struct jm_preset *preset;
	struct jm_device d;
	int n = 0;

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &d, &err), err);
	for (int i = 0; jm_models[i]; i++)
		for (const struct jm_preset *p = jm_models[i]->presets; p && p->name; p++, n++) {
			assert_ok(jm_model_find(p->name, &model, &preset, &err), err);
			assert_ptr_equal(model, jm_models[i]);
			assert_ptr_equal(preset, p);
			check_preset(&d, jm_models[i], p);
		}
	assert_true(n >= 4);
	assert_int_equal(jm_model_find("gpt-9000", &model, &preset, &err), JM_EUSAGE);
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
		cmocka_unit_test(memory_is_planned),
		cmocka_unit_test(gradients_share_memory),
		cmocka_unit_test(gaps_between_gradients_are_cleared),
		cmocka_unit_test(gradients_start_at_zero),
		cmocka_unit_test(bytes_of_gradients_of_tables),
		cmocka_unit_test(bytes_of_look_ups),
		cmocka_unit_test(bytes_of_updates),
		cmocka_unit_test(too_large_is_said),
		cmocka_unit_test(devices_that_cannot_be),
		cmocka_unit_test(plug_ins_that_do_not_fit),
		cmocka_unit_test(places_as_the_contract_has_them),
		cmocka_unit_test(presets_as_published),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
