/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Definitions of ref that no model uses yet. Types narrower than 32 bits: conversions against the
 * tables of their papers and against a search of all values; products of scaled operands of 8 bits
 * and in tf32 against plain sums; attention over a cache, and rotary positions as an operand.
 * Scales of 8 bits: limits, histories, all codes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kit/engine_kit.h"
#include "engine/graph/layer.h"
#include "engine/graph/rng.h"
#include "kit/test.h"

static double get(enum jm_dtype type, unsigned bits)
{
	uint16_t wide = (uint16_t)bits;
	uint8_t byte = (uint8_t)bits;

	return jm_element_get(type, type == JM_F16 ? (void *)&wide : (void *)&byte, 0);
}

static unsigned set(enum jm_dtype type, double value)
{
	uint16_t wide = 0;
	uint8_t byte = 0;

	jm_element_set(type, type == JM_F16 ? (void *)&wide : (void *)&byte, 0, value);
	return type == JM_F16 ? wide : byte;
}

/* Largest, smallest normal and smallest of all: arXiv 2209.05433, table 1, and IEEE 754. */
static void limits_are_those_of_the_papers(void **unused)
{
	(void)unused;
	assert_near(get(JM_F8E4M3, 0x7e), 448, 0);
	assert_near(get(JM_F8E4M3, 0x08), 0x1p-6, 0);
	assert_near(get(JM_F8E4M3, 0x01), 0x1p-9, 0);
	assert_true(isnan(get(JM_F8E4M3, 0x7f)) && isnan(get(JM_F8E4M3, 0xff)));
	assert_near(get(JM_F8E5M2, 0x7b), 57344, 0);
	assert_near(get(JM_F8E5M2, 0x04), 0x1p-14, 0);
	assert_near(get(JM_F8E5M2, 0x01), 0x1p-16, 0);
	assert_true(isinf(get(JM_F8E5M2, 0x7c)) && isnan(get(JM_F8E5M2, 0x7d)));
	assert_near(get(JM_F16, 0x7bff), 65504, 0);
	assert_near(get(JM_F16, 0x0400), 0x1p-14, 0);
	assert_near(get(JM_F16, 0x0001), 0x1p-24, 0);
	assert_near(get(JM_F16, 0x3c00), 1, 0);
	assert_near(get(JM_F16, 0xc000), -2, 0);
}

/* fp16 and e5m2 have infinities; of these only fp16 uses them here. */
static void numbers_beyond_the_limits_become_what_the_type_has(void **unused)
{
	(void)unused;
	assert_int_equal(set(JM_F8E4M3, 1e9), 0x7e);
	assert_int_equal(set(JM_F8E4M3, -INFINITY), 0xfe);
	assert_int_equal(set(JM_F8E5M2, 1e9), 0x7b);
	assert_int_equal(set(JM_F16, 65519.9), 0x7bff);
	assert_int_equal(set(JM_F16, 65520), 0x7c00);
	assert_int_equal(set(JM_F16, -0.0), 0x8000);
	for (enum jm_dtype t = JM_F16; t <= JM_F8E5M2; t++)
		assert_true(isnan(get(t, set(t, (double)NAN))));
}

/* The nearest of all values, the even one of two; those beyond the largest aside. */
static unsigned nearest(enum jm_dtype type, unsigned n, double x)
{
	unsigned best = 0;
	double least = INFINITY;

	for (unsigned bits = 0; bits < n; bits++) {
		double value = get(type, bits), off = fabs(value - fabs(x));

		if (!isfinite(value))
			continue;
		if (off < least || (off == least && !(bits & 1))) {
			least = off;
			best = bits;
		}
	}
	return best;
}

