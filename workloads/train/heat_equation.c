/* SPDX-License-Identifier: Apache-2.0 */
/*
 * u(x, t) is the real part of the sum over waves f of a_f exp(i f x - |f|^2 t), with normal a_f
 * that fall with 1 + |f|^2. The sum is made axis by axis, the first one first: waves of an axis
 * become its points.
 */
#include "heat_equation.h"
#include "engine/graph/rng.h"
#include "engine/graph/tensor.h"

#include <math.h>
#include <stdlib.h>

/* A point of an axis where a wave has the value e, or an element of a table of complex numbers. */
struct complex {
	double re, im;
};

struct axis {
	int64_t points, waves,
		least; /* of the numbers of waves: negative, but 0 of the last axis */
};

struct heat {
	int axes;
	struct axis axis[JM_AXES];
	int64_t waves, points; /* of all axes; no table on the way is larger than the points */
	int64_t most;	       /* elements of `one` of any axis */
	struct complex *from, *to,
		*one; /* tables on the way; the waves of one axis at its points */
};

static void describe(const struct jm_tensor *t, struct heat *ret)
{
	*ret = (struct heat){.axes = t->rank > 3 ? t->rank - 2 : 1, .waves = 1, .points = 1};
	for (int a = 0; a < JM_AXES; a++) /* those that there are not have one point and no wave */
		ret->axis[a] = (struct axis){1, 1, 0};
	for (int a = 0; a < ret->axes; a++) {
		int64_t n = t->dim[1 + a];
		int64_t most = (n - 1) / 2 < JM_HEAT_WAVES ? (n - 1) / 2 : JM_HEAT_WAVES;
		bool last = a == ret->axes - 1;

		ret->axis[a] = (struct axis){n, last ? most + 1 : 2 * most + 1, last ? 0 : -most};
		ret->waves *= ret->axis[a].waves;
		ret->points *= n;
		if (n * ret->axis[a].waves > ret->most)
			ret->most = n * ret->axis[a].waves;
	}
}

/* Those of the start, after this time. */
static void draw(const struct heat *h, uint64_t seed, double time)
{
	for (int64_t i = 0; i < h->waves; i++) {
		double square = 0, size;
		int64_t rest = i;
		float pair[2];

		for (int a = JM_AXES - 1; a >= 0; a--) {
			double f = (double)(rest % h->axis[a].waves + h->axis[a].least);

			square += f * f;
			rest /= h->axis[a].waves;
		}
		jm_rng_normal_pair(seed, (uint64_t)i, pair);
		size = exp(-square * time) / (1 + square);
		h->from[i] = (struct complex){size * (double)pair[0], size * (double)pair[1]};
	}
}

static void make_waves(const struct heat *h, const struct axis *a)
{
	for (int64_t k = 0; k < a->waves; k++)
		for (int64_t n = 0; n < a->points; n++) {
			double t = 2 * M_PI * (double)((k + a->least) * n % a->points) /
				   (double)a->points;

			h->one[k * a->points + n] = (struct complex){cos(t), sin(t)};
		}
}

/* from[outer, waves, inner] to to[outer, points, inner] */
static void expand(const struct heat *h, const struct axis *a, int64_t outer, int64_t inner)
{
	for (int64_t i = 0; i < outer * a->points * inner; i++)
		h->to[i] = (struct complex){0, 0};
	for (int64_t o = 0; o < outer; o++)
		for (int64_t k = 0; k < a->waves; k++)
			for (int64_t n = 0; n < a->points; n++) {
				struct complex e = h->one[k * a->points + n];
				const struct complex *x = h->from + (o * a->waves + k) * inner;
				struct complex *y = h->to + (o * a->points + n) * inner;

				for (int64_t i = 0; i < inner; i++) {
					y[i].re += x[i].re * e.re - x[i].im * e.im;
					y[i].im += x[i].re * e.im + x[i].im * e.re;
				}
			}
}

static void make_field(struct heat *h, uint64_t seed, double time)
{
	int64_t outer = 1, inner = h->waves;

	draw(h, seed, time);
	for (int a = 0; a < h->axes; a++) {
		struct complex *swap = h->from;

		inner /= h->axis[a].waves;
		make_waves(h, &h->axis[a]);
		expand(h, &h->axis[a], outer, inner);
		outer *= h->axis[a].points;
		h->from = h->to;
		h->to = swap;
	}
}

int jm_heat_fill(const struct jm_tensor *t, int64_t b, uint64_t seed, int steps, void *room,
	struct jm_err *err)
{
	int64_t fields = jm_tensor_width(t);
	struct heat h;
	struct complex *memory;

	describe(t, &h);
	memory = calloc((size_t)(2 * h.points + h.most), sizeof(*memory));
	if (!memory)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a sample of heat.");
	h.from = memory;
	h.to = memory + h.points;
	h.one = memory + 2 * h.points;
	for (int64_t c = 0; c < fields; c++) {
		make_field(&h, jm_rng(seed, (uint64_t)c), steps * JM_HEAT_STEP);
		for (int64_t p = 0; p < h.points; p++)
			jm_element_set(
				t->type, room, (b * h.points + p) * fields + c, h.from[p].re);
	}
	free(memory);
	return 0;
}
