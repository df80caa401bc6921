/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend, made from ref, that recomputes an activation together with its gradient: losses are
 * those of ref with all results kept, the plan needs less memory, and dropout between both changes
 * nothing. Attention and products that are recomputed: gradients and parameters have the same bits,
 * too.
 */
#include <stdlib.h>
#include <string.h>

#include "kit/engine_kit.h"
#include "engine/device/backend_find.h"
#include "engine/run/program.h"
#include "kit/test.h"
#include "engine/graph/gradient.h"
#include "engine/graph/layer.h"
#include "engine/graph/optimizer.h"
#include "engine/graph/rematerialize.h"
#include "engine/run/start_values.h"

#define STEPS 2

extern const struct jm_backend jm_backend_ref;

static const char *const vit[] = {"vit", "layers=3", "hidden=32", "heads=2", "ffn=96", "image=16",
	"patch=8", "classes=10", NULL};
static const char *const llama[] = {"llama", "layers=3", "hidden=32", "heads=4", "kv-heads=2",
	"ffn=96", "vocab=64", "context=8", "theta=10000", NULL};

static const char *const gpt[] = {"gpt", "layers=3", "hidden=32", "heads=2", "ffn=64", "vocab=64",
	"context=8", "positions=learned", NULL};
static const char *const rotary[] = {"gpt", "layers=3", "hidden=32", "heads=2", "ffn=64",
	"vocab=64", "context=8", "positions=rotary", NULL};

static const char *const xception[] = {"xception", "hidden=4", "image=32", "classes=10", NULL};

/* 16 geglus, behind which there is a layer with a bias. */
static const char *const unet[] = {"unet", "hidden=16", "latent=8", "head-width=8", "norm-groups=4",
	"caption=5", "caption-width=8", NULL};

/* Its last two layers have gelu between them. */
static const char *const fno[] = {"fno", "fields=2", "hidden=6", "layers=2", "points-x=8",
	"points-y=4", "modes-x=2", "modes-y=2", NULL};

static struct {
	int pairs;
	int in_place;	  /* pairs whose results replace the gradient and the operand of both */
	int with_product; /* groups that have the gradient of an activation, without it */
	int hidden;	  /* groups of two layers with nothing stored between, and gradients */
	int sums;	  /* pairs with a layer whose bias has the gradient's sums */
} seen;

static bool is_pair(const struct jm_group *group)
{
	return group->n_nodes >= 2 && group->node[1]->again &&
	       group->node[0]->op == jm_group_gradient(group->node[1]->op);
}

static bool has_sums(const struct jm_group *group)
{
	return group->n_nodes == 3 && group->node[2]->op == JM_OP_LINEAR_WGRAD;
}

/* Two layers, or their gradients, and nothing between them is stored. */
static bool is_hidden(const struct jm_group *group)
{
	const struct jm_node *const *n = group->node;

	if (group->n_nodes == 3)
		return n[0]->op == JM_OP_LINEAR && n[2]->op == JM_OP_LINEAR &&
		       n[0]->out[0]->is_virtual && n[1]->out[0]->is_virtual;
	return group->n_nodes == 8 && n[0]->out[0]->is_virtual && n[1]->out[0]->is_virtual &&
	       n[3]->out[0]->is_virtual && n[4]->out[0]->is_virtual && n[6]->out[0]->is_virtual;
}

static int pair_select(
	void *dev, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err)
{
	if (is_hidden(group))
		return kit_parts_select(dev, group, choice, err);
	seen.with_product += group->n_nodes == 2 && group->node[0]->op == JM_OP_LINEAR_DGRAD;
	if (group->n_nodes > 1 && !is_pair(group))
		return 0;
	return kit_parts_select(dev, group, choice, err);
}

/* The execs of a group; a pair reads a copy of its operand, which the first result may replace. */
struct pair {
	struct kit_parts parts;
	struct jm_node node[2];
	struct jm_tensor x;
	const void *from;
};

static bool in_place(const struct jm_node *grad, const struct jm_node *again)
{
	return again->out[0]->data == grad->in[0]->data && grad->out[0]->data == grad->in[1]->data;
}

