/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step of serving against the forward pass of training: the same logits for any way to cut
 * prompts into steps, any neighbours and any order of pages.
 */
#include <math.h>
#include <stdio.h>

#include "engine/run/start_values.h"
#include "kit/engine_kit.h"
#include "kit/test.h"

enum { BATCH = 3, SEQ = 37, VOCAB = 29, EACH = 4, PAGES = 16, LARGEST = 64, PROGRAMS = 7 };

static const char *const llama[] = {"llama", "layers=2", "hidden=24", "heads=4", "kv-heads=2",
	"ffn=40", "vocab=29", "context=64", NULL};
static const char *const llama3_2[] = {"llama", "layers=2", "hidden=24", "heads=4", "kv-heads=1",
	"head-width=10", "ffn=40", "vocab=29", "context=64", "tied=yes", "rope-factor=8",
	"rope-low=1", "rope-high=4", "rope-context=48", "norm-eps=1e-3", NULL};

struct served {
	struct jm_program *program[PROGRAMS]; /* of 1, 2, 4 ... rows */
	int32_t page[BATCH][EACH];
	int32_t ids[BATCH][SEQ];
	int done[BATCH];
	float logits[BATCH][SEQ][VOCAB];
	bool has[BATCH][SEQ];
	int32_t token[BATCH][SEQ]; /* sampled after this position */
};

static struct jm_training training_of(const struct jm_model *model, const struct jm_values *dims)
{
	return (struct jm_training){
		.model = model, .dims = dims, .batch = BATCH, .seq = SEQ, .precision = JM_F32};
}

static struct jm_tensor *find(const struct jm_program *p, const char *name)
{
	struct jm_tensor *t = jm_graph_find(p->graph, name);

	assert_non_null(t);
	return t;
}

static void write_input(struct jm_program *p, const char *name, const void *from)
{
	struct jm_err err = JM_ERR_INIT;

	assert_ok(jm_program_write(p, find(p, name), from, &err), err);
}

static void read_output(struct jm_program *p, const char *name, void *to)
{
	struct jm_err err = JM_ERR_INIT;

	assert_ok(jm_program_read(p, find(p, name), to, &err), err);
}

static struct jm_tensor *logits_of(const struct jm_graph *g)
{
	for (int i = 0; i < g->n_nodes; i++)
		if (g->node[i]->op == JM_OP_SOFTMAX_XENT)
			return g->node[i]->in[0];
	fail_msg("the graph has no loss");
	return NULL;
}

/* The logits of whole sequences, from the graph that training evaluates with. */
static void forward(
	const char *const *words, struct jm_device *device, const int32_t *ids, float *ret)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_training t;
	const struct jm_model *model;
	struct jm_values dims;
	struct jm_tensor *logits, *kept;
	struct jm_program *p;
	struct jm_graph *g;

	kit_model(words, &model, &dims);
	t = training_of(model, &dims);
	assert_ok(jm_model_evaluate(&t, &g, &err), err);
	logits = logits_of(g);
	kept = jm_graph_tensor(g, JM_CLASS_SCALAR, JM_F32, 3, logits->dim, "kept");
	jm_graph_node(g, JM_OP_CAST, &logits, &kept);
	assert_ok(jm_program_plan(g, device, &p, &err), err);
	assert_ok(jm_program_build(p, &err), err);
	assert_ok(jm_program_init(p, 5, &err), err);
	write_input(p, "ids", ids);
	write_input(p, "target", ids);
	assert_ok(jm_program_run(p, &err), err);
	read_output(p, "kept", ret);
	kit_plan_free(p);
	jm_values_done(&dims);
}

/* NaN in every free slot: what is not written must not reach a result. */
static void soil_cache(struct jm_program *p)
{
	struct jm_err err = JM_ERR_INIT;

	for (int i = 0; i < p->graph->n_cells; i++) {
		struct jm_tensor *t = &p->graph->cell[i]->t;

		if (t->class == JM_CLASS_STATE)
			assert_ok(jm_device_fill(p->device, JM_QUEUE_COMPUTE, t->data, 0xff,
					  t->bytes, &err),
				err);
	}
}

/* All programs share weights and cache. */
static void served_open(struct served *s, const char *const *words, struct jm_device *device)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_training t;
	const struct jm_model *model;
	struct jm_values dims;

	kit_model(words, &model, &dims);
	t = training_of(model, &dims);
	for (int i = 0; i < PROGRAMS; i++) {
		struct jm_step_shape shape = {.tokens = INT64_C(1) << i,
			.requests = BATCH,
			.pages = PAGES,
			.pages_each = EACH,
			.keeps_logits = true};
		struct jm_graph *g;

		assert_ok(jm_model_step(&t, &shape, &g, &err), err);
		if (i)
			assert_ok(jm_program_plan_beside(g, s->program[0], &s->program[i], &err),
				err);
		else
			assert_ok(jm_program_plan(g, device, &s->program[i], &err), err);
	}
	for (int i = 0; i < PROGRAMS; i++)
		assert_ok(jm_program_build(s->program[i], &err), err);
	assert_ok(jm_program_init(s->program[0], 5, &err), err);
	soil_cache(s->program[0]);
	jm_values_done(&dims);
}

