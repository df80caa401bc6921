/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Methods that must not change a result: gradients summed over micro-steps, recomputed activations.
 * And reports: where a NaN first appeared, and the profile.
 */
#include <stdio.h>

#include "engine/device/device.h"
#include "kit/engine_kit.h"
#include "engine/graph/model.h"
#include "engine/run/profile.h"
#include "kit/test.h"
#include "engine/device/backend_find.h"
#include "engine/graph/layer_image.h"
#include "engine/graph/layer.h"
#include "engine/run/find_nonfinite.h"
#include "engine/run/start_values.h"
#include "engine/run/profile_start.h"

#define STEPS 3
#define SEQ   8

/* What is kept for the gradients: everything, what is not cheap to make again, what blocks hand
 * on. */
enum keep { ALL, LEAN, BLOCKS };

struct trainer {
	struct jm_values dims;
	struct jm_training t;
	struct jm_device device;
	struct jm_graph *graph;
	struct jm_program *program;
	bool copies_each_time; /* of parameters, in each micro-step instead of once */
};

/* Models at a small size; vit and resnet learn from images. */
static const char *const gpt[] = {"gpt", "layers=3", "hidden=32", "heads=2", "ffn=64", "vocab=64",
	"context=8", "positions=learned", NULL};
static const char *const llama[] = {"llama", "layers=3", "hidden=32", "heads=4", "kv-heads=2",
	"ffn=64", "vocab=64", "context=8", "theta=10000", NULL};
static const char *const vit[] = {"vit", "layers=3", "hidden=32", "heads=2", "ffn=64", "image=16",
	"patch=8", "classes=10", NULL};
static const char *const resnet[] = {"resnet18", "hidden=8", "image=32", "classes=10", NULL};

static int64_t row_multiple; /* of the next trainer's vocabulary; 0 = as the precision asks */

/* false: the device lacks an op of the model. */
static bool start(struct trainer *x, const char *const *model, const char *device,
	enum jm_dtype precision, int batch, int micro_steps, enum keep keep)
{
	struct jm_err err = JM_ERR_INIT;
	int code;

	*x = (struct trainer){
		.t = {.batch = batch,
			.seq = model == gpt || model == llama ? SEQ : 0,
			.precision = precision,
			.micro_steps = micro_steps,
			.recompute = keep == BLOCKS,
			.keep_all = keep == ALL,
			.row_multiple = row_multiple,
			.dropout = model == vit ? 0.2 : 0,
			.adamw = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1}}};
	kit_model(model, &x->t.model, &x->dims);
	x->t.dims = &x->dims;
	assert_ok(jm_device_open(device, 2, &x->device, &err), err);
	assert_ok(jm_model_train(&x->t, &x->graph, &err), err);
	code = jm_program_plan(x->graph, &x->device, &x->program, &err);
	if (code == JM_ENOSUP) {
		print_message("skipped: %s\n", err.text);
		return false;
	}
	assert_ok(code, err);
	assert_ok(jm_program_build(x->program, &err), err);
	assert_ok(jm_program_init(x->program, 7, &err), err);
	return true;
}

static void set_up(struct trainer *x, const char *device, enum jm_dtype precision, int batch,
	int micro_steps, bool recompute)
{
	assert_true(start(x, gpt, device, precision, batch, micro_steps, recompute ? BLOCKS : ALL));
}

static void tear_down(struct trainer *x)
{
	jm_program_free(x->program);
	jm_graph_free(x->graph);
	jm_device_close(&x->device);
	jm_values_done(&x->dims);
}

/* Samples `first` and on of the whole run, whatever the batch. Whole numbers are below 10 for
 * images. */