static void numbers_become_the_nearest(void **unused)
{
	(void)unused;
	for (enum jm_dtype t = JM_F16; t <= JM_F8E5M2; t++) {
		unsigned n = t == JM_F16 ? 0x8000 : 0x80;
		double largest = t == JM_F16 ? 65504 : t == JM_F8E4M3 ? 448 : 57344;

		for (unsigned bits = 0; bits < n; bits++)
			if (isfinite(get(t, bits)))
				assert_int_equal(set(t, get(t, bits)), bits);
		for (uint64_t i = 0; i < 300; i++) {
			double share = (double)(jm_rng(7, i) >> 11) * 0x1p-53;
			double x = largest * pow(2, -(double)(i % 40)) * share;

			assert_int_equal(set(t, x), nearest(t, n, x));
		}
		/* ties: between neighbours */
		for (unsigned bits = 0; bits + 1 < 0x60; bits++)
			assert_int_equal(set(t, (get(t, bits) + get(t, bits + 1)) / 2),
				bits & 1 ? bits + 1 : bits);
	}
}

static void tf32_keeps_ten_bits(void **unused)
{
	(void)unused;
	assert_near(jm_tf32_round(1 + 0x1p-10F), 1 + 0x1p-10, 0);
	assert_near(jm_tf32_round(1 + 0x1p-11F), 1, 0);
	assert_near(jm_tf32_round(1 + 3 * 0x1p-11F), 1 + 0x1p-9, 0);
	assert_near(jm_tf32_round(-1 - 0x1.8p-11F), -1 - 0x1p-10, 0);
	assert_true(isnan(jm_tf32_round(NAN)) && isinf(jm_tf32_round(INFINITY)));
}

/* All 256 codes by the definitions of arXiv 2209.05433, section 3: sign, exponent with its bias,
 * mantissa. */
static double decode(enum jm_dtype type, unsigned code)
{
	unsigned bits = type == JM_F8E4M3 ? 3 : 2, bias = type == JM_F8E4M3 ? 7 : 15;
	unsigned m = code & ((1U << bits) - 1), e = code >> bits & (type == JM_F8E4M3 ? 15 : 31);
	double fraction = (double)m / (1U << bits), sign = code & 0x80 ? -1 : 1;

	if (type == JM_F8E4M3 && e == 15 && m == 7)
		return NAN;
	if (type == JM_F8E5M2 && e == 31)
		return m ? (double)NAN : sign * (double)INFINITY;
	if (!e)
		return sign * fraction * pow(2, 1 - (double)bias);
	return sign * (1 + fraction) * pow(2, (double)e - (double)bias);
}

static void codes_are_those_of_the_definition(void **unused)
{
	(void)unused;
	for (enum jm_dtype t = JM_F8E4M3; t <= JM_F8E5M2; t++)
		for (unsigned code = 0; code < 256; code++) {
			double want = decode(t, code), got = get(t, code);

			assert_true(isnan(want) ? isnan(got) : got == want);
			if (isfinite(want))
				assert_int_equal(set(t, want), code);
		}
}

/* ---- ops ------------------------------------------------------------------------------------- */

#define ROWS  3
#define WIDTH 4
#define DEPTH 5
#define LAST  4 /* maxima that are kept */

/* ref, and cpu where it is built. */
static const char *const devices[] = {"ref", "cpu"};

static bool is_there(const char *name)
{
	struct jm_device d;

	if (jm_device_open(name, 1, &d, NULL))
		return false;
	jm_device_close(&d);
	return true;
}

/* Numbers, the middles between neighbours and what is next to these, numbers too large and not
 * numbers. */
static int edges(enum jm_dtype type, float *ret)
{
	int n = 0;

	for (unsigned code = 0; code < 256; code++) {
		double x = decode(type, code), above = decode(type, code + 1);
		float middle = (float)((x + above) / 2);

		if (!isfinite(x))
			continue;
		ret[n++] = (float)x;
		if (code % 128 == 127 || !isfinite(above))
			continue;
		ret[n++] = middle;
		ret[n++] = nextafterf(middle, INFINITY);
		ret[n++] = nextafterf(middle, -INFINITY);
	}
	ret[n++] = 1e30F;
	ret[n++] = -1e30F;
	ret[n++] = INFINITY;
	ret[n++] = NAN;
	return n;
}

