/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shares of an update that several ranks divide: they cover every parameter once, for any
 * number of ranks and any size of a bucket; each has the same size on all ranks; and weight decay
 * applies to matrices only. The largest sum of gradients does not come last.
 */
#include <stdlib.h>

#include "engine/graph/model.h"
#include "engine/run/reduce.h"
#include "kit/test.h"
#include "engine/graph/shard_update.h"
#include "engine/graph/tensor.h"
#include "engine/plan/bucket.h"
#include "engine/run/program.h"

static struct jm_graph *train_with(struct jm_training t, const char *name, const char *precision)
{
	struct jm_err err = JM_ERR_INIT;
	const struct jm_preset *preset;
	struct jm_graph *g = NULL;
	struct jm_values dims;

	assert_int_equal(jm_model_find(name, &t.model, &preset, &err), 0);
	assert_int_equal(jm_model_dims(t.model, preset, NULL, &dims, &err), 0);
	t.dims = &dims;
	t.batch = 1;
	t.adamw = (struct jm_adamw){
		.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .clip = 1};
	t.shards_update = true;
	assert_int_equal(jm_precision_set(&t, precision, &err), 0);
	t.keep_all = true;
	assert_int_equal(jm_model_train(&t, &g, &err), 0);
	jm_values_done(&dims);
	return g;
}

static struct jm_graph *train(
	const char *name, const char *precision, int ranks, int rank, size_t bucket)
{
	return train_with(
		(struct jm_training){.ranks = ranks, .rank = rank, .bucket_bytes = bucket}, name,
		precision);
}

static int64_t elements(const struct jm_tensor *t)
{
	return t->dim[0];
}

/* Adds 1 to each element of the slab of parameters that the rank updates; decays: 2 more where it
 * decays. */
static void mark(const struct jm_graph *g, unsigned char *slab)
{
	for (int k = 0; k < g->n_nodes; k++) {
		const struct jm_node *n = g->node[k];
		int64_t from, count;

		if (n->op != JM_OP_ADAMW)
			continue;
		from = (int64_t)(jm_graph_cell(g, n->out[0])->slab_offset / 4);
		count = elements(n->out[0]);
		assert_int_equal(elements(n->in[0]), count);
		assert_int_equal(elements(n->out[1]), count);
		for (int64_t i = 0; i < count; i++)
			slab[from + i] = (unsigned char)(slab[from + i] +
							 (i < n->attr.adamw.n_decay ? 3 : 1));
	}
}

static void check_parameters(const struct jm_graph *g, const unsigned char *slab)
{
	int64_t wrong = 0;

	for (int i = 0; i < g->n_cells; i++) {
		const struct jm_cell *c = g->cell[i];
		int64_t from = (int64_t)(c->slab_offset / 4), n = (int64_t)(c->t.bytes / 4);

		if (c->t.class != JM_CLASS_PARAM || !c->grad)
			continue;
		assert_int_equal(jm_graph_cell(g, c->grad)->slab_offset, c->slab_offset);
		for (int64_t k = from; k < from + n; k++)
			wrong += slab[k] != (c->t.rank > 1 ? 3 : 1);
	}
	assert_int_equal(wrong, 0);
}

/* Segments follow each other without gaps and are divisible by the ranks. */
static void check_segments(const struct jm_graph *g, int ranks)
{
	int64_t at = 0, total = elements(jm_graph_find(g, "slab.parameters"));

	for (int i = 0; i < g->shard->n; i++) {
		const struct jm_segment *s = &g->shard->segment[i];

		assert_int_equal(s->from, at);
		assert_true(s->n > 0 && s->n % (ranks * 32) == 0);
		at += s->n;
	}
	assert_int_equal(at, total);
	assert_int_equal(elements(jm_graph_find(g, "slab.gradients")), total);
	assert_int_equal(elements(jm_graph_find(g, "adamw.m")) * ranks, total);
	assert_int_equal(elements(jm_graph_find(g, "shard.gradients")) * ranks, total);
}

/* Without masters the gradients of matrices are in 16 bits, in a slab of their own before that of
 * vectors. */