static void feed(struct trainer *x, const char *name, int first, int shift)
{
	struct jm_tensor *t = jm_graph_find(x->graph, name);
	struct jm_err err = JM_ERR_INIT;
	int64_t n, seq;
	void *data;

	if (!t)
		return;
	n = jm_tensor_count(t);
	seq = n > x->t.batch ? n / x->t.batch : 1;
	data = malloc(t->bytes);
	for (int64_t i = 0; i < n; i++) {
		int64_t k = (first * seq + i + shift) * 7919;

		jm_element_set(t->type, data, i,
			t->type == JM_I32 ? (double)(k % (seq > 1 ? 61 : 10))
					  : (double)(k % 2003) / 1000 - 1);
	}
	assert_ok(jm_program_write(x->program, t, data, &err), err);
	free(data);
}

static double scalar(struct trainer *x, const char *name)
{
	const struct jm_tensor *t = jm_graph_find(x->graph, name);
	struct jm_err err = JM_ERR_INIT;
	double data;

	assert_ok(jm_program_read(x->program, t, &data, &err), err);
	return jm_element_get(t->type, &data, 0);
}

/* Copies the parameters once more, which changes nothing unless other code has overwritten them. */
static void copy_again(struct trainer *x)
{
	struct jm_err err = JM_ERR_INIT;

	for (int i = 0; i < x->program->n_once; i++)
		assert_ok(x->device.backend->run(x->device.dev, x->program->unit[i]->exec, &err),
			err);
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
		feed(x, "random.now", number, i);
		feed(x, "image", number * per_step + i * (int)x->t.batch, 0);
		feed(x, "ids", number * per_step + i * (int)x->t.batch, 0);
		feed(x, "target", number * per_step + i * (int)x->t.batch, 1);
		if (x->copies_each_time)
			copy_again(x);
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

/* ---- vocabularies that fill whole blocks of rows --------------------------------------------- */

/* Tokens are below 61. */
static const char *const odd_gpt[] = {"gpt", "layers=2", "hidden=32", "heads=2", "ffn=64",
	"vocab=61", "context=8", "positions=learned", NULL};
static const char *const odd_llama[] = {"llama", "layers=2", "hidden=32", "heads=4", "kv-heads=2",
	"ffn=64", "vocab=61", "context=8", "theta=10000", NULL};

/* How far two steps are apart at most, with rows as they are and with rows up to a multiple of
 * 64. */
static double padding_matters(const char *const *model, const char *device, enum jm_dtype precision)
{
	struct trainer odd, whole;
	double worst = 0;

	row_multiple = 1;
	assert_true(start(&odd, model, device, precision, 4, 2, ALL));
	row_multiple = 64;
	assert_true(start(&whole, model, device, precision, 4, 2, ALL));
	row_multiple = 0;
	assert_int_equal(jm_graph_find(odd.graph, "tokens.weight")->dim[0], 61);
	assert_int_equal(jm_graph_find(whole.graph, "tokens.weight")->dim[0], 64);
	assert_int_equal(jm_graph_parameters(odd.graph), jm_graph_parameters(whole.graph));
	assert_near(odd.program->flops_model, whole.program->flops_model, 1);
	assert_true(odd.program->flops_executed < whole.program->flops_executed);
	for (int s = 0; s < STEPS; s++) {
		double a = step(&odd, s), b = step(&whole, s);
		double norms[2] = {scalar(&odd, "grad.norm"), scalar(&whole, "grad.norm")};

		worst = fmax(worst, fmax(fabs(a - b), fabs(norms[0] - norms[1])));
	}
	tear_down(&odd);
	tear_down(&whole);
	return worst;
}

static void test_padded_vocabulary(void **state)
{
	(void)state;
	assert_true(padding_matters(odd_gpt, "ref", JM_F64) < 1e-12);
	assert_true(padding_matters(odd_llama, "ref", JM_F64) < 1e-12);
	if (!have("cpu"))
		return;
	assert_true(padding_matters(odd_gpt, "cpu", JM_F32) < 1e-5);
	assert_true(padding_matters(odd_llama, "cpu", JM_BF16) < 2e-3);
}

/* Matrices in 16 bits are multiplied without a copy. */
static void test_padding_by_precision(void **state)
{
	const struct {
		enum jm_dtype type;
		bool pure;
		int64_t rows;
	} how[] = {{JM_F32, false, 61}, {JM_BF16, false, 61}, {JM_BF16, true, 64}};
	struct jm_err err = JM_ERR_INIT;

	(void)state;
	for (size_t i = 0; i < sizeof(how) / sizeof(*how); i++) {
		struct jm_training t = {
			.batch = 1, .seq = SEQ, .precision = how[i].type, .pure = how[i].pure};
		struct jm_graph *g;
		struct jm_values dims;

		kit_model(odd_llama, &t.model, &dims);
		t.dims = &dims;
		assert_ok(jm_model_train(&t, &g, &err), err);
		assert_int_equal(jm_graph_find(g, "tokens.weight")->dim[0], how[i].rows);
		assert_int_equal(jm_graph_find(g, "output.weight")->dim[0], how[i].rows);
		jm_graph_free(g);
		jm_values_done(&dims);
	}
}

static void once_is_enough(
	const char *const *model, const char *device, enum jm_dtype precision, enum keep keep)
{
	struct trainer once, each;

	if (!have(device) || !start(&once, model, device, precision, 2, 4, keep))
		return;
	start(&each, model, device, precision, 2, 4, keep);
	each.copies_each_time = true;
	assert_true(precision == JM_F32 || once.program->n_once > 3);
	for (int s = 0; s < STEPS; s++) {
		assert_true(step(&once, s) == step(&each, s));
		assert_true(scalar(&once, "grad.norm") == scalar(&each, "grad.norm"));
	}
	for (int i = 0; i < once.program->n_units; i++) {
		const struct jm_node *n = once.program->unit[i]->group.node[0];
		bool copy = n->out[0]->class == JM_CLASS_COPY;

		assert_int_equal(copy, i < once.program->n_once);
		assert_int_equal(jm_program_times(once.program, i),
			copy || i >= once.program->n_micro ? 1 : 4);
	}
	tear_down(&once);
	tear_down(&each);
}

static void test_copies_are_made_once(void **state)
{
	static const char *const *const models[] = {gpt, vit, resnet};

	(void)state;
	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++) {
		once_is_enough(models[i], "cpu", JM_F32, ALL);
		once_is_enough(models[i], "cpu", JM_BF16, i ? ALL : BLOCKS);
	}
	once_is_enough(gpt, "ref", JM_BF16, BLOCKS);
}