/* By a search of all codes: the nearest, the even one of two; the largest for what is larger. */
static double rounded(enum jm_dtype type, double x)
{
	double best = 0, top = type == JM_F8E4M3 ? 448 : 57344;

	if (isnan(x))
		return x;
	if (fabs(x) >= top)
		return copysign(top, x);
	for (unsigned code = 0; code < 128; code++) {
		double value = decode(type, code), off = fabs(value - fabs(x));

		if (off < fabs(best - fabs(x)) || (off == fabs(best - fabs(x)) && !(code & 1)))
			best = value;
	}
	return copysign(best, x);
}

/* With a limit of the largest number the scale is 1. */
static void check_edges(const char *device, enum jm_dtype type)
{
	static float x[1100];
	struct jm_err err = JM_ERR_INIT;
	float limits[2 + LAST] = {type == JM_F8E4M3 ? 448 : 57344};
	int64_t n = edges(type, x);
	struct kit k;
	double *y, *kept;

	kit_init(&k, device, JM_F32);
	struct jm_tensor *wide = kit_normal(&k, JM_F32, 0, 1, 1, &n);
	struct jm_tensor *ranges = kit_normal(&k, JM_F32, 0, 0, 2, DIMS(1, 2 + LAST));
	struct jm_tensor *narrow = kit_out(&k, type, 1, &n, NULL);
	struct jm_tensor *inverse = kit_out(&k, JM_F32, 1, DIMS(1), NULL);

	jm_graph_node(k.graph, JM_OP_QUANTIZE, OPS(wide, ranges), OPS(narrow, inverse, ranges));
	kit_read(&k, narrow);
	kit_read(&k, inverse);
	assert_ok(kit_run(&k, &err), err);
	assert_ok(jm_program_write(k.program, wide, x, &err), err);
	assert_ok(jm_program_write(k.program, ranges, limits, &err), err);
	assert_ok(jm_program_run(k.program, &err), err);
	y = kit_values(&k, k.result[0]);
	for (int64_t i = 0; i < n; i++) {
		double want = rounded(type, (double)x[i]);

		if (isnan(want) ? !isnan(y[i]) : y[i] != want)
			fail_msg("%s makes %.9g of %.9g", device, y[i], (double)x[i]);
	}
	kept = kit_values(&k, ranges);
	assert_true(isinf(kept[1])); /* the infinite one counts, the NaN does not */
	free(y), free(kept);
	kit_done(&k);
}

static void rounding_is_exact(void **unused)
{
	(void)unused;
	for (size_t d = 0; d < sizeof(devices) / sizeof(*devices); d++)
		for (enum jm_dtype t = JM_F8E4M3; t <= JM_F8E5M2 && is_there(devices[d]); t++)
			check_edges(devices[d], t);
}

/* One step: x is `value` everywhere; then ranges are brought forward. Returns the number that y
 * stands for. */
static double scale_step(struct kit *k, struct jm_tensor *x, float value)
{
	float given[DEPTH];
	struct jm_err err = JM_ERR_INIT;
	double *y, *inverse, stands;

	for (int i = 0; i < DEPTH; i++)
		given[i] = value;
	assert_ok(jm_program_write(k->program, x, given, &err), err);
	assert_ok(jm_program_run(k->program, &err), err);
	y = kit_values(k, k->result[0]);
	inverse = kit_values(k, k->result[1]);
	stands = y[0] * inverse[0];
	free(y), free(inverse);
	return stands;
}

/* The first step goes by its own maximum, the others by the largest of the last ones, until it is
 * forgotten. */