static void gradients_of_two_types_have_slabs_of_their_own(void **state)
{
	struct jm_graph *g = train("llama3-8b", "bf16-true", 4, 3, 64 << 20);
	const struct jm_tensor *matrices = jm_graph_find(g, "slab.gradients");
	const struct jm_tensor *vectors = jm_graph_find(g, "slab.gradients.vectors");
	int64_t n[2] = {0};

	(void)state;
	assert_int_equal(matrices->type, JM_BF16);
	assert_int_equal(vectors->type, JM_F32);
	for (int i = 0; i < g->shard->n; i++) {
		const struct jm_segment *s = &g->shard->segment[i];
		const struct jm_cell *all = jm_graph_cell(g, s->grads);
		const struct jm_cell *own = jm_graph_cell(g, s->own_grads);

		assert_ptr_equal(all->slab, s->vectors ? vectors : matrices);
		assert_int_equal(
			all->slab_offset, (size_t)n[s->vectors] * jm_dtype_bytes(all->slab->type));
		assert_int_equal(own->slab_offset * 4, all->slab_offset);
		assert_int_equal(s->masters->type, s->own_grads->type);
		n[s->vectors] += s->n;
	}
	assert_int_equal(elements(matrices), n[0]);
	assert_int_equal(elements(vectors), n[1]);
	assert_int_equal(4 * elements(jm_graph_find(g, "shard.gradients")), n[0]);
	assert_int_equal(4 * elements(jm_graph_find(g, "shard.gradients.vectors")), n[1]);
	jm_graph_free(g);
}

static void check(const char *name, const char *precision, int ranks, size_t bucket)
{
	struct jm_graph *g = train(name, precision, ranks, 0, bucket);
	int64_t total = elements(jm_graph_find(g, "slab.parameters"));
	unsigned char *slab = calloc((size_t)total, 1);

	assert_non_null(slab);
	check_segments(g, ranks);
	for (int r = 0; r < ranks; r++) {
		jm_graph_free(g);
		g = train(name, precision, ranks, r, bucket);
		mark(g, slab);
	}
	check_parameters(g, slab);
	for (int64_t i = 0; i < total; i++)
		assert_true(slab[i] == 1 || slab[i] == 3);
	jm_graph_free(g);
	free(slab);
}

static void shares_cover_every_parameter_once(void **state)
{
	(void)state;
	for (int ranks = 2; ranks < 8; ranks++)
		check("resnet18", "bf16", ranks, ranks % 2 ? 100000 : 0);
	check("gpt-117m", "bf16", 3, 0);
	check("gpt-117m", "f32", 2, 1 << 20);
	check("resnet18", "f32", 64, (size_t)1 << 40);
}

/* A matrix that only products read has a copy that persists; the node that made it in each step is
 * gone. */
static void only_products_read_copies(void **state)
{
	struct jm_graph *g = train("gpt-117m", "bf16", 2, 1, 0);
	const struct jm_tensor *copies = jm_graph_find(g, "slab.copies");
	int64_t blocks = 12 * 12 * (int64_t)768 * 768;
	int casts = 0;

	(void)state;
	assert_int_equal(elements(copies), blocks);
	for (int k = 0; k < g->n_nodes - g->n_update; k++)
		casts += g->node[k]->op == JM_OP_CAST && g->node[k]->out[0]->class == JM_CLASS_COPY;
	assert_int_equal(casts, 1); /* of the table of tokens, which the classifier multiplies by */
	jm_graph_free(g);
}

static const struct jm_node *first_node(const struct jm_program *p, int unit)
{
	return p->unit[unit]->group.node[0];
}

/* The table's gradient is the largest and needs the whole backward pass; its sum begins before the
 * last products. */
