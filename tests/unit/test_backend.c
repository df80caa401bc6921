/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every backend that is built against ref: each op over several shapes, types and ways to add, with the
 * same operands. An element may differ from ref's by TOLERANCE of its size plus the results' mean size:
 * f32 leaves room for sums in another order, bf16 for one rounding more on the way.
 */
#include <glob.h>
#include <stdio.h>

#include "engine/kit.h"
#include "unit/backend_case.h"
#include "unit/test.h"

#define TOLERANCE_F32  2e-5
#define TOLERANCE_BF16 1.6e-2
/* Matrix units take probabilities and their gradients in bf16, between the two products of attention. */
#define TOLERANCE_ATTENTION 4.8e-2
#define REFUSED		    -1.0 /* a backend need not know every op; it has to say so */

static const struct types types_all[] = {
	{"f32", JM_F32, JM_F32, JM_F32},
	{"bf16", JM_BF16, JM_F32, JM_F32},
	{"bf16 throughout", JM_BF16, JM_BF16, JM_F32},
};

static const struct shape shapes[] = {
	{1, 1, 8, 8, 1, 1}, {2, 7, 33, 17, 1, 1}, {3, 16, 64, 48, 4, 2}, {2, 65, 96, 200, 6, 6},
	{1, 130, 256, 32, 1, 1}, /* one wide head */
};

static void embed(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *ids = kit_ids(k, 11, 2, DIMS(d->b, d->s));
	struct jm_tensor *table = kit_normal(k, t->v, 0, 1, 2, DIMS(11, d->c));
	struct jm_tensor *pos =
		d->b > 1 ? kit_normal(k, t->v, 0, 1, 2, DIMS(d->s + 3, d->c)) : NULL;
	struct jm_tensor *y = backend_result(k, t->a, accumulate, 3, DIMS(d->b, d->s, d->c));

	backend_node(k, JM_OP_EMBED, OPS(ids, table, pos), &y, accumulate);
}

static void embed_grad(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *ids = kit_ids(k, 11, 2, DIMS(d->b, d->s));
	struct jm_tensor *dy = kit_normal(k, t->a, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *dtable = backend_result(k, t->v, accumulate, 2, DIMS(11, d->c));
	struct jm_tensor *dpos =
		d->b > 1 ? backend_result(k, t->v, accumulate, 2, DIMS(d->s + 3, d->c)) : NULL;

	backend_node(k, JM_OP_EMBED_GRAD, OPS(ids, dy), OPS(dtable, dpos), accumulate ? 3 : 0);
}

static void linear(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.3, 2, DIMS(d->n, d->c));
	struct jm_tensor *bias = d->b > 1 ? kit_normal(k, t->v, 0, 1, 1, DIMS(d->n)) : NULL;
	struct jm_tensor *y = backend_result(k, t->c, accumulate, 3, DIMS(d->b, d->s, d->n));

	backend_node(k, JM_OP_LINEAR, OPS(x, w, bias), &y, accumulate);
}

static void linear_dgrad(
	struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->n));
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.3, 2, DIMS(d->n, d->c));
	struct jm_tensor *dx = backend_result(k, t->c, accumulate, 3, DIMS(d->b, d->s, d->c));

	backend_node(k, JM_OP_LINEAR_DGRAD, OPS(dy, w), &dx, accumulate);
}

static void linear_wgrad(
	struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->n));
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *dw = backend_result(k, t->v, accumulate, 2, DIMS(d->n, d->c));
	struct jm_tensor *db = d->b > 1 ? backend_result(k, t->v, accumulate, 1, DIMS(d->n)) : NULL;

	backend_node(k, JM_OP_LINEAR_WGRAD, OPS(dy, x), OPS(dw, db), accumulate ? 3 : 0);
}