static void check_history(const char *device)
{
	struct jm_err err = JM_ERR_INIT;
	float none[2 + LAST] = {0};
	struct kit k;

	kit_init(&k, device, JM_F32);
	struct jm_tensor *x = kit_normal(&k, JM_F32, 0, 1, 1, DIMS(DEPTH));
	struct jm_tensor *ranges = kit_normal(&k, JM_F32, 0, 0, 2, DIMS(1, 2 + LAST));
	struct jm_tensor *y = kit_out(&k, JM_F8E4M3, 1, DIMS(DEPTH), NULL);
	struct jm_tensor *inverse = kit_out(&k, JM_F32, 1, DIMS(1), NULL);

	jm_graph_node(k.graph, JM_OP_QUANTIZE, OPS(x, ranges), OPS(y, inverse, ranges));
	kit_read(&k, y);
	kit_read(&k, inverse);
	jm_graph_node(k.graph, JM_OP_RESCALE, OPS(ranges), OPS(ranges));
	assert_ok(kit_run(&k, &err), err);
	assert_ok(jm_program_write(k.program, ranges, none, &err), err);
	assert_near(scale_step(&k, x, 8), 8, 1e-6);   /* its own */
	assert_near(scale_step(&k, x, 100), 8, 1e-6); /* cut off at the limit of the step before */
	assert_near(scale_step(&k, x, 100), 100, 1e-5); /* now that is the limit */
	for (int i = 0; i < LAST; i++) /* LAST steps of nothing large: 100 is forgotten */
		assert_near(scale_step(&k, x, 1), 1, 0.07);
	assert_near(scale_step(&k, x, 50), 1, 1e-6);
	assert_near(scale_step(&k, x, 0), 0, 0); /* 0 gives no scale */
	assert_near(scale_step(&k, x, 50), 50, 1e-5);
	assert_true(isfinite(scale_step(&k, x, INFINITY)));
	assert_near(scale_step(&k, x, 50), 50, 1e-5); /* that was no maximum */
	kit_done(&k);
}

static void limits_follow_the_last_maxima(void **unused)
{
	(void)unused;
	for (size_t d = 0; d < sizeof(devices) / sizeof(*devices); d++)
		if (is_there(devices[d]))
			check_history(devices[d]);
}

/* x and w are quantized with separate scales, and both scales are removed from their product. */
static void products_of_eight_bits(void **unused)
{
	struct kit k;
	struct jm_err err = JM_ERR_INIT;
	double *x, *w, *y, *xs, *iw;

	(void)unused;
	kit_init(&k, "ref", JM_F32);
	struct jm_tensor *wide = kit_normal(&k, JM_F32, 0, 1, 2, DIMS(ROWS, DEPTH));
	struct jm_tensor *qx = kit_out(&k, JM_F8E4M3, 2, DIMS(ROWS, DEPTH), NULL);
	struct jm_tensor *ix = kit_out(&k, JM_F32, 1, DIMS(1), NULL);
	struct jm_tensor *qw = kit_normal(&k, JM_F8E5M2, 0, 1, 2, DIMS(WIDTH, DEPTH));
	struct jm_tensor *ws = kit_normal(&k, JM_F32, 1, 0.5, 1, DIMS(1));
	struct jm_tensor *out = kit_out(&k, JM_F32, 2, DIMS(ROWS, WIDTH), NULL);

	jm_graph_node(k.graph, JM_OP_QUANTIZE, OPS(wide), OPS(qx, ix));
	jm_graph_node(k.graph, JM_OP_LINEAR, OPS(qx, qw, NULL, ix, ws), OPS(out));
	kit_read(&k, qx);
	kit_read(&k, ix);
	kit_read(&k, out);
	assert_ok(kit_run(&k, &err), err);
	x = kit_values(&k, k.result[0]);
	xs = kit_values(&k, k.result[1]);
	y = kit_values(&k, k.result[2]);
	w = kit_values(&k, qw);
	iw = kit_values(&k, ws);
	double *given = kit_values(&k, wide), largest = 0;
	float scale;

	for (int i = 0; i < ROWS * DEPTH; i++)
		largest = fmax(largest, fabs(given[i]));
	scale = 448 / (float)largest;
	assert_near(*xs, (double)(1 / scale), 0);
	for (int i = 0; i < ROWS * DEPTH; i++)
		assert_near(x[i], rounded(JM_F8E4M3, (double)(scale * (float)given[i])), 0);
	for (int r = 0; r < ROWS; r++)
		for (int c = 0; c < WIDTH; c++) {
			double sum = 0;

			for (int d = 0; d < DEPTH; d++)
				sum += x[r * DEPTH + d] * w[c * DEPTH + d];
			assert_near(y[r * WIDTH + c], (double)(float)(*xs * *iw * sum), 0);
		}
	free(x), free(w), free(y), free(xs), free(iw), free(given);
	kit_done(&k);
}

