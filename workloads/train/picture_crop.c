/* SPDX-License-Identifier: Apache-2.0 */
#include "picture_crop.h"

#include <math.h>
#include <string.h>

#include "engine/graph/rng.h"

#define TRIES	   10
#define AREA_LEAST 0.08
#define MOVED	   4 /* pixels */
#define MIDDLE	   0.875

static const float mean[3] = {0.485f, 0.456f, 0.406f};
static const float deviation[3] = {0.229f, 0.224f, 0.225f};

/* The part of a picture that is taken, in pixels. */
struct box {
	double x, y, width, height;
};

/* 0 <= x < 1 */
static double uniform(uint64_t seed, uint64_t *at)
{
	return (double)(jm_rng(seed, (*at)++) >> 11) * 0x1p-53;
}

static struct box middle(const struct jm_picture *p, double share)
{
	double side = share * fmin(p->width, p->height);

	return (struct box){(p->width - side) / 2, (p->height - side) / 2, side, side};
}

static struct box random_box(const struct jm_picture *p, uint64_t seed, uint64_t *at)
{
	for (int i = 0; i < TRIES; i++) {
		double share = AREA_LEAST + (1 - AREA_LEAST) * uniform(seed, at);
		double area = share * p->width * p->height;
		double ratio = exp(log(4.0 / 3) * (2 * uniform(seed, at) - 1));
		double width = round(sqrt(area * ratio)), height = round(sqrt(area / ratio));
		double right = uniform(seed, at), down = uniform(seed, at);

		if (width >= 1 && height >= 1 && width <= p->width && height <= p->height)
			return (struct box){floor(right * (p->width - width + 1)),
				floor(down * (p->height - height + 1)), width, height};
	}
	return middle(p, 1);
}

/* One side of the resizing: `n` values of the picture, from which `size` are made. */
struct side {
	double from, length;
	int n, size;
};

/* The values whose weighted mean is result i: ret_begin to the returned end - 1; *ret_at is the middle. */
static int range(const struct side *s, int i, int *ret_begin, double *ret_at)
{
	double scale = s->length / s->size, support = fmax(scale, 1);
	int end;

	*ret_at = s->from + (i + 0.5) * scale;
	*ret_begin = (int)fmin(fmax(floor(*ret_at - support + 0.5), 0), s->n - 1);
	end = (int)fmin(floor(*ret_at + support + 0.5), s->n);
	return end > *ret_begin ? end : *ret_begin + 1;
}

/* Of value x for a result in the middle `at`; above 0 for one value at least. */
static float weight_of(const struct side *s, int x, double at)
{
	return (float)fmax(1 - fabs(x + 0.5 - at) / fmax(s->length / s->size, 1), 1e-9);
}

/* Weights of all results of a row, one after the other, with sum 1 each. */
static void weigh(const struct side *s, float *ret)
{
	for (int i = 0; i < s->size; i++) {
		int begin, end;
		double at, total = 0;

		end = range(s, i, &begin, &at);
		for (int x = begin; x < end; x++)
			total += (double)weight_of(s, x, at);
		for (int x = begin; x < end; x++)
			*ret++ = (float)((double)weight_of(s, x, at) / total);
	}
}

/* One row of the picture, resized: ret[3][size]. */
static void resize_row(
	const struct side *s, const unsigned char *row, const float *weight, float *ret)
{
	for (int i = 0; i < s->size; i++) {
		float sum[3] = {0, 0, 0};
		double at;
		int begin, end = range(s, i, &begin, &at);

		for (int x = begin; x < end; x++, weight++)
			for (int c = 0; c < 3; c++)
				sum[c] += *weight * row[3 * x + c];
		for (int c = 0; c < 3; c++)
			ret[c * s->size + i] = sum[c];
	}
}

/* Adds a resized row to a row of the result. */
static void add_row(const float *row, float weight, int size, int y, float *ret)
{
	for (int c = 0; c < 3; c++)
		for (int x = 0; x < size; x++)
			ret[(c * size + y) * size + x] += weight * row[c * size + x];
}

