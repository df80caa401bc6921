/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rare cases of the cpu backend: an older processor, as far as oneDNN can be limited (with AVX2 it
 * uses kernels that need scratch where newer ones do not), and operations that it must refuse.
 */
#include <stdlib.h>

#include "engine/run/program.h"
#include "kit/engine_kit.h"
#include "kit/test.h"

enum { ROWS = 6, IN = 40, OUT = 33 };

static struct jm_tensor *filled(struct kit *k, int rank, const int64_t *dim)
{
	return kit_out(k, JM_F32, rank, dim, kit_normal(k, JM_F32, 0, 1, rank, dim));
}

/* y += x w^T + bias */
static void add_linear(struct kit *k)
{
	struct jm_tensor *x = kit_normal(k, JM_F32, 0, 1, 2, DIMS(ROWS, IN));
	struct jm_tensor *w = kit_normal(k, JM_F32, 0, 1, 2, DIMS(OUT, IN));
	struct jm_tensor *bias = kit_normal(k, JM_F32, 0, 1, 1, DIMS(OUT));
	struct jm_tensor *y = filled(k, 2, DIMS(ROWS, OUT));

	jm_graph_node(k->graph, JM_OP_LINEAR, OPS(x, w, bias), &y)->accumulate = 1;
	kit_read(k, y);
}

/* Layer norm whose every result is added to. */
static void add_norm(struct kit *k)
{
	struct jm_tensor *x = kit_normal(k, JM_F32, 0.5, 2, 2, DIMS(ROWS, IN));
	struct jm_tensor *gamma = kit_normal(k, JM_F32, 1, 0.2, 1, DIMS(IN));
	struct jm_tensor *y = filled(k, 2, DIMS(ROWS, IN)), *mean = filled(k, 1, DIMS(ROWS)),
			 *rstd = filled(k, 1, DIMS(ROWS));
	struct jm_node *n =
		jm_graph_node(k->graph, JM_OP_LAYERNORM, OPS(x, gamma, NULL), OPS(y, mean, rstd));

	n->attr.norm.eps = 1e-5;
	n->accumulate = JM_ADD_OUT | JM_ADD_NORM_STATS;
	kit_read(k, y);
	kit_read(k, mean);
	kit_read(k, rstd);
}

static bool have_cpu(void)
{
	struct jm_device device;
	bool have = !jm_device_open("cpu", 1, &device, NULL);

	if (have)
		jm_device_close(&device);
	return have;
}

static void same_as_ref(void (*declare)(struct kit *k))
{
	struct jm_err err = JM_ERR_INIT;
	struct kit cpu, ref;

	if (!have_cpu())
		skip();
	kit_init(&cpu, "cpu", JM_F32);
	kit_init(&ref, "ref", JM_F32);
	declare(&cpu);
	declare(&ref);
	assert_ok(kit_run(&cpu, &err), err);
	assert_ok(kit_run(&ref, &err), err);
	for (int r = 0; r < ref.n_results; r++) {
		double *got = kit_values(&cpu, cpu.result[r]),
		       *want = kit_values(&ref, ref.result[r]);

		for (int64_t i = 0; i < jm_tensor_count(ref.result[r]); i++)
			assert_near(got[i], want[i], 1e-4);
		free(got);
		free(want);
	}
	kit_done(&cpu);
	kit_done(&ref);
}

static void sum_with_bias(void **unused)
{
	(void)unused;
	same_as_ref(add_linear);
}

static void sums_of_statistics(void **unused)
{
	(void)unused;
	same_as_ref(add_norm);
}

/* Parameters in f32 with moments in bf16 are nothing that the update knows. */
static void mixed_update(void **unused)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_tensor *g, *now, *p, *m;
	struct kit k;

	(void)unused;
	if (!have_cpu())
		skip();
	kit_init(&k, "cpu", JM_F32);
	g = kit_normal(&k, JM_F32, 0, 1, 1, DIMS(IN));
	now = kit_normal(&k, JM_F32, 1, 0, 1, DIMS(2));
	p = filled(&k, 1, DIMS(IN));
	m = kit_out(&k, JM_BF16, 1, DIMS(IN), kit_normal(&k, JM_BF16, 0, 1, 1, DIMS(IN)));
	jm_graph_node(k.graph, JM_OP_SGD, OPS(g, NULL, now, NULL), OPS(p, m));
	kit_read(&k, p);
	assert_int_equal(kit_run(&k, &err), JM_ENOSUP);
	assert_non_null(strstr(err.text, "one type"));
	kit_done(&k);
}

/* LeakSanitizer trips over the thread-local storage of libraries that are loaded at run time. */
JM_API const char *__lsan_default_options(void);
JM_API const char *__lsan_default_options(void)
{
	return "use_tls=0";
}

/* Filters, also those whose convolution's gradient is added to another one's, lie as the gradient
 * writes them: no forward pass reads a copy in another layout. */
static void filters_are_not_reordered_forward(void **unused)
{
	static const char *const resnet[] = {
		"resnet18", "hidden=16", "image=192", "classes=10", NULL};
	const struct jm_training how = {.batch = 2,
		.micro_steps = 1,
		.adamw = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1}};
	struct jm_program *p;
	struct jm_device d;
	int filters = 0;

	(void)unused;
	if (jm_device_open("cpu", 2, &d, NULL))
		skip();
	p = kit_plan(resnet, &how, &d);
	for (int i = 0; i < p->n_units; i++) {
		const struct jm_node *n = p->unit[i]->group.node[0];

		if (n->op != JM_OP_CONV || n->in[1]->dim[1] < 16)
			continue;
		assert_int_equal(n->in[1]->class, JM_CLASS_PARAM);
		assert_int_equal(n->in[1]->layout.rank, 4);
		filters++;
	}
	assert_int_equal(filters, 19);
	kit_plan_free(p);
	jm_device_close(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sum_with_bias),
		cmocka_unit_test(sums_of_statistics),
		cmocka_unit_test(mixed_update),
		cmocka_unit_test(filters_are_not_reordered_forward),
	};

	setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1); /* read once, when oneDNN is first asked */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