static void products_in_tf32(void **unused)
{
	struct kit k;
	struct jm_err err = JM_ERR_INIT;
	double *x, *w, *y;
	int differ = 0;

	(void)unused;
	kit_init(&k, "ref", JM_F32);
	k.graph->math = JM_MATH_TF32;
	struct jm_tensor *tx = kit_normal(&k, JM_F32, 0, 1, 2, DIMS(ROWS, DEPTH));
	struct jm_tensor *tw = kit_normal(&k, JM_F32, 0, 1, 2, DIMS(WIDTH, DEPTH));
	struct jm_tensor *out = kit_out(&k, JM_F32, 2, DIMS(ROWS, WIDTH), NULL);

	jm_graph_node(k.graph, JM_OP_LINEAR, OPS(tx, tw), OPS(out));
	kit_read(&k, out);
	assert_ok(kit_run(&k, &err), err);
	x = kit_values(&k, tx);
	w = kit_values(&k, tw);
	y = kit_values(&k, k.result[0]);
	for (int r = 0; r < ROWS; r++)
		for (int c = 0; c < WIDTH; c++) {
			double sum = 0, exact = 0;

			for (int d = 0; d < DEPTH; d++) {
				double a = x[r * DEPTH + d], b = w[c * DEPTH + d];

				sum += (double)jm_tf32_round((float)a) *
				       (double)jm_tf32_round((float)b);
				exact += a * b;
			}
			assert_near(y[r * WIDTH + c], (double)(float)sum, 0);
			differ += y[r * WIDTH + c] != (double)(float)exact;
		}
	assert_true(differ > 0);
	free(x), free(w), free(y);
	kit_done(&k);
}

/* ---- attention over a cache ------------------------------------------------------------------ */

#define BATCH	2
#define QUERIES 2
#define KEYS	5 /* room in the cache */
#define HEADS	2
#define HEAD	4

/* Element i of key or value t of sequence b: the cache holds both, [B][KEYS][key, value][HEAD]. */
static double cached(const double *cache, int64_t b, int64_t t, int value, int64_t i)
{
	return cache[((b * KEYS + t) * 2 + value) * HEAD + i];
}

/* Softmax written out, for one query: it is number s of those that end with key length - 1. */
static void attend(const double *q, const double *cache, int64_t b, int64_t length, int64_t s,
	double scale, double *ret)
{
	double weight[KEYS], sum = 0;

	for (int64_t t = 0; t <= length - QUERIES + s; t++) {
		double score = 0;

		for (int64_t i = 0; i < HEAD; i++)
			score += q[i] * cached(cache, b, t, 0, i);
		sum += weight[t] = exp(scale * score);
	}
	for (int64_t i = 0; i < HEAD; i++) {
		ret[i] = 0;
		for (int64_t t = 0; t <= length - QUERIES + s; t++)
			ret[i] += weight[t] / sum * cached(cache, b, t, 1, i);
	}
}

/* Two queries of each sequence see the keys that are in the cache, not all of them; and turned by
 * positions that are given, a row is what it is when it is counted there. */