static int pair_build(void *dev, const struct jm_group *group, const struct jm_choice *choice,
	void **ret_exec, struct jm_err *err)
{
	struct pair *pair = calloc(1, sizeof(*pair));
	struct jm_group own = *group;

	assert_non_null(pair);
	if (is_pair(group)) {
		assert_ptr_equal(group->node[0]->in[1], group->node[1]->in[0]);
		seen.pairs++;
		seen.in_place += in_place(group->node[0], group->node[1]);
		seen.sums += has_sums(group);
		pair->x = *group->node[0]->in[1];
		pair->from = pair->x.data;
		pair->x.data = malloc(pair->x.bytes);
		assert_non_null(pair->x.data);
		for (int i = 0; i < 2; i++) {
			pair->node[i] = *group->node[i];
			pair->node[i].in[1 - i] = &pair->x;
			own.node[i] = &pair->node[i];
		}
	}
	seen.hidden += group->n_nodes > 2 && !is_pair(group);
	*ret_exec = pair;
	return kit_parts_build(&pair->parts, dev, &own, choice, err);
}

static int pair_run(void *dev, void *exec, struct jm_err *err)
{
	struct pair *pair = exec;

	if (pair->from)
		memcpy(pair->x.data, pair->from, pair->x.bytes);
	return kit_parts_run(&pair->parts, dev, err);
}

static void pair_drop(void *dev, void *exec)
{
	struct pair *pair = exec;

	if (!pair)
		return;
	kit_parts_drop(&pair->parts, dev);
	free(pair->x.data);
	free(pair);
}

static void fill(struct jm_program *p, struct jm_tensor *t)
{
	struct jm_err err = JM_ERR_INIT;
	void *data = malloc(t->bytes);

	for (int64_t i = 0; i < jm_tensor_count(t); i++)
		jm_element_set(t->type, data, i,
			t->type == JM_I32 ? (double)(i * 7 % 10) : (double)(i * 37 % 101) / 50 - 1);
	assert_ok(jm_program_write(p, t, data, &err), err);
	free(data);
}

/* Returns the program after the last step. */
static struct jm_program *trained(
	struct jm_device *device, const char *const *net, struct jm_training t, float *ret_loss)
{
	static const float now[3] = {0.01F, 0.1F, 0.01F};
	struct jm_program *p;
	struct jm_err err = JM_ERR_INIT;

	t.batch = net == unet ? 2 : 4;
	t.seq = net == llama || net == gpt || net == rotary ? 8 : 0;
	t.dropout = net == vit ? 0.2 : 0;
	t.precision = net == xception ? JM_BF16 : t.precision;
	t.adamw = (struct jm_adamw){.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1};
	p = kit_plan(net, &t, device);
	assert_ok(jm_program_build(p, &err), err);
	assert_ok(jm_program_init(p, 5, &err), err);
	for (int i = 0; i < p->graph->n_cells; i++)
		if (p->graph->cell[i]->t.class == JM_CLASS_INPUT)
			fill(p, &p->graph->cell[i]->t);
	assert_ok(jm_program_write(p, jm_graph_find(p->graph, "adamw.now"), now, &err), err);
	for (int s = 0; s < STEPS; s++) {
		assert_ok(jm_program_run(p, &err), err);
		assert_ok(jm_program_read(p, jm_graph_find(p->graph, "loss"), &ret_loss[s], &err),
			err);
	}
	return p;
}

/* Returns the bytes planned over a step. */
static size_t train(
	struct jm_device *device, const char *const *net, struct jm_training t, float *ret_loss)
{
	struct jm_program *p = trained(device, net, t, ret_loss);
	size_t bytes = p->arena_bytes;

	kit_plan_free(p);
	return bytes;
}