static void gelu(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *x = kit_normal(k, t->c, 0, 2, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *y = backend_result(k, t->c, accumulate, 3, DIMS(d->b, d->s, d->c));

	backend_node(k, JM_OP_GELU, &x, &y, accumulate);
}

static void gelu_grad(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *x = kit_normal(k, t->c, 0, 2, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *dx = backend_result(k, t->c, accumulate, 3, DIMS(d->b, d->s, d->c));

	backend_node(k, JM_OP_GELU_GRAD, OPS(dy, x), &dx, accumulate);
}

/* Forward and backward, so that the statistics fit. */
static void layernorm(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	const int64_t *x_dim = DIMS(d->b, d->s, d->c);
	struct jm_tensor *x = kit_normal(k, t->a, 0.5, 2, 3, x_dim);
	struct jm_tensor *gamma = kit_normal(k, t->v, 1, 0.2, 1, DIMS(d->c));
	struct jm_tensor *beta = d->b > 1 ? kit_normal(k, t->v, 0, 1, 1, DIMS(d->c)) : NULL;
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, x_dim);
	struct jm_tensor *y = kit_out(k, t->c, 3, x_dim, NULL);
	struct jm_tensor *mean = kit_out(k, t->v, 2, x_dim, NULL);
	struct jm_tensor *rstd = kit_out(k, t->v, 2, x_dim, NULL);
	struct jm_tensor *dx = backend_result(k, t->a, accumulate, 3, x_dim);
	struct jm_tensor *dgamma = backend_result(k, t->v, accumulate, 1, DIMS(d->c));
	struct jm_tensor *dbeta = beta ? backend_result(k, t->v, accumulate, 1, DIMS(d->c)) : NULL;
	struct jm_node *fwd = backend_node(
			       k, JM_OP_LAYERNORM, OPS(x, gamma, beta), OPS(y, mean, rstd), 0),
		       *bwd;

	bwd = backend_node(k, JM_OP_LAYERNORM_GRAD, OPS(dy, x, gamma, mean, rstd),
		OPS(dx, dgamma, dbeta), accumulate ? 7 : 0);
	fwd->attr.norm.eps = bwd->attr.norm.eps = 1e-5;
	bwd->fwd = fwd;
}

static void add(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *a = kit_normal(k, t->a, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *b = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *y = backend_result(k, t->a, accumulate, 3, a->dim);

	backend_node(k, JM_OP_ADD, OPS(a, b), &y, accumulate);
}

/* From an activation that nobody else wants: dlogits may lie over it. */
static void softmax_xent(struct kit *k, const struct types *t, const struct shape *d, bool alone)
{
	struct jm_tensor *given = kit_normal(k, t->c, 0, 3, 3, DIMS(d->b, d->s, d->n));
	struct jm_tensor *x = kit_out(k, t->c, 3, given->dim, given);
	struct jm_tensor *target = kit_ids(k, d->n, 2, DIMS(d->b, d->s));
	struct jm_tensor *loss = kit_out(k, t->v, 1, DIMS(1), NULL);
	struct jm_tensor *dx = alone ? NULL : kit_out(k, t->c, 3, given->dim, NULL);

	struct jm_tensor *scale = alone ? NULL : kit_normal(k, t->v, 3, 0.5, 1, DIMS(2));

	backend_node(k, JM_OP_SOFTMAX_XENT, OPS(x, target, scale), OPS(loss, dx), 0)
		->attr.xent.scale = 0.5;
}

static void mse(struct kit *k, const struct types *t, const struct shape *d, bool alone)
{
	struct jm_tensor *y = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->n));
	struct jm_tensor *target = kit_normal(k, t->v, 0, 1, 3, DIMS(d->b, d->s, d->n));
	struct jm_tensor *loss = kit_out(k, t->v, 1, DIMS(1), NULL);
	struct jm_tensor *dy = alone ? NULL : kit_out(k, t->c, 3, y->dim, NULL);
	struct jm_tensor *scale = alone ? NULL : kit_normal(k, t->v, 3, 0.5, 1, DIMS(2));

	backend_node(k, JM_OP_MSE, OPS(y, target, scale), OPS(loss, dy), 0)->attr.xent.scale = 0.5;
}

/* Of two classes: about half of the rows are right. */
static void top1(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, 2));
	struct jm_tensor *target = kit_ids(k, 2, 2, DIMS(d->b, d->s));
	struct jm_tensor *share = backend_result(k, t->v, accumulate, 1, DIMS(1));

	backend_node(k, JM_OP_TOP1, OPS(x, target), &share, accumulate);
}

static void cast(struct kit *k, const struct types *t, const struct shape *d, bool back)
{
	struct jm_tensor *x = kit_normal(k, back ? t->c : t->v, 0, 1, 2, DIMS(d->s, d->c));
	struct jm_tensor *y = kit_out(k, back ? t->v : t->c, 2, DIMS(d->s, d->c), NULL);

	backend_node(k, JM_OP_CAST, &x, &y, 0);
}

static void rmsnorm(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	const int64_t *x_dim = DIMS(d->b, d->s, d->c);
	struct jm_tensor *x = kit_normal(k, t->a, 0.5, 2, 3, x_dim);
	struct jm_tensor *gamma = kit_normal(k, t->v, 1, 0.2, 1, DIMS(d->c));
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, x_dim);
	struct jm_tensor *y = kit_out(k, t->c, 3, x_dim, NULL);
	struct jm_tensor *rstd = kit_out(k, t->v, 2, x_dim, NULL);
	struct jm_tensor *dx = backend_result(k, t->a, accumulate, 3, x_dim);
	struct jm_tensor *dgamma = backend_result(k, t->v, accumulate, 1, DIMS(d->c));
	struct jm_node *fwd = backend_node(k, JM_OP_RMSNORM, OPS(x, gamma), OPS(y, rstd), 0), *bwd;

	bwd = backend_node(k, JM_OP_RMSNORM_GRAD, OPS(dy, x, gamma, rstd), OPS(dx, dgamma),
		accumulate ? 3 : 0);
	fwd->attr.norm.eps = bwd->attr.norm.eps = 1e-5;
	bwd->fwd = fwd;
}

