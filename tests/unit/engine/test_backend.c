/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every backend that is built against ref: each op over several shapes, types and ways to add, with
 * the same operands. An element may differ from ref's by TOLERANCE of its size plus the results'
 * mean size: this allows sums in another order for f32, and one more rounding for bf16 and f16.
 */
#include <glob.h>
#include <stddef.h>
#include <stdio.h>
#include <xxhash.h>

#include "kit/engine_kit.h"
#include "engine/check/op_case.h"
#include "kit/test.h"

/* JM_TEST_TYPES: only types whose name begins so ("bf16"); a slow device then takes several
 * runs. */
static bool is_wanted(const struct types *t)
{
	const char *begin = getenv("JM_TEST_TYPES");

	return !begin || !strncmp(t->name, begin, strlen(begin));
}

#define REFUSED -1.0 /* a backend need not know every op; it has to say so */

static const struct shape shapes[] = {
	{1, 1, 8, 8, 1, 1}, {2, 7, 33, 17, 1, 1}, {3, 16, 64, 48, 4, 2}, {2, 65, 96, 200, 6, 6},
	{1, 130, 256, 32, 1, 1},		      /* one wide head */
	{1, 37, 63, 94, 1, 1}, {3, 21, 48, 80, 3, 1}, /* of sums_of_63 */
};

/* What op_case_image.c gives with channels last is read so by all but casts; weights are second
 * operands. */
static void check_last(const struct jm_program *p)
{
	static const struct jm_layout last = {.rank = 4, .order = {0, 2, 3, 1}};
	int images = 0;

	for (int i = 0; i < p->n_units; i++) {
		const struct jm_node *n = p->unit[i]->group.node[0];

		if (n->op == JM_OP_CAST || n->in[0]->rank != 4 ||
			n->in[0]->dim[2] * n->in[0]->dim[3] == 1) /* no image but a filter */
			continue;
		images++;
		if (!jm_layout_equal(&n->in[0]->layout, &last))
			fail_msg("%s reads no image with channels last", jm_op_name(n->op));
	}
	assert_true(images > 1);
}

/* ---- what was declared before ---------------------------------------------------------------- */

/* Graphs of a case that were run: many cases leave out a type, the flag or the shape. */
struct seen {
	XXH64_hash_t hash[64];
	int n;
};

static void add(XXH64_state_t *h, const void *data, size_t bytes)
{
	assert_int_equal(XXH64_update(h, data, bytes), XXH_OK);
}

static void add_tensor(XXH64_state_t *h, const struct jm_tensor *t)
{
	int id = t ? t->id : -1;

	add(h, &id, sizeof(id));
}

static void add_cell(XXH64_state_t *h, const struct jm_cell *cell)
{
	const struct jm_tensor *others[] = {
		cell->grad, cell->copy, cell->origin, cell->scale, cell->slab};

	add(h, &cell->t, offsetof(struct jm_tensor, bytes));
	add(h, &cell->needs_grad, sizeof(cell->needs_grad));
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		add_tensor(h, others[i]);
}

static void add_node(XXH64_state_t *h, const struct jm_node *n)
{
	int fwd = n->fwd ? n->fwd->id : -1;

	add(h, &n->op, sizeof(n->op));
	for (int i = 0; i < JM_NODE_IN; i++)
		add_tensor(h, n->in[i]);
	for (int i = 0; i < JM_NODE_OUT; i++)
		add_tensor(h, n->out[i]);
	add(h, &n->attr, offsetof(struct jm_node, fwd) - offsetof(struct jm_node, attr));
	add(h, &fwd, sizeof(fwd));
}

/* All that a case declares: the graph, how its operands are drawn, what is compared. */
static XXH64_hash_t hash_of(const struct kit *k)
{
	const struct jm_graph *g = k->graph;
	XXH64_state_t *h = XXH64_createState();
	XXH64_hash_t hash;

	assert_non_null(h);
	XXH64_reset(h, 0);
	add(h, &g->compute, offsetof(struct jm_graph, shard) - offsetof(struct jm_graph, compute));
	for (int i = 0; i < g->n_cells; i++)
		add_cell(h, g->cell[i]);
	for (int i = 0; i < g->n_nodes; i++)
		add_node(h, g->node[i]);
	for (int i = 0; i < k->n_given; i++)
		add_tensor(h, k->given[i]);
	for (int i = 0; i < k->n_results; i++)
		add_tensor(h, k->result[i]);
	add(h, k->mean, offsetof(struct kit, n_given) - offsetof(struct kit, mean));
	hash = XXH64_digest(h);
	XXH64_freeState(h);
	return hash;
}