/* Running statistics are brought forward once in a step, however often their node runs. */
static void same_state(struct trainer *a, struct trainer *b)
{
	struct jm_err err = JM_ERR_INIT;

	for (int i = 0; i < a->graph->n_cells; i++) {
		const struct jm_tensor *t = &a->graph->cell[i]->t;
		char *values_a, *values_b;

		if (t->class != JM_CLASS_STATE)
			continue;
		values_a = malloc(t->bytes);
		values_b = malloc(t->bytes);
		assert_ok(jm_program_read(a->program, t, values_a, &err), err);
		assert_ok(jm_program_read(
				  b->program, jm_graph_find(b->graph, t->name), values_b, &err),
			err);
		assert_memory_equal(values_a, values_b, t->bytes);
		free(values_a);
		free(values_b);
	}
}

static void same_bits(
	const char *const *model, const char *device, enum jm_dtype precision, enum keep keep)
{
	struct trainer kept, again;

	if (!have(device))
		return;
	if (!start(&kept, model, device, precision, 4, 1, ALL) ||
		!start(&again, model, device, precision, 4, 1, keep)) {
		tear_down(&kept);
		return;
	}
	for (int s = 0; s < STEPS; s++) {
		double a = step(&kept, s), b = step(&again, s);

		if (!(a == b))
			fail_msg("%s of %s on %s: step %d: %.17g with all kept, %.17g with "
				 "recompute",
				jm_dtype_name(precision), model[0], device, s, a, b);
		assert_true(scalar(&kept, "grad.norm") == scalar(&again, "grad.norm"));
	}
	same_state(&kept, &again);
	/* of images this small, padding to blocks of channels is most of what oneDNN's plan
	 * holds */
	if (!(model == resnet && !strcmp(device, "cpu")) &&
		again.program->arena_bytes >= kept.program->arena_bytes)
		fail_msg("%s on %s: %zu bytes with all kept, %zu with recompute", model[0], device,
			kept.program->arena_bytes, again.program->arena_bytes);
	assert_near(again.program->flops_model / kept.program->flops_model, 1, 1e-9);
	assert_true(again.program->flops_executed >
		    (keep == BLOCKS ? 1.1 : 0.999) * kept.program->flops_executed);
	tear_down(&kept);
	tear_down(&again);
}