/* Forward, and backward from x or, where y tells, from y. */
static void pointwise(struct kit *k, const struct types *t, const struct shape *d, bool accumulate,
	enum jm_op op, bool from_y)
{
	const int64_t *dim = DIMS(d->b, d->s, d->c);
	struct jm_tensor *x = kit_normal(k, t->c, 0, 2, 3, dim);
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, dim);
	struct jm_tensor *y = backend_result(k, t->c, accumulate, 3, dim);
	struct jm_tensor *dx = backend_result(k, t->c, accumulate, 3, dim);

	backend_node(k, op, &x, &y, accumulate);
	backend_node(k, (enum jm_op)(op + 1), OPS(dy, from_y ? y : x), &dx, accumulate);
}

static void relu(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	pointwise(k, t, d, accumulate, JM_OP_RELU, true);
}

static void gelu_erf(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	pointwise(k, t, d, accumulate, JM_OP_GELU_ERF, false);
}

static void silu(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	pointwise(k, t, d, accumulate, JM_OP_SILU, false);
}

static void swiglu(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *x = kit_normal(k, t->c, 0, 2, 3, DIMS(d->b, d->s, 2 * d->c));
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *y = backend_result(k, t->c, accumulate, 3, dy->dim);
	struct jm_tensor *dx = backend_result(k, t->c, accumulate, 3, x->dim);

	backend_node(k, JM_OP_SWIGLU, &x, &y, accumulate);
	backend_node(k, JM_OP_SWIGLU_GRAD, OPS(dy, x), &dx, accumulate);
}