/* Divides each row of the result by the sum of its weights. */
static void divide_rows(const float *total, int size, float *ret)
{
	for (int c = 0; c < 3; c++)
		for (int i = 0; i < size * size; i++, ret++)
			*ret /= total[i / size];
}

/* Each row of the picture is resized once and added to all rows of the result that it has a part in. */
static void resize(
	const struct jm_picture *p, const struct box *b, int size, float *scratch, float *ret)
{
	const struct side across = {b->x, b->width, p->width, size};
	const struct side down = {b->y, b->height, p->height, size};
	float *row = scratch, *total = row + 3 * size, *weight = total + size;
	int y = 0, begin, last;
	double at;

	weigh(&across, weight);
	memset(ret, 0, (size_t)(3 * size * size) * sizeof(*ret));
	memset(total, 0, (size_t)size * sizeof(*total));
	range(&down, 0, &begin, &at);
	last = range(&down, size - 1, &(int){0}, &at);
	for (int from = begin; from < last; from++) {
		resize_row(&across, p->rgb + 3 * (size_t)from * (size_t)p->width, weight, row);
		while (y < size - 1 && range(&down, y, &begin, &at) <= from)
			y++;
		for (int to = y; to < size && range(&down, to, &begin, &at) > from && begin <= from;
			to++) {
			add_row(row, weight_of(&down, from, at), size, to, ret);
			total[to] += weight_of(&down, from, at);
		}
	}
	divide_rows(total, size, ret);
}

/* The picture as it is, at a place; black around it. */
static void place(const struct jm_picture *p, int left, int top, int size, float *ret)
{
	for (int y = 0; y < size; y++)
		for (int x = 0; x < size; x++) {
			int from_x = x - left, from_y = y - top;
			bool inside = from_x >= 0 && from_x < p->width && from_y >= 0 &&
				      from_y < p->height;

			for (int c = 0; c < 3; c++)
				ret[(c * size + y) * size + x] =
					inside ? p->rgb[3 * (from_y * p->width + from_x) + c] : 0;
		}
}

static int moved_by(uint64_t seed, uint64_t *at)
{
	return (int)(uniform(seed, at) * (2 * MOVED + 1)) - MOVED;
}

static void mirror(int size, float *values)
{
	for (int row = 0; row < 3 * size; row++)
		for (int a = 0, b = size - 1; a < b; a++, b--) {
			float kept = values[row * size + a];

			values[row * size + a] = values[row * size + b];
			values[row * size + b] = kept;
		}
}

static void normalise(int size, float *values)
{
	for (int c = 0; c < 3; c++)
		for (int i = 0; i < size * size; i++, values++)
			*values = (*values / 255 - mean[c]) / deviation[c];
}

void jm_crop_apply(const struct jm_crop *c, const struct jm_picture *p, uint64_t seed,
	float *scratch, float *ret)
{
	uint64_t at = 0;
	bool flips = c->flip && uniform(seed, &at) < 0.5, moves = c->kind == JM_CROP_MOVED;
	struct box box = {0};

	if (moves || c->kind == JM_CROP_PADDED) {
		int right = moves ? moved_by(seed, &at) : 0, down = moves ? moved_by(seed, &at) : 0;

		place(p, (c->size - p->width) / 2 + right, (c->size - p->height) / 2 + down,
			c->size, ret);
	} else {
		box = c->kind == JM_CROP_RANDOM ? random_box(p, seed, &at) : middle(p, MIDDLE);
		resize(p, &box, c->size, scratch, ret);
	}
	if (flips)
		mirror(c->size, ret);
	normalise(c->size, ret);
}

size_t jm_crop_scratch(const struct jm_crop *c)
{
	/* a row, sums of weights, and weights of a row: of each value for two results, and the ends */
	return 8 * (size_t)c->size + 2 * JM_PICTURE_SIDE_MOST;
}
