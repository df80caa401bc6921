/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of a device against ref: the tolerances, shapes from random numbers, the round of all
 * cases. */
#include "selftest.h"
#include "base/clock.h"
#include "engine/graph/rng.h"
#include "op_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * An element may differ from ref's by this share of its size plus the mean size of the results: f32
 * leaves room for sums in another order, bf16 and f16 for one rounding more on the way.
 */
#define TOLERANCE_F32  2e-5
#define TOLERANCE_BF16 1.6e-2
#define TOLERANCE_F16  2e-3
#define TOLERANCE_TF32 4e-3 /* as many bits as f16, but operands are rounded, too */
/* Matrix units round probabilities and their gradients to 16 bits between the two products of
 * attention. */
#define TOLERANCE_ATTENTION 3 /* times that of the type */
/* Rounded results are multiplied or added, and rounded again: up to 3.3 roundings. */
#define TOLERANCE_TWICE 2

/*
 * Matrix units of Hopper add products of 8 bits with 13 bits behind the point of the largest term
 * and cut off what is below (tests/hw/f8_sums.py); cuBLASLt brings such sums into f32 after every
 * 128 products at best. Sums of at most 192 products of normal values are off by up to 1.2e-3, and
 * gelu halves the mean size. Sums of whole numbers are exact.
 */
#define TOLERANCE_F8_SUMS 3e-3

/*
 * Of results that are rounded to 8 bits again, so many codes may be the next one to ref's: a sum in
 * another order may be rounded otherwise, and so be beyond the middle of two codes, or change the
 * maximum by which a row is scaled.
 */
#define NEXT_CODES(n) (2 + (n) / 50)

const struct types backend_types[] = {
	{"f32", JM_F32, JM_F32, JM_F32},
	{"bf16", JM_BF16, JM_F32, JM_F32},
	{"bf16 throughout", JM_BF16, JM_BF16, JM_F32},
	{"f16", JM_F16, JM_F32, JM_F32},
	{"f16 throughout", JM_F16, JM_F16, JM_F32},
	{NULL, 0, 0, 0},
};

static double mean_size(const double *x, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += fabs(x[i]);
	return sum / (double)n;
}

double backend_worse(double a, double b)
{
	return isnan(a) || a > b ? a : b;
}

static double tolerance_of(const struct jm_graph *g, const struct backend_case *c)
{
	bool tf32 = g->compute == JM_F32 && g->math == JM_MATH_TF32;
	double each = g->compute == JM_BF16  ? TOLERANCE_BF16
		      : g->compute == JM_F16 ? TOLERANCE_F16
		      : tf32		     ? TOLERANCE_TF32
					     : TOLERANCE_F32;

	if ((g->compute != JM_F32 || tf32) && !strncmp(c->name, "attention", 9))
		each *= TOLERANCE_ATTENTION;
	if (g->compute != JM_F32 &&
		(!strcmp(c->name, "linear + swiglu") || !strncmp(c->name, "hidden", 6) ||
			!strcmp(c->name, "linear + add + gelu-erf")))
		each *= TOLERANCE_TWICE;
	if (!strncmp(c->name, "quantize + linear", 17) && !strstr(c->name, "whole"))
		each += TOLERANCE_F8_SUMS;
	return each;
}

/* Of special cases: both NaN, or the same infinity. */
static bool is_same_special(double a, double b)
{
	return (isnan(a) && isnan(b)) || (isinf(b) && a == b);
}

static void compare_element(struct backend_off *off, int64_t i, double a, double b, double allowed)
{
	double here = fabs(a - b) / allowed;

	off->n_beyond += !(here <= 1);
	if (here <= off->worst || isnan(off->worst))
		return;
	off->worst = here;
	off->at = i;
	off->value = a;
	off->expected = b;
}

/* Not the same code, but the next one. */
static bool is_next_code(enum jm_dtype type, double a, double b)
{
	const int bits = type == JM_F8E4M3 ? 3 : 2, least = type == JM_F8E4M3 ? -6 : -14;
	int exponent;

	frexp(fmax(fabs(a), fabs(b)), &exponent);
	exponent = exponent - 1 < least ? least : exponent - 1;
	return a != b && fabs(a - b) <= ldexp(1, exponent - bits);
}