static void the_largest_sum_is_not_the_last(void **state)
{
	struct jm_graph *g = train("gpt-117m", "bf16", 2, 0, 0);
	struct jm_err err = JM_ERR_INIT;
	struct jm_device d;
	struct jm_program *p;
	size_t largest = 0;
	int at = -1, lookup = -1, products = 0;

	(void)state;
	assert_int_equal(jm_device_open("ref", 1, &d, &err), 0);
	assert_ok(jm_program_plan(g, &d, &p, &err), err);
	for (int i = 0; i < p->n_micro; i++) {
		if (first_node(p, i)->op == JM_OP_EMBED_GRAD)
			lookup = i;
		if (jm_reduce_is_start(p->unit[i]) && first_node(p, i)->in[0]->bytes > largest) {
			largest = first_node(p, i)->in[0]->bytes;
			at = i;
		}
	}
	assert_true(lookup >= 0 && at > lookup);
	for (int i = at; i < p->n_micro; i++)
		products += first_node(p, i)->op == JM_OP_LINEAR_WGRAD;
	assert_in_range(products, 2, 4); /* of the first block */
	jm_program_free(p);
	jm_device_close(&d);
	jm_graph_free(g);
}

/* Where products are too fast to hide an exchange, those of all segments run after the table's
 * gradient. With five ranks a segment ends inside a matrix, whose gradient then belongs to two
 * segments. */
static void products_of_two_segments_move_once(void **state)
{
	struct jm_graph *g = train("gpt-117m", "bf16", 5, 0, 0);
	struct jm_err err = JM_ERR_INIT;
	struct jm_device d;
	struct jm_program *p;
	int lookup = -1, products = 0;

	(void)state;
	assert_int_equal(jm_device_open("ref", 1, &d, &err), 0);
	d.props.host_memory = false;
	d.props.peak_flops[JM_BF16] = d.props.peak_flops[JM_F32] = 1e18;
	assert_ok(jm_program_plan(g, &d, &p, &err), err);
	for (int i = 0; i < p->n_micro; i++) {
		assert_non_null(p->unit[i]);
		if (first_node(p, i)->op == JM_OP_EMBED_GRAD)
			lookup = i;
		products += lookup >= 0 && first_node(p, i)->op == JM_OP_LINEAR_WGRAD;
		for (int k = 0; k < i; k++)
			assert_ptr_not_equal(p->unit[k], p->unit[i]);
	}
	assert_int_equal(products, 4 * 12);
	jm_program_free(p);
	jm_device_close(&d);
	jm_graph_free(g);
}

static uint64_t digest_at(double peak)
{
	struct jm_graph *g = train("gpt-117m", "bf16", 5, 0, 0);
	struct jm_err err = JM_ERR_INIT;
	struct jm_device d;
	struct jm_program *p;
	uint64_t ret;

	assert_int_equal(jm_device_open("ref", 1, &d, &err), 0);
	d.props.peak_flops[JM_BF16] = d.props.peak_flops[JM_F32] = peak;
	assert_ok(jm_program_plan(g, &d, &p, &err), err);
	ret = jm_reduce_digest(p);
	jm_program_free(p);
	jm_device_close(&d);
	jm_graph_free(g);
	return ret;
}

/* Each rank measures the peak of the processor it shares with the others. */
static void ranks_on_a_busy_processor_plan_alike(void **state)
{
	(void)state;
	assert_true(digest_at(1e18) == digest_at(1e9));
}

/* The values of a parameter are in the runs of the ranks' shares, each once: a rank finds those of
 * its own where its masters are. */
static void check_runs(const char *precision, int ranks, bool by_host)
{
	for (int r = 0; r < ranks; r++) {
		const struct jm_training how = {
			.ranks = ranks, .rank = r, .by_host = by_host, .bucket_bytes = 1 << 20};
		struct jm_graph *g = train_with(how, "gpt-117m", precision);
		struct jm_shard_run run;

		for (int i = 0; i < g->n_cells; i++)
			for (int64_t at = 0, n = jm_tensor_count(&g->cell[i]->t);
				jm_update_trains(g->cell[i]) && at < n; at += run.n) {
				const struct jm_cell *c = g->cell[i], *masters;
				size_t size = jm_dtype_bytes(c->t.type);

				run = jm_shard_run(g, c, at);
				assert_in_range(run.n, 1, n - at);
				assert_in_range(run.rank, 0, ranks - 1);
				assert_null(run.segment->kept[JM_KEPT_MEAN]);
				assert_in_range(
					run.at + run.n, 1, elements(run.segment->kept[JM_KEPT_V]));
				masters = jm_graph_cell(g, run.segment->masters);
				if (run.rank == r)
					assert_int_equal(
						masters->slab_offset / size + (size_t)run.at,
						c->slab_offset / size + (size_t)at);
			}
		jm_graph_free(g);
	}
}