static void compare(
	const char *const *net, int micro_steps, int pairs, int in_place, int hidden, int sums)
{
	const struct jm_training keep = {.micro_steps = micro_steps, .keep_all = true};
	/* as little time as possible: only what does not count in it is recomputed */
	const struct jm_training again = {.micro_steps = micro_steps,
		.remake = {.flops = 1e9, .bytes = 1e9, .share = 1e-12, .beside = true}};
	struct jm_backend backend = jm_backend_ref;
	struct jm_device ref, pairing;
	struct jm_err err = JM_ERR_INIT;
	float expected[STEPS], loss[STEPS];
	size_t every, less;

	assert_ok(jm_device_open("ref", 0, &ref, &err), err);
	backend.select = pair_select;
	backend.build = pair_build;
	backend.run = pair_run;
	backend.drop = pair_drop;
	pairing = ref;
	pairing.backend = &backend;
	memset(&seen, 0, sizeof(seen));
	every = train(&ref, net, keep, expected);
	less = train(&pairing, net, again, loss);
	assert_memory_equal(loss, expected, sizeof(loss));
	assert_true(loss[0] > 0 && loss[STEPS - 1] != loss[0]);
	assert_int_equal(seen.pairs, pairs);
	assert_int_equal(seen.hidden, hidden);
	assert_int_equal(seen.sums, sums);
	assert_int_equal(seen.in_place, in_place);
	assert_int_equal(seen.with_product, 0); /* it would be recomputed by a pass of its own */
	assert_true(less < every);
	assert_true(train(&ref, net, again, loss) < every); /* two units each */
	assert_memory_equal(loss, expected, sizeof(loss));
	jm_device_close(&ref);
}

static void gelu_is_recomputed_after_its_gradient(void **unused)
{
	(void)unused;
	compare(vit, 1, 3, 3, 0, 0); /* one in each layer */
	compare(vit, 2, 3, 3, 0, 0);
}

static void swiglu_is_recomputed_after_its_gradient(void **unused)
{
	(void)unused;
	compare(llama, 1, 3, 3, 0, 0);
	compare(llama, 2, 3, 3, 0, 0);
}

/* Between its gradient and the gradient of the layer before it, which joins both. */
static void geglu_is_recomputed_after_its_gradient(void **unused)
{
	(void)unused;
	compare(unet, 1, 16, 16, 0, 16);
	compare(unet, 2, 16, 16, 0, 16);
}

/* The gradient of the first layer's operator reads its gelu; the second's feeds the two layers. */
static void nothing_between_two_narrow_layers_is_stored(void **unused)
{
	(void)unused;
	compare(fno, 1, 1, 1, 2, 0);
	compare(fno, 2, 1, 1, 2, 0);
}

/* The norms before filters of each channel: the kernels of ref compute them a second time. */
static void norms_are_recomputed_for_gradients_of_filters(void **unused)
{
	const struct jm_training keep = {.micro_steps = 1, .keep_all = true};
	const struct jm_training again = {.micro_steps = 1,
		.remake = {.flops = 1e9, .bytes = 1e9, .share = 1e-12, .beside = true}};
	struct jm_device ref;
	struct jm_err err = JM_ERR_INIT;
	float expected[STEPS], loss[STEPS];
	size_t every;

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &ref, &err), err);
	every = train(&ref, xception, keep, expected);
	assert_true(train(&ref, xception, again, loss) < every);
	assert_memory_equal(loss, expected, sizeof(loss));
	assert_true(loss[0] > 0 && loss[STEPS - 1] != loss[0]);
	jm_device_close(&ref);
}

/* Of each of four blocks, the two norms whose results only convolutions read. */
static void norms_are_recomputed_after_their_gradients(void **unused)
{
	static const char *const resnet[] = {
		"resnet", "layers=14", "hidden=8", "image=32", "classes=10", NULL};
	const struct jm_training keep = {.micro_steps = 1, .keep_all = true};
	const struct jm_training again = {
		.micro_steps = 1, .remake = {.flops = 1e9, .bytes = 1e9, .beside = true}};
	struct jm_backend backend = jm_backend_ref;
	struct jm_device ref, pairing;
	struct jm_err err = JM_ERR_INIT;
	float expected[STEPS], loss[STEPS];
	size_t every;

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &ref, &err), err);
	backend.select = pair_select;
	backend.build = pair_build;
	backend.run = pair_run;
	backend.drop = pair_drop;
	pairing = ref;
	pairing.backend = &backend;
	memset(&seen, 0, sizeof(seen));
	every = train(&ref, resnet, keep, expected);
	assert_true(train(&pairing, resnet, again, loss) < every);
	assert_memory_equal(loss, expected, sizeof(loss));
	assert_true(loss[0] > 0 && loss[STEPS - 1] != loss[0]);
	assert_int_equal(seen.pairs, 4 * 2);
	jm_device_close(&ref);
}

/* If time is limited, so that the order of choice counts, but suffices; 8 blocks in 4 stages, each
 * second of which adds the result of the first. */