struct backend_off backend_compare(
	struct kit *tested, struct kit *ref, int r, const struct backend_case *c)
{
	const struct jm_tensor *t = ref->result[r];
	double *a = kit_values(tested, tested->result[r]), *b = kit_values(ref, t);
	double tolerance = tolerance_of(tested->graph, c), size;
	struct backend_off off = {.worst = a && b ? 0 : NAN, .n = jm_tensor_count(t)};
	bool special = !strncmp(c->name, "special", 7), is_f8 = jm_dtype_bytes(t->type) == 1;
	bool codes = is_f8 && strstr(c->name, "then quantize");
	int64_t n_next = 0;

	size = special ? 1 : a && b ? mean_size(b, off.n) : NAN;
	for (int64_t i = 0; a && b && i < off.n; i++)
		if (codes && is_next_code(t->type, a[i], b[i]))
			n_next++;
		else if (!special || !is_same_special(a[i], b[i]))
			compare_element(
				&off, i, a[i], b[i], tolerance * (fabs(b[i]) + size + 1e-9));
	off.n_beyond += n_next > NEXT_CODES(off.n) ? n_next : 0;
	off.worst = backend_worse(off.worst, (double)n_next / NEXT_CODES((double)off.n));
	free(a);
	free(b);
	return off;
}

/* ---- one case -------------------------------------------------------------------------------- */

struct asked {
	const char *device;
	const struct jm_device
		*open; /* in place of the one that is named, where it is open already */
	enum jm_math math;
	const struct backend_case *c;
	const struct types *types;
	struct shape shape;
	uint64_t seed; /* of the operands */
	bool flag;
};

static int run_one(struct kit *k, const char *device, const struct asked *a, struct jm_err *err)
{
	bool on_open = a->open && strcmp(device, "ref") != 0;
	int code = on_open ? kit_open_on(k, a->open, a->types->c, err)
			   : kit_open(k, device, 0, a->types->c, err);

	if (code)
		return code;
	if (on_open)
		k->graph->math = a->math;
	k->seed = a->seed;
	a->c->declare(k, a->types, &a->shape, a->flag);
	return kit_run(k, err);
}

static void describe_wrong(
	const struct asked *a, int r, const struct backend_off *off, char *ret, size_t size)
{
	const struct shape *d = &a->shape;

	snprintf(ret, size,
		"%s%s, b=%lld s=%lld c=%lld n=%lld heads=%d kv_heads=%d variant=%d: element %lld "
		"of "
		"%lld "
		"of result %d is %.9g and should be %.9g; %lld elements exceed the tolerance",
		a->types->name, a->math == JM_MATH_TF32 ? ", tf32" : "", (long long)d->b,
		(long long)d->s, (long long)d->c, (long long)d->n, d->heads, d->kv_heads, a->flag,
		(long long)off->at, (long long)off->n, r, off->value, off->expected,
		(long long)off->n_beyond);
}

/* All results; of the first wrong case its first wrong result is described. */
static void compare_all(
	const struct asked *a, struct kit *tested, struct kit *ref, struct jm_selftest_row *row)
{
	double worst = 0;

	for (int r = 0; r < ref->n_results; r++) {
		struct backend_off off = backend_compare(tested, ref, r, a->c);

		if (!(off.worst <= 1) && !*row->first_wrong)
			describe_wrong(a, r, &off, row->first_wrong, sizeof(row->first_wrong));
		worst = backend_worse(worst, off.worst);
	}
	row->n_wrong += !(worst <= 1);
	row->worst = backend_worse(row->worst, worst);
}

/* Stores in the row: the error of the results; a refusal; or an error, which is returned with
 * the case. */
static int run_case(const struct asked *a, struct jm_selftest_row *row, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	struct kit tested = {0}, ref = {0};
	int code = run_one(&tested, a->device, a, &why);
	bool refused = code == JM_ENOSUP;

	if (!code)
		code = run_one(&ref, "ref", a, &why);
	if (!code)
		compare_all(a, &tested, &ref, row);
	kit_done(&tested);
	kit_done(&ref);
	row->n_cases++;
	row->n_refused += refused;
	if (!code || refused)
		return 0;
	return jm_err_set(err, code, "%s in %s on device %s fails: %s", a->c->name, a->types->name,
		a->device, why.text);
}

/* ---- all cases ------------------------------------------------------------------------------- */