static void served_close(struct served *s)
{
	for (int i = PROGRAMS - 1; i >= 0; i--)
		kit_plan_free(s->program[i]);
}

/* A step of n[r] rows of each request, after those that are done, in the order of their numbers or
 * reversed. */
static void step(struct served *s, const int n[BATCH], bool reversed)
{
	struct jm_err err = JM_ERR_INIT;
	int32_t ids[LARGEST] = {0}, position[LARGEST], request[LARGEST] = {0}, last[BATCH] = {0};
	int32_t token[BATCH];
	float logits[BATCH][VOCAB];
	struct jm_program *p;
	int rows = 0, size = 0;

	for (int i = 0; i < LARGEST; i++)
		position[i] = -1;
	for (int k = 0; k < BATCH; k++) {
		int r = reversed ? BATCH - 1 - k : k;

		for (int i = 0; i < n[r]; i++, rows++) {
			ids[rows] = s->ids[r][s->done[r] + i];
			position[rows] = s->done[r] + i;
			request[rows] = r;
			last[r] = rows;
		}
	}
	while (1 << size < rows)
		size++;
	p = s->program[size];
	write_input(p, "ids", ids);
	write_input(p, "position", position);
	write_input(p, "request", request);
	write_input(p, "page", s->page);
	write_input(p, "last", last);
	assert_ok(jm_program_run(p, &err), err);
	read_output(p, "logits", logits);
	read_output(p, "token", token);
	for (int r = 0; r < BATCH; r++) {
		int at = s->done[r] += n[r];

		if (!n[r])
			continue;
		memcpy(s->logits[r][at - 1], logits[r], sizeof(logits[r]));
		s->token[r][at - 1] = token[r];
		s->has[r][at - 1] = true;
	}
}

/* Random chunks until all requests are done; single: one token of a request at a time. */
static void serve(struct served *s, uint64_t seed, bool single)
{
	for (int i = 0; i < BATCH * EACH; i++) /* a permutation of 12 of the 16 pages */
		s->page[i / EACH][i % EACH] = (int32_t)((i * 5 + (int)seed) % PAGES);
	for (;;) {
		int n[BATCH], left = LARGEST, all = 0;

		for (int r = 0; r < BATCH; r++) {
			int rest = SEQ - s->done[r], most = single ? 1 : rest < 20 ? rest : 20;

			seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
			n[r] = rest ? (int)(seed >> 33) % (most + 1) : 0;
			n[r] = n[r] < left ? n[r] : left;
			left -= n[r];
			all += SEQ - s->done[r];
		}
		if (!all)
			return;
		if (left < LARGEST)
			step(s, n, seed >> 40 & 1);
	}
}

static double norm_of(const float *x)
{
	double most = 0;

	for (int i = 0; i < VOCAB; i++)
		most = fmax(most, fabs((double)x[i]));
	return most;
}

static int largest(const float *x)
{
	int best = 0;

	for (int i = 1; i < VOCAB; i++)
		best = x[i] > x[best] ? i : best;
	return best;
}

static void compare(const struct served *s, const float *expected, int *ret_compared)
{
	for (int i = 0; i < BATCH * SEQ; i++) {
		const float *a = s->logits[i / SEQ][i % SEQ], *b = expected + i * VOCAB;

		if (!s->has[i / SEQ][i % SEQ])
			continue;
		++*ret_compared;
		for (int v = 0; v < VOCAB; v++)
			if (!(fabs((double)(a[v] - b[v])) <= 1e-5 * norm_of(b)))
				fail_msg("request %d, position %d, logit %d: %.9g, not %.9g",
					i / SEQ, i % SEQ, v, (double)a[v], (double)b[v]);
		assert_int_equal(s->token[i / SEQ][i % SEQ], largest(a));
	}
}

static void check_device(const char *name, const char *const *words, int schedules)
{
	static float expected[BATCH * SEQ * VOCAB];
	struct jm_err err = JM_ERR_INIT;
	struct jm_device device;
	int compared = 0;

	setenv("JM_BACKENDS", "build/backends", 0); /* when run by hand */
	if (jm_device_open(name, 2, &device, &err)) {
		print_message("%s\n", err.text);
		skip();
	}
	for (int k = 0; k < schedules; k++) {
		struct served *s = calloc(1, sizeof(*s));

		for (int i = 0; i < BATCH * SEQ; i++)
			s->ids[i / SEQ][i % SEQ] = (i * i * 7 + i * 3 + 1) % VOCAB;
		if (!k)
			forward(words, &device, s->ids[0], expected);
		served_open(s, words, &device);
		serve(s, (uint64_t)k + 1, k == 1);
		compare(s, expected, &compared);
		served_close(s);
		free(s);
	}
	assert_true(compared > BATCH * schedules);
	jm_device_close(&device);
}

static void steps_equal_training_on_ref(void **unused)
{
	(void)unused;
	check_device("ref", llama, 2);
	check_device("ref", llama3_2, 2);
}

static void steps_equal_training_on_cpu(void **unused)
{
	(void)unused;
	check_device("cpu", llama, 8);
	check_device("cpu", llama3_2, 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_equal_training_on_ref),
		cmocka_unit_test(steps_equal_training_on_cpu),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