static void test_recompute(void **state)
{
	static const char *const *const models[] = {gpt, llama, vit, resnet};

	(void)state;
	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++)
		for (enum keep keep = LEAN; keep <= BLOCKS; keep++) {
			same_bits(models[i], "ref", JM_F32, keep);
			same_bits(models[i], "cpu", JM_F32, keep);
			same_bits(models[i], "cpu", JM_BF16, keep);
		}
	same_bits(gpt, "ref", JM_BF16, BLOCKS);
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

static void test_find_nonfinite(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct trainer x;
	char where[160];

	(void)state;
	set_up(&x, "ref", JM_F32, 2, 1, false);
	step(&x, 0);
	assert_int_equal(jm_program_find_nonfinite(x.program, where, sizeof(where), &err), 0);
	/* finite, but its product overflows */
	poison(&x, "h1.ln_2.weight", 1e30);
	poison(&x, "h1.mlp.in.weight", 1e30);
	assert_false(isfinite(step(&x, 1)));
	assert_int_equal(jm_program_find_nonfinite(x.program, where, sizeof(where), &err), 1);
	if (!strstr(where, "linear, in its result h1.linear"))
		fail_msg("%s", where);
	poison(&x, "h2.ln_1.bias", NAN);
	assert_int_equal(jm_program_find_nonfinite(x.program, where, sizeof(where), &err), 1);
	assert_non_null(strstr(where, "parameter h2.ln_1.bias was not finite"));
	tear_down(&x);
}

/* Every dropout draws its own numbers; its gradient is a dropout by the same ones. */
static void test_dropout_seeds(void **state)
{
	enum { DROPOUTS = 1 + 2 * 3 }; /* after the patches, and two in each block */
	uint64_t seen[DROPOUTS];
	int n = 0, times[DROPOUTS] = {0};
	struct trainer x;

	(void)state;
	assert_true(start(&x, vit, "ref", JM_F32, 2, 1, ALL));
	for (int i = 0; i < x.graph->n_nodes; i++) {
		const struct jm_node *node = x.graph->node[i];
		int k = 0;

		if (node->op != JM_OP_DROPOUT)
			continue;
		while (k < n && seen[k] != node->attr.dropout.seed)
			k++;
		assert_true(k < DROPOUTS);
		seen[k] = node->attr.dropout.seed;
		n = k < n ? n : k + 1;
		times[k]++;
	}
	assert_int_equal(n, DROPOUTS);
	for (int k = 0; k < n; k++)
		assert_int_equal(times[k], 2);
	tear_down(&x);
}