/* A random number from `least` to `most`. */
static int64_t draw(uint64_t *state, int64_t least, int64_t most)
{
	*state = jm_rng(*state, 1);
	return least + (int64_t)(*state % (uint64_t)(most - least + 1));
}

/*
 * Heads have at least 8 columns. round: widths are multiples of 8, for which backends have fast
 * kernels; else they may be odd. Both include single sequences. There are always several positions,
 * because with one position the gradients of attention are 0, and rounding errors cannot be
 * compared with their size.
 */
static struct shape draw_shape(uint64_t *state, bool round)
{
	struct shape d = {.b = draw(state, 1, 3), .s = draw(state, 2, 60)};
	int64_t unit = round ? 8 : 1;

	d.kv_heads = (int)draw(state, 1, 2);
	d.heads = d.kv_heads * (int)draw(state, 1, 3);
	d.c = d.heads * unit * draw(state, 8 / unit, 24 / unit);
	if (!round && d.heads == 1)
		d.c += draw(state, 0, 1);
	d.n = unit * draw(state, 8 / unit, 120 / unit);
	return d;
}

/* A row's own, so that one op alone repeats what it did among all. */
static uint64_t state_of(uint64_t seed, const char *name)
{
	uint64_t state = jm_rng(seed, 0);

	while (*name)
		state = jm_rng(state, (unsigned char)*name++);
	return state;
}

static int run_types(
	struct asked *a, uint64_t *state, struct jm_selftest_row *row, struct jm_err *err)
{
	int code = 0;

	for (int i = 0; i < 2 * JM_SELFTEST_SHAPES && !code; i++) {
		a->flag = i % 2;
		a->shape = draw_shape(state, i / 2 % 2);
		code = run_case(a, row, err);
	}
	return code;
}

/* All types, then convolutions in tf32 where the device has it. */
static int run_row(const char *device, const struct jm_device *open, const struct backend_case *c,
	uint64_t seed, struct jm_selftest_row *row, struct jm_err *err)
{
	uint64_t state = state_of(seed, c->name);
	struct asked a = {.device = device, .open = open, .c = c, .seed = state};
	int code = 0;

	*row = (struct jm_selftest_row){.name = c->name};
	for (a.types = backend_types; a.types->name && !code; a.types++)
		code = run_types(&a, &state, row, err);
	a.types = backend_types;
	a.math = JM_MATH_TF32;
	if (!code && open->props.peak_tf32 > 0 && !strncmp(c->name, "conv", 4))
		code = run_types(&a, &state, row, err);
	return code;
}

static const struct backend_case *const lists[] = {backend_row_cases, backend_attention_cases,
	backend_image_cases, backend_group_cases, backend_sums_cases, backend_update_cases,
	backend_fp8_cases, backend_norms_cases, backend_pages_cases, backend_parts_cases,
	backend_spectral_cases, backend_noise_cases, backend_special_cases};
#define N_LISTS (sizeof(lists) / sizeof(*lists))

static bool is_asked_for(const struct jm_selftest_request *r, const char *name)
{
	return r->exact ? !strcmp(name, r->op) : !strncmp(name, r->op, strlen(r->op));
}

int jm_selftest(
	const struct jm_selftest_request *r, jm_selftest_tell *tell, void *arg, struct jm_err *err)
{
	struct jm_selftest_row row = {.name = NULL};
	struct jm_device d;
	int code = jm_device_open(r->device, 0, &d, err);

	if (code)
		return code;
	for (size_t i = 0; i < N_LISTS; i++)
		for (const struct backend_case *c = lists[i]; c->name && !code; c++) {
			if (!is_asked_for(r, c->name))
				continue;
			code = run_row(r->device, &d, c, r->seed, &row, err);
			if (!code)
				tell(arg, &row);
		}
	jm_device_close(&d);
	if (!code && !row.name)
		return jm_err_set(err, JM_EUSAGE,
			"No operation of the self-test has %s '%s'; without --op all of them are "
			"listed.",
			r->exact ? "the name" : "a name that begins with", r->op);
	return code;
}

/* ---- the short test before a run ------------------------------------------------------------- */

#define MOST_CASES 128

/* Shapes that fast kernels accept, and that the reference computes in a short time. */
static struct shape draw_small(uint64_t *state)
{
	struct shape d = {.b = draw(state, 1, 2), .s = draw(state, 2, 16)};