static void dropout(struct kit *k, const struct types *t, const struct shape *d, bool stream)
{
	struct jm_tensor *x = kit_normal(k, stream ? t->a : t->c, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *now = kit_ids(k, 1000, 1, DIMS(1));
	struct jm_tensor *y = kit_out(k, x->type, 3, x->dim, NULL);
	struct jm_node *n = backend_node(k, JM_OP_DROPOUT, OPS(x, now), &y, 0);

	n->attr.dropout.p = 0.3;
	n->attr.dropout.seed = 5;
}

static const struct backend_case cases[] = {
	{"rmsnorm", rmsnorm},
	{"relu", relu},
	{"gelu-erf", gelu_erf},
	{"silu", silu},
	{"swiglu", swiglu},
	{"dropout", dropout},
	{"embed", embed},
	{"embed-grad", embed_grad},
	{"linear", linear},
	{"linear-dgrad", linear_dgrad},
	{"linear-wgrad", linear_wgrad},
	{"gelu", gelu},
	{"gelu-grad", gelu_grad},
	{"layernorm", layernorm},
	{"add", add},
	{"softmax-xent", softmax_xent},
	{"top1", top1},
	{"mse", mse},
	{"cast", cast},
	{0},
};

static double mean_size(const double *x, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += fabs(x[i]);
	return sum / (double)n;
}

/* The larger of two differences; nothing is larger than NaN. */
static double worse(double a, double b)
{
	return isnan(a) || a > b ? a : b;
}

/* The largest difference, in units of what is allowed. */
static double compare(struct kit *mine, struct kit *ref, int r, const struct backend_case *c)
{
	const struct jm_tensor *t = ref->result[r];
	double *a = kit_values(mine, mine->result[r]), *b = kit_values(ref, t);
	double size = mean_size(b, jm_tensor_count(t)), worst = 0;
	double tolerance = TOLERANCE_F32;

	if (ref->graph->compute == JM_BF16)
		tolerance = strncmp(c->name, "attention", 9) ? TOLERANCE_BF16 : TOLERANCE_ATTENTION;
	for (int64_t i = 0; i < jm_tensor_count(t); i++) {
		double off = fabs(a[i] - b[i]) / (tolerance * (fabs(b[i]) + size + 1e-9));
		worst = worse(worst, off);
	}
	free(a);
	free(b);
	return worst;
}

/* What backend_image.c gives with channels last is read so by all but casts; weights are second operands. */
static void check_last(const struct jm_program *p)
{
	static const struct jm_layout last = {.rank = 4, .order = {0, 2, 3, 1}};
	int images = 0;

	for (int i = 0; i < p->n_units; i++) {
		const struct jm_node *n = p->unit[i]->group.node[0];

		if (n->op == JM_OP_CAST || n->in[0]->rank != 4)
			continue;
		images++;
		if (!jm_layout_equal(&n->in[0]->layout, &last))
			fail_msg("%s reads no image with channels last", jm_op_name(n->op));
	}
	assert_true(images > 1);
}

static double check_case(const char *device, const struct backend_case *c, const struct types *t,
	const struct shape *d, bool flag)
{
	struct jm_err err = JM_ERR_INIT;
	struct kit mine, ref;
	double worst = 0;

	kit_init(&mine, device, t->c);
	kit_init(&ref, "ref", t->c);
	c->declare(&mine, t, d, flag);
	c->declare(&ref, t, d, flag);
	if (kit_run(&mine, &err) == JM_ENOSUP) {
		kit_done(&mine);
		kit_done(&ref);
		return REFUSED;
	}
	assert_ok(err.code, err);
	if (jm_graph_find(mine.graph, "last"))
		check_last(mine.program);
	assert_ok(kit_run(&ref, &err), err);
	for (int r = 0; r < ref.n_results; r++) {
		double off = compare(&mine, &ref, r, c);

		if (!(off <= 1))
			print_error("%s: %s, %s, shape %td, flag %d, result %d: %.3g times what is "
				    "allowed\n",
				device, c->name, t->name, d - shapes, flag, r, off);
		worst = worse(worst, off);
	}
	kit_done(&mine);
	kit_done(&ref);
	return worst;
}

static double check_op(const char *device, const struct backend_case *c, int *ret_refused)
{
	double worst = 0;

	for (size_t t = 0; t < sizeof(types_all) / sizeof(*types_all); t++)
		for (size_t d = 0; d < sizeof(shapes) / sizeof(*shapes); d++)
			for (int flag = 0; flag < 2; flag++) {
				double off = check_case(device, c, &types_all[t], &shapes[d], flag);

				*ret_refused += off == REFUSED;
				worst = worse(worst, off);
			}
	return worst;
}

/* Our own backend knows every op. */
static bool check_list(const char *name, const struct backend_case *c)
{
	bool may_refuse = strcmp(name, "cpu") != 0, good = true;

	for (; c->name; c++) {
		int refused = 0;
		double worst = check_op(name, c, &refused);

		print_message("%-4s %-21s %5.2f of what is allowed, %d cases refused\n", name,
			c->name, worst, refused);
		good = good && worst <= 1 && (may_refuse || !refused);
	}
	return good;
}

/* ---- repeats ------------------------------------------------------------------------------------------- */

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

/* Twice with two threads: the same bits. With one: within rounding. The larger shapes alone are shared out. */
static bool repeat_case(const char *device, const struct backend_case *c, const struct types *t)
{
	struct jm_err err = JM_ERR_INIT;
	const struct shape *d = &shapes[3];
	struct kit kit[3];
	bool good = true;
	double off = 0;

	for (int i = 0; i < 3; i++) {
		kit_open(&kit[i], device, i < 2 ? 2 : 1, t->c);
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
		off = worse(off, compare(&kit[2], &kit[0], r, c));
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
		for (size_t t = 0; t < sizeof(types_all) / sizeof(*types_all); t++)
			good = repeat_case(name, c, &types_all[t]) && good;
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
		good = check(name, cases) && good;
		good = check(name, backend_image_cases) && good;
		good = check(name, backend_group_cases) && good;
		good = check(name, backend_sums_cases) && good;
		good = check(name, backend_attention_cases) && good;
		good = check(name, backend_update_cases) && good;
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
	if (jm_device_open("cpu", 1, &device, NULL))
		skip();
	jm_device_close(&device);
	for (int add = 0; add < 2; add++)
		assert_true(check_case("cpu", &backend_large_case, &types_all[1], &shapes[0],
				    add) <= 1);
}

/* What the backend thinks a convolution, batch norm and pooling take, in all. */
static double cost_of_images(int64_t batch, bool bf16)
{
	const struct shape d = {batch, 16, 64, 48, 4, 2};
	struct jm_err err = JM_ERR_INIT;
	double sum = 0;
	struct kit k;

	for (const struct backend_case *c = backend_image_cases; c->name; c++) {
		kit_init(&k, "cpu", types_all[bf16].c);
		c->declare(&k, &types_all[bf16], &d, false);
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

/* LeakSanitizer trips over the thread-local storage of libraries that are loaded at run time. */
JM_API const char *__lsan_default_options(void);
JM_API const char *__lsan_default_options(void)
{
	return "use_tls=0";
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(backends), cmocka_unit_test(repeats),
		cmocka_unit_test(large_images), cmocka_unit_test(costs),
		cmocka_unit_test(backend_joins)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