static void runs_of_parameters_lie_where_masters_are(void **state)
{
	(void)state;
	check_runs("f32", 3, false);
	check_runs("bf16-true", 2, false);
	check_runs("bf16", 2, true);
}

/* Over the host every rank updates the tables, whose summed gradients are gathered in the backward
 * pass. */
static void tables_are_updated_as_a_whole(void **state)
{
	const struct jm_training how = {.ranks = 2, .rank = 1, .by_host = true};
	struct jm_graph *g = train_with(how, "gpt-117m", "bf16");
	int64_t tables = (50257 + 1024) * (int64_t)768, whole = 0, rest = 0, state_of;

	(void)state;
	for (int i = 0; i < g->shard->n; i++) {
		const struct jm_segment *s = &g->shard->segment[i];

		assert_true(!s->is_whole || (s->masters == s->params && s->updated == s->whole));
		assert_int_equal(elements(s->last->in[0]), s->is_whole ? s->n : s->n / 2);
		if (s->is_whole)
			whole += s->n;
		else
			rest += s->n;
	}
	assert_in_range(whole, tables, tables + 256);
	state_of = elements(jm_graph_find(g, "adamw.m"));
	assert_int_equal(state_of, whole + rest / 2);
	assert_int_equal(elements(jm_graph_find(g, "shard.gradients")), (whole + rest) / 2);
	jm_graph_free(g);
}

/* Tokens of a rank and update from which on the exchanges hide, on a device with the peaks of an
 * H100. */
static int least_tokens(const char *name, const char *precision, bool rounds)
{
	const struct jm_training how = {
		.ranks = 2, .seq = 64, .by_host = true, .rounds_sums = rounds};
	struct jm_graph *g = train_with(how, name, precision);
	const struct jm_backend backend = {.lanes = (const struct jm_lanes *)&how};
	struct jm_device d = {.backend = &backend};
	int tokens = 64;

	d.props.peak_flops[JM_BF16] = 989.4e12;
	d.props.peak_flops[JM_F8E4M3] = d.props.peak_flops[JM_F8E5M2] = 1978.9e12;
	for (g->micro_steps = 1; !jm_reduce_fits_host(g, &d); g->micro_steps++)
		tokens += 64;
	jm_graph_free(g);
	return tokens;
}

/* In f32 gradients have twice the bytes, and products in 8 bits take half the time. */
static void exchanges_hide_behind_enough_products(void **state)
{
	static const char *const names[] = {"gpt-117m", "gpt-800m", "llama3-8b"};

	(void)state;
	for (int i = 0; i < 3; i++) {
		int sixteen = least_tokens(names[i], "bf16", true);

		assert_in_range(sixteen, 26000, 29000); /* docs/gpu-scaling.md */
		assert_in_range(least_tokens(names[i], "bf16", false), 1.5 * sixteen, 2 * sixteen);
		assert_in_range(least_tokens(names[i], "fp8", true), 1.8 * sixteen, 4 * sixteen);
		assert_in_range(least_tokens(names[i], "fp8", false), 2.8 * sixteen, 8 * sixteen);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gradients_of_two_types_have_slabs_of_their_own),
		cmocka_unit_test(shares_cover_every_parameter_once),
		cmocka_unit_test(only_products_read_copies),
		cmocka_unit_test(the_largest_sum_is_not_the_last),
		cmocka_unit_test(products_of_two_segments_move_once),
		cmocka_unit_test(ranks_on_a_busy_processor_plan_alike),
		cmocka_unit_test(tables_are_updated_as_a_whole),
		cmocka_unit_test(runs_of_parameters_lie_where_masters_are),
		cmocka_unit_test(exchanges_hide_behind_enough_products),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