static void attention_over_a_cache(void **unused)
{
	struct kit k;
	struct jm_err err = JM_ERR_INIT;
	struct jm_node *n;
	double *q, *cache, *lengths, *y, y_one[HEAD];

	(void)unused;
	kit_init(&k, "ref", JM_F64);
	struct jm_tensor *tq = kit_normal(&k, JM_F64, 0, 1, 3, DIMS(BATCH, QUERIES, HEADS * HEAD));
	struct jm_tensor *tc = kit_normal(&k, JM_F64, 0, 1, 4, DIMS(BATCH, KEYS, 2, HEAD));
	struct jm_tensor *tl = kit_normal(&k, JM_I32, 3.5, 0.4, 1, DIMS(BATCH));
	struct jm_tensor *out = kit_out(&k, JM_F64, 3, tq->dim, NULL);
	struct jm_tensor *lse = kit_out(&k, JM_F64, 3, DIMS(BATCH, HEADS, QUERIES), NULL);

	n = jm_graph_node(k.graph, JM_OP_ATTENTION, OPS(tq, tc, tc, tl), OPS(out, lse));
	n->attr.attention.heads = HEADS;
	n->attr.attention.kv_heads = 1;
	n->attr.attention.causal = true;
	n->attr.attention.scale = 0.7;
	n->attr.attention.depth = HEAD;
	n->attr.attention.keys = KEYS;
	n->attr.attention.q = (struct jm_view){0, QUERIES * HEADS * HEAD, HEADS * HEAD, HEAD};
	n->attr.attention.k = (struct jm_view){0, KEYS * 2 * HEAD, 2 * HEAD, 0};
	n->attr.attention.v = (struct jm_view){HEAD, KEYS * 2 * HEAD, 2 * HEAD, 0};
	kit_read(&k, out);
	assert_ok(kit_run(&k, &err), err);
	q = kit_values(&k, tq);
	cache = kit_values(&k, tc);
	lengths = kit_values(&k, tl);
	y = kit_values(&k, k.result[0]);
	for (int64_t row = 0; row < BATCH * QUERIES * HEADS; row++) {
		int64_t b = row / (QUERIES * HEADS), s = row / HEADS % QUERIES;

		assert_true(lengths[b] >= QUERIES && lengths[b] <= KEYS);
		attend(q + row * HEAD, cache, b, (int64_t)lengths[b], s, 0.7, y_one);
		for (int64_t i = 0; i < HEAD; i++)
			assert_near(y[row * HEAD + i], y_one[i], 1e-12);
	}
	free(q), free(cache), free(lengths), free(y);
	kit_done(&k);
}

static void positions_are_an_operand(void **unused)
{
	enum { SEQ = 3, WIDTH_OF_ROW = 3 * HEAD };
	struct kit k;
	struct jm_err err = JM_ERR_INIT;
	struct jm_node *n;
	double *x, *at, *y;

	(void)unused;
	kit_init(&k, "ref", JM_F64);
	struct jm_tensor *tx = kit_normal(&k, JM_F64, 0, 1, 3, DIMS(BATCH, SEQ, WIDTH_OF_ROW));
	struct jm_tensor *tat = kit_normal(&k, JM_I32, 100, 40, 2, DIMS(BATCH, SEQ));
	struct jm_tensor *out = kit_out(&k, JM_F64, 3, tx->dim, NULL);

	n = jm_graph_node(k.graph, JM_OP_ROPE, OPS(tx, tat), OPS(out));
	n->attr.rope.heads = n->attr.rope.kv_heads = 1;
	n->attr.rope.rotary.theta = 10000;
	kit_read(&k, out);
	assert_ok(kit_run(&k, &err), err);
	x = kit_values(&k, tx);
	at = kit_values(&k, tat);
	y = kit_values(&k, k.result[0]);
	for (int64_t row = 0; row < BATCH * SEQ; row++)
		for (int64_t i = 0; i < WIDTH_OF_ROW; i++) {
			int64_t pair = i % HEAD % (HEAD / 2), first = i - i % HEAD + pair;
			double angle = at[row] * pow(10000, -2.0 * (double)pair / HEAD);
			double a = x[row * WIDTH_OF_ROW + first];
			double b = x[row * WIDTH_OF_ROW + first + HEAD / 2];
			double turned = i % HEAD < HEAD / 2 ? a * cos(angle) - b * sin(angle)
							    : b * cos(angle) + a * sin(angle);

			assert_near(y[row * WIDTH_OF_ROW + i],
				i < 2 * HEAD ? turned : x[row * WIDTH_OF_ROW + i], 1e-12);
		}
	free(x), free(at), free(y);
	kit_done(&k);
}