static void residual_sums_are_recomputed(void **unused)
{
	static const char *const resnet[] = {
		"resnet18", "hidden=8", "image=32", "classes=10", NULL};
	const struct jm_training keep = {.micro_steps = 1, .keep_all = true};
	struct jm_training again = {
		.micro_steps = 1, .remake = {.flops = 1e9, .bytes = 1e9, .beside = true}};
	struct jm_device ref;
	struct jm_err err = JM_ERR_INIT;
	float expected[STEPS], loss[STEPS];
	size_t norms;

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &ref, &err), err);
	train(&ref, resnet, keep, expected);
	norms = train(&ref, resnet, again, loss);
	again.remake.share = 1;
	assert_true(train(&ref, resnet, again, loss) < norms);
	assert_memory_equal(loss, expected, sizeof(loss));
	jm_device_close(&ref);
}

/* ---- attention and products, where more time is given than usual ----------------------------- */

struct net {
	const char *const *words;
	const char *freeze;
	int attentions, products; /* that are recomputed; -1 = some */
};

static const struct net nets[] = {
	{gpt, NULL, 3, 3},    /* queries, keys and values */
	{rotary, NULL, 3, 3}, /* before positions */
	{llama, NULL, 3, 6},  /* and gates */
	{llama, "h*", 3, 6},  /* whose norms no gradient reads */
	{llama, "h1*", 3, 6}, {vit, NULL, 3, 3},
	{unet, NULL, 32, -1}, /* half of them of captions */
};

static int count_again(const struct jm_program *p, enum jm_op op)
{
	int count = 0;

	for (int k = 0; k < p->graph->n_nodes; k++)
		count += p->graph->node[k]->again && p->graph->node[k]->op == op;
	return count;
}

/* The parameters after the last step, and its gradients. */
static void same_bits(struct jm_program *a, struct jm_program *b)
{
	struct jm_err err = JM_ERR_INIT;
	int compared = 0;

	for (int i = 0; i < a->graph->n_cells; i++) {
		const struct jm_tensor *t = &a->graph->cell[i]->t, *same;
		void *x, *y;

		if (t->class != JM_CLASS_PARAM && t->class != JM_CLASS_GRAD)
			continue;
		same = jm_graph_find(b->graph, t->name);
		assert_non_null(same);
		x = malloc(t->bytes);
		y = malloc(t->bytes);
		assert_ok(jm_program_read(a, t, x, &err), err);
		assert_ok(jm_program_read(b, same, y, &err), err);
		assert_memory_equal(x, y, t->bytes);
		compared += t->class == JM_CLASS_GRAD;
		free(x);
		free(y);
	}
	assert_true(compared > 0);
}

static void compare_costly(
	struct jm_device *device, const struct net *net, enum jm_dtype precision, int micro_steps)
{
	struct jm_training how = {.micro_steps = micro_steps,
		.precision = precision,
		.freeze = net->freeze,
		.keep_all = true};
	float expected[STEPS], loss[STEPS];
	struct jm_program *every = trained(device, net->words, how, expected), *again, *usual;

	how.keep_all = false;
	how.remake = (struct jm_remake){.flops = 1e9, .bytes = 1e9, .share = NAN};
	usual = trained(device, net->words, how, loss);
	assert_memory_equal(loss, expected, sizeof(loss));
	assert_int_equal(count_again(usual, JM_OP_ATTENTION) + count_again(usual, JM_OP_LINEAR), 0);
	how.remake.share = 1;
	again = trained(device, net->words, how, loss);
	assert_memory_equal(loss, expected, sizeof(loss));
	assert_true(loss[0] > 0 && loss[STEPS - 1] != loss[0]);
	same_bits(every, again);
	assert_int_equal(count_again(again, JM_OP_ATTENTION), net->attentions);
	if (net->products >= 0)
		assert_int_equal(count_again(again, JM_OP_LINEAR), net->products);
	assert_true(count_again(again, JM_OP_LINEAR) > 0);
	assert_true(again->arena_bytes < usual->arena_bytes);
	assert_true(again->flops_executed > every->flops_executed);
	assert_near(again->flops_model / every->flops_model, 1, 1e-9);
	kit_plan_free(every);
	kit_plan_free(usual);
	kit_plan_free(again);
}