/* True if the same was declared before; remembers it. */
static bool was_seen(struct seen *seen, const struct kit *k)
{
	XXH64_hash_t hash = hash_of(k);

	for (int i = 0; i < seen->n; i++)
		if (seen->hash[i] == hash)
			return true;
	assert_true(seen->n < (int)(sizeof(seen->hash) / sizeof(*seen->hash)));
	seen->hash[seen->n++] = hash;
	return false;
}

/* ---- against ref ----------------------------------------------------------------------------- */

/* seen: NULL = in any case */
static double check_case(const struct jm_device *device, const struct backend_case *c,
	const struct types *t, const struct shape *d, bool flag, struct seen *seen)
{
	struct jm_err err = JM_ERR_INIT;
	struct kit tested, ref;
	double worst = 0;

	assert_ok(kit_open_on(&tested, device, t->c, &err), err);
	c->declare(&tested, t, d, flag);
	if (seen && was_seen(seen, &tested)) {
		kit_done(&tested);
		return 0;
	}
	kit_init(&ref, "ref", t->c);
	c->declare(&ref, t, d, flag);
	if (kit_run(&tested, &err) == JM_ENOSUP) {
		kit_done(&tested);
		kit_done(&ref);
		return REFUSED;
	}
	assert_ok(err.code, err);
	if (jm_graph_find(tested.graph, "last"))
		check_last(tested.program);
	assert_ok(kit_run(&ref, &err), err);
	for (int r = 0; r < ref.n_results; r++) {
		struct backend_off off = backend_compare(&tested, &ref, r, c);

		if (!(off.worst <= 1))
			print_error(
				"%s: %s, %s, shape %td, flag %d, result %d: %.3g times what is "
				"allowed; element %lld is %.9g and should be %.9g; %lld of %lld "
				"exceed it\n",
				device->backend->name, c->name, t->name, d - shapes, flag, r,
				off.worst, (long long)off.at, off.value, off.expected,
				(long long)off.n_beyond, (long long)off.n);
		worst = backend_worse(worst, off.worst);
	}
	kit_done(&tested);
	kit_done(&ref);
	return worst;
}

/* Backend cpu has nothing in f16, and the ops of serving in f32 only. */
static bool must_know(const struct backend_case *c, const struct types *t)
{
	for (const struct backend_case *p = backend_pages_cases; p->name; p++)
		if (c == p)
			return t->c == JM_F32;
	return t->c != JM_F16;
}

/* Instrumented loops of ref take ten times as long: `repeats` alone has a larger shape then, in f32
 * and the types with storage in 16 bits throughout. */
#ifdef __SANITIZE_ADDRESS__
#define SHAPES			3
#define REPEATED(index_of_type) ((index_of_type) % 2 == 0)
#else
#define SHAPES			5
#define REPEATED(index_of_type) true
#endif

static double check_op(
	const struct jm_device *device, const struct backend_case *c, int *ret_refused)
{
	struct seen seen = {0};
	double worst = 0;

	for (size_t t = 0; backend_types[t].name; t++)
		for (size_t d = 0; d < SHAPES; d++)
			for (int flag = 0; flag < 2 && is_wanted(&backend_types[t]); flag++) {
				double off = check_case(
					device, c, &backend_types[t], &shapes[d], flag, &seen);

				*ret_refused += off == REFUSED && must_know(c, &backend_types[t]);
				worst = backend_worse(worst, off);
			}
	return worst;
}

/* Our own backend knows every op. */
static bool check_list(const char *name, const struct backend_case *c)
{
	bool may_refuse = strcmp(name, "cpu") != 0, good = true;
	struct jm_err err = JM_ERR_INIT;
	struct jm_device device;

	assert_ok(jm_device_open(name, 2, &device, &err), err);
	for (; c->name; c++) {
		int refused = 0;
		double worst = check_op(&device, c, &refused);

		print_message("%-4s %-21s %5.2f of what is allowed, %d cases refused\n", name,
			c->name, worst, refused);
		good = good && worst <= 1 && (may_refuse || !refused);
	}
	jm_device_close(&device);
	return good;
}

/* ---- repeats --------------------------------------------------------------------------------- */

/* The same bits; NaNs may be equal too. */
static bool same_bits(struct kit *one, struct kit *two)
{
	bool same = true;

	for (int r = 0; r < one->n_results; r++) {
		size_t n = (size_t)jm_tensor_count(one->result[r]);
		double *a = kit_values(one, one->result[r]), *b = kit_values(two, two->result[r]);

		same = same && !memcmp(a, b, n * sizeof(*a));
		free(a);
		free(b);
	}
	return same;
}