/* Long ones keep all of it, differ in their last character, and pass it on to copies and
 * gradients. */
static void names_have_up_to_127_characters(void **unused)
{
	char scope[JM_NAME_MOST - 10 + 1], name[JM_NAME_BYTES];
	struct jm_tensor *x, *w[2];
	struct kit k;

	(void)unused;
	memset(scope, 's', sizeof(scope) - 1);
	scope[sizeof(scope) - 1] = 0;
	kit_init(&k, "ref", JM_BF16);
	x = kit_normal(&k, JM_BF16, 0, 1, 2, DIMS(2, 4));
	jm_graph_scope(k.graph, "%s", scope);
	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "weight.%02d_", i);
		w[i] = jm_graph_matrix(k.graph, name, JM_INIT_NORMAL, 4, 4);
		assert_non_null(w[i]);
		assert_int_equal(strlen(w[i]->name), JM_NAME_MOST);
		snprintf(name, sizeof(name), "%sweight.%02d_", scope, i);
		assert_string_equal(w[i]->name, name);
		assert_ptr_equal(jm_graph_find(k.graph, name), w[i]);
	}
	jm_graph_linear(k.graph, x, w[1], NULL);
	snprintf(name, sizeof(name), "%sweight.01_", scope);
	assert_memory_equal(jm_graph_cell(k.graph, w[1])->copy->name, name, JM_NAME_MOST);
	assert_string_equal(jm_graph_cell(k.graph, w[1])->copy->name + JM_NAME_MOST, ".copy");
	assert_null(jm_graph_matrix(k.graph, "weight.0001", JM_INIT_NORMAL, 4, 4));
	assert_int_equal(k.graph->err.code, JM_ERANGE);
	assert_non_null(strstr(k.graph->err.text, "127 characters"));
	kit_done(&k);
}

/* [3][19][2][3][16 of dim 1][16 of dim 0], with padding; and back. */
static void elements_go_to_their_blocks(void **unused)
{
	enum { A = 35, B = 300, S = 6, N = A * B * S, LAID = 48 * 304 * S };
	struct jm_tensor t = {.type = JM_F32, .rank = 4, .dim = {A, B, 2, 3}};
	float *plain = malloc(N * sizeof(float)), *laid = calloc(LAID, sizeof(float));

	(void)unused;
	t.layout = (struct jm_layout){4, {0, 1, 2, 3}, 2, {1, 0}, {16, 16}};
	for (int i = 0; i < N; i++)
		plain[i] = (float)(i + 1);
	jm_tensor_reorder(&t, laid, plain, true);
	for (int i = 0; i < N; i++) {
		int a = i / S / B, b = i / S % B, block = (a / 16 * 19 + b / 16) * S + i % S;

		assert_true(laid[block * 256 + b % 16 * 16 + a % 16] == plain[i]);
	}
	memset(plain, 0, N * sizeof(float));
	jm_tensor_reorder(&t, plain, laid, false);
	for (int i = 0; i < N; i++)
		assert_true(plain[i] == (float)(i + 1));
	free(plain);
	free(laid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limits_are_those_of_the_papers),
		cmocka_unit_test(numbers_beyond_the_limits_become_what_the_type_has),
		cmocka_unit_test(numbers_become_the_nearest),
		cmocka_unit_test(tf32_keeps_ten_bits),
		cmocka_unit_test(codes_are_those_of_the_definition),
		cmocka_unit_test(rounding_is_exact),
		cmocka_unit_test(limits_follow_the_last_maxima),
		cmocka_unit_test(products_of_eight_bits),
		cmocka_unit_test(products_in_tf32),
		cmocka_unit_test(attention_over_a_cache),
		cmocka_unit_test(positions_are_an_operand),
		cmocka_unit_test(names_have_up_to_127_characters),
		cmocka_unit_test(elements_go_to_their_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