/* As torch.nn.BatchNorm2d documents them: a tenth of the batch's, the variance without bias. */
static void test_running_statistics(void **state)
{
	static const float image[] = {1, 2, 4, 9, -1, 0, 3, 6};
	const double mean = 3, variance = (4 + 1 + 1 + 36 + 16 + 9 + 0 + 9) / 7.0;
	const int64_t dim[] = {2, 1, 2, 2};
	struct jm_err err = JM_ERR_INIT;
	struct jm_tensor *x;
	struct kit k;
	float value;

	(void)state;
	kit_init(&k, "ref", JM_F32);
	x = jm_graph_input(k.graph, "x", JM_F32, 4, dim);
	jm_graph_batchnorm(k.graph, x, NULL, false, 1e-5, "bn");
	assert_ok(jm_program_plan(k.graph, &k.device, &k.program, &err), err);
	assert_ok(jm_program_build(k.program, &err), err);
	assert_ok(jm_program_init(k.program, 1, &err), err);
	assert_ok(jm_program_write(k.program, x, image, &err), err);
	assert_ok(jm_program_run(k.program, &err), err);
	x = jm_graph_find(k.graph, "bn.running_mean");
	assert_ok(jm_program_read(k.program, x, &value, &err), err);
	assert_near((double)value, 0.1 * mean, 1e-6);
	x = jm_graph_find(k.graph, "bn.running_var");
	assert_ok(jm_program_read(k.program, x, &value, &err), err);
	assert_near((double)value, 0.9 + 0.1 * variance, 1e-6);
	kit_done(&k);
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
	jm_profile_reset(x.program); /* after a warm-up the next step is timed by units */
	step(&x, 1);
	assert_true(isnan(jm_profile_whole(x.program)));
	for (int i = 2; i < 6; i++)
		step(&x, i);
	assert_int_equal(x.program->profile->whole_steps, 2);
	for (int i = x.program->n_kept; i < x.program->n_units; i++)
		assert_int_equal(x.program->profile->runs[i], 3 * jm_program_times(x.program, i));
	assert_true(jm_profile_whole(x.program) > 0);
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

#define MANY 4096

/* p - lr g over bf16 ones, where a step is a sixteenth of the difference that bf16 resolves below
 * 1. */
static void round_some(const char *device, double *ret_mean, double *ret)
{
	const int64_t n = MANY, two = 2;
	struct jm_err err = JM_ERR_INIT;
	struct jm_tensor *p, *m, *g, *now, *sum;
	struct jm_node *node;
	struct kit k;
	double *value;

	kit_init(&k, device, JM_F32);
	p = kit_normal(&k, JM_BF16, 1, 0, 1, &n);
	m = kit_normal(&k, JM_BF16, 0, 0, 1, &n);
	g = kit_normal(&k, JM_F32, 0x1p-12, 0, 1, &n);
	now = kit_normal(&k, JM_F32, 1, 0, 1, &two);
	sum = jm_graph_tensor(k.graph, JM_CLASS_SCALAR, JM_F32, 1, &n, "sum");
	node = jm_graph_node(k.graph, JM_OP_SGD, OPS(g, NULL, now), OPS(p, m));
	jm_graph_node(k.graph, JM_OP_CAST, OPS(p), OPS(sum));
	assert_non_null(node);
	assert_ok(kit_run(&k, &err), err);
	value = kit_values(&k, sum);
	*ret_mean = 0;
	for (int i = 0; i < MANY; i++) {
		assert_true(value[i] == 1 || value[i] == 1 - 0x1p-8);
		*ret_mean += value[i] / MANY;
		ret[i] = value[i];
	}
	free(value);
	kit_done(&k);
}

static void test_stochastic_rounding(void **state)
{
	static double by_ref[MANY], by_cpu[MANY];
	double mean;

	(void)state;
	round_some("ref", &mean, by_ref);
	assert_near(mean, 1 - 0x1p-12, 8e-5); /* 5 deviations; to nearest it would be 1 */
	if (!have("cpu"))
		return;
	round_some("cpu", &mean, by_cpu);
	assert_memory_equal(by_ref, by_cpu, sizeof(by_ref));
}

/* LeakSanitizer trips over the thread-local storage of libraries that are loaded at run time. */
JM_API const char *__lsan_default_options(void);
JM_API const char *__lsan_default_options(void)
{
	return "use_tls=0";
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accumulation),
		cmocka_unit_test(test_accumulation_exact),
		cmocka_unit_test(test_padded_vocabulary),
		cmocka_unit_test(test_padding_by_precision),
		cmocka_unit_test(test_copies_are_made_once),
		cmocka_unit_test(test_recompute),
		cmocka_unit_test(test_find_nonfinite),
		cmocka_unit_test(test_dropout_seeds),
		cmocka_unit_test(test_running_statistics),
		cmocka_unit_test(test_profile),
		cmocka_unit_test(test_stochastic_rounding),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
