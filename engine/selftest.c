/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of a device against ref: the tolerances, shapes from random numbers, the round of all cases. */
#include "selftest.h"

#include <math.h>
#include <stdlib.h>

#include "op_case.h"
#include "rng.h"

/*
 * An element may differ from ref's by this share of its size plus the mean size of the results: f32 leaves
 * room for sums in another order, bf16 and f16 for one rounding more on the way.
 */
#define TOLERANCE_F32  2e-5
#define TOLERANCE_BF16 1.6e-2
#define TOLERANCE_F16  2e-3
/* Matrix units take probabilities and their gradients in 16 bits, between the two products of attention. */
#define TOLERANCE_ATTENTION 3 /* times that of the type */

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

static double tolerance_of(enum jm_dtype compute, const struct backend_case *c)
{
	double each = compute == JM_BF16  ? TOLERANCE_BF16
		      : compute == JM_F16 ? TOLERANCE_F16
					  : TOLERANCE_F32;

	if (compute != JM_F32 && !strncmp(c->name, "attention", 9))
		each *= TOLERANCE_ATTENTION;
	return each;
}

double backend_compare(struct kit *mine, struct kit *ref, int r, const struct backend_case *c)
{
	const struct jm_tensor *t = ref->result[r];
	double *a = kit_values(mine, mine->result[r]), *b = kit_values(ref, t);
	double tolerance = tolerance_of(ref->graph->compute, c), size, worst = a && b ? 0 : NAN;

	size = a && b ? mean_size(b, jm_tensor_count(t)) : NAN;
	for (int64_t i = 0; a && b && i < jm_tensor_count(t); i++) {
		double off = fabs(a[i] - b[i]) / (tolerance * (fabs(b[i]) + size + 1e-9));
		worst = backend_worse(worst, off);
	}
	free(a);
	free(b);
	return worst;
}

/* ---- one case ------------------------------------------------------------------------------------------- */

struct asked {
	const char *device;
	const struct backend_case *c;
	const struct types *types;
	struct shape shape;
	bool flag;
};

static int run_one(struct kit *k, const char *device, const struct asked *a, struct jm_err *err)
{
	int code = kit_open(k, device, 0, a->types->c, err);

	if (code)
		return code;
	a->c->declare(k, a->types, &a->shape, a->flag);
	return kit_run(k, err);
}

/* Into the row: how far the results are off; a refusal; or an error, which is told with the case. */
static int run_case(const struct asked *a, struct jm_selftest_row *row, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	struct kit mine = {0}, ref = {0};
	int code = run_one(&mine, a->device, a, &why);
	bool refused = code == JM_ENOSUP;
	double worst = 0;

	if (!code)
		code = run_one(&ref, "ref", a, &why);
	for (int r = 0; !code && r < ref.n_results; r++)
		worst = backend_worse(worst, backend_compare(&mine, &ref, r, a->c));
	kit_done(&mine);
	kit_done(&ref);
	row->n_cases++;
	row->n_refused += refused;
	row->n_wrong += !code && !(worst <= 1);
	row->worst = backend_worse(row->worst, worst);
	if (!code || refused)
		return 0;
	return jm_err_set(err, code, "%s in %s on device %s fails: %s", a->c->name, a->types->name,
		a->device, why.text);
}

/* ---- all of them ---------------------------------------------------------------------------------------- */

/* From `least` to `most`. */
static int64_t draw(uint64_t *state, int64_t least, int64_t most)
{
	*state = jm_rng(*state, 1);
	return least + (int64_t)(*state % (uint64_t)(most - least + 1));
}

/*
 * Heads of at least 8 columns. round: widths of multiples of 8, for which backends have their fast kernels;
 * else odd ones come up, and single sequences in both. One position alone does not: the gradients of its
 * attention are 0, and what rounding leaves of them has no size to be measured by.
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

static int run_row(const char *device, const struct backend_case *c, uint64_t *state,
	struct jm_selftest_row *row, struct jm_err *err)
{
	struct asked a = {.device = device, .c = c};
	int code = 0;

	*row = (struct jm_selftest_row){.name = c->name};
	for (a.types = backend_types; a.types->name && !code; a.types++)
		for (int i = 0; i < 2 * JM_SELFTEST_SHAPES && !code; i++) {
			a.flag = i % 2;
			a.shape = draw_shape(state, i / 2 % 2);
			code = run_case(&a, row, err);
		}
	return code;
}

int jm_selftest(
	const char *device, uint64_t seed, jm_selftest_tell *tell, void *arg, struct jm_err *err)
{
	static const struct backend_case *const lists[] = {backend_row_cases,
		backend_attention_cases, backend_image_cases, backend_group_cases,
		backend_sums_cases, backend_update_cases};
	uint64_t state = jm_rng(seed, 0);
	struct jm_selftest_row row;
	struct jm_device d;
	int code = jm_device_open(device, 0, &d, err);

	if (code)
		return code;
	jm_device_close(&d);
	for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
		for (const struct backend_case *c = lists[i]; c->name && !code; c++) {
			code = run_row(device, c, &state, &row, err);
			if (!code)
				tell(arg, &row);
		}
	return code;
}