/* Twice with two threads: the same bits. With one: within rounding. The larger shapes alone are
 * shared out. */
static bool repeat_case(const char *device, const struct backend_case *c, const struct types *t)
{
	struct jm_err err = JM_ERR_INIT;
	const struct shape *d = &shapes[3];
	struct kit kit[3];
	bool good = true;
	double off = 0;

	for (int i = 0; i < 3; i++) {
		assert_ok(kit_open(&kit[i], device, i < 2 ? 2 : 1, t->c, &err), err);
		c->declare(&kit[i], t, d, false);
		if (kit_run(&kit[i], &err) == JM_ENOSUP) {
			while (i >= 0)
				kit_done(&kit[i--]);
			return true;
		}
		assert_ok(err.code, err);
	}
	if (!same_bits(&kit[0], &kit[1])) {
		print_error("%s: %s, %s: other bits the second time\n", device, c->name, t->name);
		good = false;
	}
	for (int r = 0; r < kit[0].n_results; r++)
		off = backend_worse(off, backend_compare(&kit[2], &kit[0], r, c).worst);
	if (!(off <= 1))
		print_error("%s: %s, %s: one thread is %.3g times of what is allowed from two\n",
			device, c->name, t->name, off);
	for (int i = 0; i < 3; i++)
		kit_done(&kit[i]);
	return good && off <= 1;
}

static bool repeat_list(const char *name, const struct backend_case *c)
{
	bool good = true;

	for (; c->name; c++)
		for (size_t t = 0; backend_types[t].name; t++)
			if (is_wanted(&backend_types[t]) && REPEATED(t))
				good = repeat_case(name, c, &backend_types[t]) && good;
	return good;
}

/* A backend without its hardware is not compared; the reason is shown. */
static bool opens(const char *name)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_device d;

	if (jm_device_open(name, 1, &d, &err)) {
		print_message("%s is not compared: %s\n", name, err.text);
		return false;
	}
	jm_device_close(&d);
	return true;
}

/* With another of oneDNN's instruction sets, whose layouts differ, cases with images alone. */
static const struct {
	const struct backend_case *cases;
	bool images;
} lists[] = {{backend_row_cases, false}, {backend_image_cases, true}, {backend_norms_cases, false},
	{backend_parts_cases, false}, {backend_spectral_cases, false}, {backend_noise_cases, false},
	{backend_pages_cases, false}, {backend_group_cases, true}, {backend_sums_cases, false},
	{backend_attention_cases, false}, {backend_update_cases, false}, {backend_fp8_cases, false},
	{backend_special_cases, false}};

static void each_backend(bool (*check)(const char *name, const struct backend_case *c))
{
	char pattern[4096], name[64];
	bool good = true;
	glob_t found;

	setenv("JM_BACKENDS", "build/backends", 0); /* when run by hand */
	snprintf(pattern, sizeof(pattern), "%s/*.so", getenv("JM_BACKENDS"));
	if (glob(pattern, 0, NULL, &found)) {
		print_message("no backend but ref is built: nothing to compare\n");
		skip();
	}
	for (size_t i = 0; i < found.gl_pathc; i++) {
		const char *slash = strrchr(found.gl_pathv[i], '/');

		snprintf(name, sizeof(name), "%.*s", (int)strcspn(slash + 1, "."), slash + 1);
		if (!opens(name))
			continue;
		for (size_t k = 0; k < sizeof(lists) / sizeof(*lists); k++)
			if (lists[k].images || !getenv("ONEDNN_MAX_CPU_ISA"))
				good = check(name, lists[k].cases) && good;
	}
	globfree(&found);
	assert_true(good);
}

static void backends(void **unused)
{
	(void)unused;
	each_backend(check_list);
}

static void repeats(void **unused)
{
	(void)unused;
	each_backend(repeat_list);
}

/* Of the cpu backend, in the types that it may have to widen. */
static void large_images(void **unused)
{
	struct jm_device device;

	(void)unused;
	if (jm_device_open("cpu", 2, &device, NULL))
		skip();
	for (int add = 0; add < 2; add++)
		assert_true(check_case(&device, &backend_large_case, &backend_types[1], &shapes[0],
				    add, NULL) <= 1);
	jm_device_close(&device);
}

/* A product, or the gradient of its weights, with sums of 63 terms: oneDNN has no tiles for these
 * that run. */