	d.kv_heads = 1;
	d.heads = (int)draw(state, 1, 2);
	d.c = d.heads * 8 * draw(state, 1, 2);
	d.n = 8 * draw(state, 1, 4);
	return d;
}

/* The cost of each op of a graph in FLOPs, where a byte counts as the FLOPs that a GPU computes
 * meanwhile. 0 = the graph does not have the op. */
static void weigh(const struct jm_graph *g, double weight[JM_OP_COUNT])
{
	const double flops_per_byte = 200;

	for (int i = 0; i < g->n_nodes; i++) {
		const struct jm_node *n = g->node[i];

		weight[n->op] += 1 + n->flops_executed + flops_per_byte * n->bytes;
	}
}

static int find_op(const char *name, size_t length)
{
	for (int op = 0; op < JM_OP_COUNT; op++) {
		const char *own = jm_op_name((enum jm_op)op);

		if (strlen(own) == length && !strncmp(own, name, length))
			return op;
	}
	return -1;
}

/* The cost of the ops in the name of a case ("linear + gelu"); 0 = one of them is not in the
 * graph. */
static double weight_of(const char *name, const double weight[JM_OP_COUNT])
{
	double sum = 0;

	while (*name) {
		size_t length = strcspn(name, " ,");
		int op = find_op(name, length);

		if (op < 0 || !(weight[op] > 0))
			return 0;
		sum += weight[op];
		name += length;
		if (strncmp(name, " + ", 3) != 0)
			break; /* ", stem", " (+)": variants of the same op */
		name += 3;
	}
	return sum;
}

struct ranked {
	const struct backend_case *c;
	double weight;
};

static int heavier(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	return (x->weight < y->weight) - (x->weight > y->weight);
}

/* The cases of the graph's ops, the most costly first. */
static int rank_cases(const struct jm_graph *g, struct ranked *ret)
{
	double weight[JM_OP_COUNT] = {0};
	int n = 0;

	weigh(g, weight);
	for (size_t i = 0; i < N_LISTS; i++)
		for (const struct backend_case *c = lists[i]; c->name && n < MOST_CASES; c++) {
			ret[n] = (struct ranked){c, weight_of(c->name, weight)};
			n += ret[n].weight > 0;
		}
	qsort(ret, (size_t)n, sizeof(*ret), heavier);
	return n;
}

static const struct types *types_of(enum jm_dtype compute)
{
	for (const struct types *t = backend_types; t->name; t++)
		if (t->c == compute)
			return t;
	return NULL;
}

static int judge(const struct asked *a, const struct jm_selftest_row *row, struct jm_err *err)
{
	if (!row->n_wrong)
		return 0;
	return jm_err_set(err, JM_EIO,
		"Device %s computes %s wrongly: the largest difference from the reference is %.3g "
		"times what rounding explains (%s). 'joulemark selftest --device %s' tests every "
		"operation; --selftest 0 omits this test.",
		a->device, a->c->name, row->worst, row->first_wrong, a->device);
}

int jm_selftest_short(const char *device, const struct jm_device *open, const struct jm_graph *g,
	double budget_s, struct jm_selftest_short *ret, struct jm_err *err)
{
	struct asked a = {.device = device,
		.open = open,
		.math = g->math,
		.types = types_of(g->compute),
		.seed = 1};
	struct ranked ranked[MOST_CASES];
	struct jm_clock *clock = jm_clock_real();
	int64_t begin = jm_clock_now(clock);
	uint64_t state = jm_rng(1, 0);
	int n = a.types ? rank_cases(g, ranked) : 0, code = 0;

	*ret = (struct jm_selftest_short){.n_left_out = n};
	for (int i = 0; i < n && !code && ret->seconds < budget_s; i++) {
		struct jm_selftest_row row = {.name = ranked[i].c->name};

		a.c = ranked[i].c;
		a.shape = draw_small(&state);
		code = run_case(&a, &row, err);
		if (!code)
			code = judge(&a, &row, err);
		ret->n_cases += !row.n_refused;
		ret->n_refused += row.n_refused;
		ret->n_left_out--;
		ret->worst = backend_worse(ret->worst, row.worst);
		ret->seconds = 1e-9 * (double)(jm_clock_now(clock) - begin);
	}
	return code;
}