static void compare_all(const char *name, enum jm_dtype precision, int micro_steps)
{
	struct jm_device device;
	struct jm_err err = JM_ERR_INIT;

	if (jm_backend_check(name, NULL))
		return;
	assert_ok(jm_device_open(name, 1, &device, &err), err);
	for (size_t i = 0; i < sizeof(nets) / sizeof(*nets); i++)
		if (nets[i].words != unet || (precision == JM_F32 && micro_steps == 1))
			compare_costly(&device, &nets[i], precision, micro_steps);
	jm_device_close(&device);
}

static void attention_and_products_have_the_same_bits(void **unused)
{
	(void)unused;
	compare_all("ref", JM_F32, 1);
	compare_all("ref", JM_BF16, 2);
	compare_all("cpu", JM_F32, 2);
	compare_all("cpu", JM_BF16, 1);
}

/* ---- what is recomputed for another result -------------------------------------------------- */

/*
 * A product that attention reads, whose operand x only the gradient of a later layer reads, which
 * is over when that of attention begins: x is recomputed for the product. It is also chosen for
 * itself, later, as it frees less for the time.
 */
static struct jm_tensor *early_and_late(struct kit *k)
{
	struct jm_graph *g = k->graph;
	struct jm_tensor *x = jm_graph_gelu(g, kit_param(k, 3, DIMS(2, 32, 4)));
	struct jm_tensor *fixed = kit_normal(k, JM_F64, 0, 1, 2, DIMS(48, 4));
	struct jm_tensor *early =
		jm_graph_attention(g, jm_graph_linear(g, x, fixed, NULL), 2, 2, false);
	struct jm_tensor *late = jm_graph_linear(g, x, kit_param(k, 2, DIMS(16, 4)), NULL);
	struct jm_tensor *y = jm_graph_gelu(g, jm_graph_gelu(g, jm_graph_add(g, early, late)));

	return jm_graph_mse(g, y, kit_normal(k, JM_F64, 0, 1, 3, DIMS(2, 32, 16)));
}

/* Runs it; ret: the gradients of both parameters, to be freed. */
static void run_early_and_late(const struct jm_remake *how, double *ret[2], int *ret_again)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_tensor *loss;
	struct kit k;

	kit_init(&k, "ref", JM_F64);
	loss = early_and_late(&k);
	assert_ok(jm_graph_gradients(k.graph, loss, &err), err);
	if (how)
		assert_ok(jm_graph_rematerialize(k.graph, how, &err), err);
	assert_ok(kit_run(&k, &err), err);
	for (int i = 0, n = 0; i < k.n_given; i++)
		if (jm_graph_cell(k.graph, k.given[i])->grad)
			ret[n++] = kit_values(&k, jm_graph_cell(k.graph, k.given[i])->grad);
	*ret_again = count_again(k.program, JM_OP_GELU) + count_again(k.program, JM_OP_LINEAR);
	kit_done(&k);
}

static void what_a_product_needs_is_recomputed_once(void **unused)
{
	static const size_t bytes[] = {sizeof(double[2 * 32 * 4]), sizeof(double[16 * 4])};
	const struct jm_remake how = {.flops = 1e9, .bytes = 1e9, .share = 1};
	double *kept[2], *again[2];
	int n;

	(void)unused;
	run_early_and_late(NULL, kept, &n);
	assert_int_equal(n, 0);
	run_early_and_late(&how, again, &n);
	assert_int_equal(n, 2);
	for (int i = 0; i < 2; i++) {
		assert_memory_equal(kept[i], again[i], bytes[i]);
		free(kept[i]);
		free(again[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gelu_is_recomputed_after_its_gradient),
		cmocka_unit_test(swiglu_is_recomputed_after_its_gradient),
		cmocka_unit_test(geglu_is_recomputed_after_its_gradient),
		cmocka_unit_test(nothing_between_two_narrow_layers_is_stored),
		cmocka_unit_test(norms_are_recomputed_for_gradients_of_filters),
		cmocka_unit_test(norms_are_recomputed_after_their_gradients),
		cmocka_unit_test(residual_sums_are_recomputed),
		cmocka_unit_test(attention_and_products_have_the_same_bits),
		cmocka_unit_test(what_a_product_needs_is_recomputed_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