static void sums_of_63(void **unused)
{
	const struct types *bf16 = &backend_types[1];
	struct jm_device device;

	(void)unused;
	if (jm_device_open("cpu", 2, &device, NULL))
		skip();
	for (const struct backend_case *c = backend_group_cases; c->name; c++) {
		if (!strcmp(c->name, "linear + gelu"))
			assert_true(check_case(&device, c, bf16, &shapes[5], true, NULL) <= 1);
		if (strstr(c->name, "linear-wgrad"))
			assert_true(check_case(&device, c, bf16, &shapes[6], true, NULL) <= 1);
	}
	jm_device_close(&device);
}

/* So many causal heads of 64, of two tickets each, that one kernel of cuda for their gradient
 * begins with their last keys (begins_with_longest of attention_tiles.cu). No drawn case has as
 * many. */
static void many_causal_heads(void **unused)
{
	const struct shape many = {.b = 92, .s = 130, .c = 640, .heads = 10, .kv_heads = 10};
	struct jm_device device;

	(void)unused;
	if (jm_device_open("cuda", 2, &device, NULL))
		skip();
	assert_string_equal(backend_attention_cases[0].name, "attention");
	assert_true(check_case(&device, &backend_attention_cases[0], &backend_types[1], &many, true,
			    NULL) <= 1);
	jm_device_close(&device);
}

/* What the backend thinks a convolution, batch norm and pooling take, in all. */
static double cost_of_images(int64_t batch, bool bf16)
{
	const struct shape d = {batch, 16, 64, 48, 4, 2};
	struct jm_err err = JM_ERR_INIT;
	double sum = 0;
	struct kit k;

	for (const struct backend_case *c = backend_image_cases; c->name; c++) {
		kit_init(&k, "cpu", backend_types[bf16].c);
		c->declare(&k, &backend_types[bf16], &d, false);
		assert_ok(jm_program_plan(k.graph, &k.device, &k.program, &err), err);
		for (int i = 0; i < k.program->n_units; i++) {
			assert_true(isfinite(k.program->unit[i]->choice.seconds));
			assert_true(k.program->unit[i]->choice.seconds > 0);
			sum += k.program->unit[i]->choice.seconds;
		}
		kit_done(&k);
	}
	return sum;
}

/* Choices are weighed by their seconds: those are known, and more work takes longer. */
static void costs(void **unused)
{
	struct jm_device device;

	(void)unused;
	if (jm_device_open("cpu", 1, &device, NULL))
		skip();
	jm_device_close(&device);
	for (int bf16 = 0; bf16 < 2; bf16++)
		for (int64_t batch = 1; batch < 64; batch *= 4)
			assert_true(cost_of_images(batch, bf16) < cost_of_images(4 * batch, bf16));
}

/* Nodes that run as one in what the cpu backend makes of a case whose results are all kept. */
static int most_joined(const struct backend_case *c)
{
	const struct types t = {"f32", JM_F32, JM_F32, JM_F32};
	const struct shape d = {2, 7, 33, 17, 1, 1};
	struct jm_err err = JM_ERR_INIT;
	struct kit k;
	int most = 0;

	kit_init(&k, "cpu", t.c);
	c->declare(&k, &t, &d, true);
	assert_ok(jm_program_plan(k.graph, &k.device, &k.program, &err), err);
	for (int i = 0; i < k.program->n_units; i++)
		if (k.program->unit[i]->group.n_nodes > most)
			most = k.program->unit[i]->group.n_nodes;
	kit_done(&k);
	return most;
}

/* True if the cpu backend has no kernel for the case: an activation is faster directly after its
 * product. */
static bool has_none(const char *name)
{
	static const char *const first[] = {
		"attention", "geglu", "gelu", "hidden", "linear", "rope", "silu", "swiglu"};

	for (size_t i = 0; i < sizeof(first) / sizeof(*first); i++)
		if (!strncmp(name, first[i], strlen(first[i])))
			return true;
	return false;
}

/* A kernel for two nodes is used when it is offered. */
static void backend_joins(void **unused)
{
	struct jm_device device;

	(void)unused;
	if (jm_device_open("cpu", 1, &device, NULL))
		skip();
	jm_device_close(&device);
	for (const struct backend_case *c = backend_group_cases; c->name; c++) {
		print_message("%s: %d\n", c->name, most_joined(c));
		assert_int_equal(most_joined(c), has_none(c->name) ? 1 : 2);
	}
}

/* LeakSanitizer trips over the thread-local storage of libraries that are loaded at run time. */
JM_API const char *__lsan_default_options(void);
JM_API const char *__lsan_default_options(void)
{
	return "use_tls=0";
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(backends), cmocka_unit_test(repeats),
		cmocka_unit_test(large_images), cmocka_unit_test(sums_of_63),
		cmocka_unit_test(many_causal_heads), cmocka_unit_test(costs),
		cmocka_unit_test(backend_joins)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
