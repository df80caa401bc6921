/* SPDX-License-Identifier: Apache-2.0 */
#include "picture_crop.h"

#include <math.h>

#include "engine/graph/rng.h"

#define TRIES	    10
#define AREA_LEAST  0.08
#define MOVED	    4 /* pixels */
#define MIDDLE	    0.875
#define SHRINK_MOST 8

/* ---- which part ------------------------------------------------------------------------------ */

/* 0 <= x < 1 */
static double uniform(uint64_t seed, uint64_t *at)
{
	return (double)(jm_rng(seed, (*at)++) >> 11) * 0x1p-53;
}

static struct jm_picture_box middle(int width, int height, double share)
{
	double side = share * fmin(width, height);

	return (struct jm_picture_box){(width - side) / 2, (height - side) / 2, side, side};
}

static struct jm_picture_box random_box(int width, int height, uint64_t seed, uint64_t *at)
{
	for (int i = 0; i < TRIES; i++) {
		double share = AREA_LEAST + (1 - AREA_LEAST) * uniform(seed, at);
		double area = share * width * height;
		double ratio = exp(log(4.0 / 3) * (2 * uniform(seed, at) - 1));
		double across = round(sqrt(area * ratio)), down = round(sqrt(area / ratio));
		double right = uniform(seed, at), low = uniform(seed, at);

		if (across >= 1 && down >= 1 && across <= width && down <= height)
			return (struct jm_picture_box){floor(right * (width - across + 1)),
				floor(low * (height - down + 1)), across, down};
	}
	return middle(width, height, 1);
}

static struct jm_picture_box square_box(int width, int height, uint64_t seed, uint64_t *at)
{
	struct jm_picture_box box = middle(width, height, 1);
	double place = uniform(seed, at);

	box.x = floor(place * (width - box.width + 1));
	box.y = floor(place * (height - box.height + 1));
	return box;
}

/* The part that is resized, for all kinds but those over black. */
static struct jm_picture_box box_of(
	enum jm_crop_kind kind, int width, int height, uint64_t seed, uint64_t *at)
{
	if (kind == JM_CROP_RANDOM)
		return random_box(width, height, seed, at);
	if (kind == JM_CROP_SQUARE)
		return square_box(width, height, seed, at);
	return middle(width, height, kind == JM_CROP_MIDDLE ? 1 : MIDDLE);
}

static int moved_by(uint64_t seed, uint64_t *at)
{
	return (int)(uniform(seed, at) * (2 * MOVED + 1)) - MOVED;
}

/* Values `from` to `from + length`, and those that weigh in a resizing, of `n`. */
static void widen(double from, double length, int size, int n, int *ret_from, int *ret_length)
{
	double more = fmax(length / size, 1) + 1;
	double begin = fmax(floor(from - more), 0), end = fmin(ceil(from + length + more), n);

	*ret_from = (int)begin;
	*ret_length = (int)(end - begin);
}

static void choose_part(const struct jm_picture_box *box, int size, struct jm_picture_part *part)
{
	double least = fmin(box->width, box->height);

	while (part->shrink < SHRINK_MOST && least >= 2.0 * part->shrink * size)
		part->shrink *= 2;
	widen(box->x, box->width, size, part->width, &part->left, &part->width);
	widen(box->y, box->height, size, part->height, &part->top, &part->height);
}

void jm_crop_choose(const struct jm_crop *c, uint64_t seed, int width, int height,
	struct jm_crop_taken *ret, struct jm_picture_part *ret_part)
{
	uint64_t at = 0;

	*ret_part = (struct jm_picture_part){.width = width, .height = height, .shrink = 1};
	*ret = (struct jm_crop_taken){.flips = c->flip && uniform(seed, &at) < 0.5,
		.left = (c->size - width) / 2,
		.top = (c->size - height) / 2};
	if (c->kind == JM_CROP_MOVED) {
		ret->left += moved_by(seed, &at);
		ret->top += moved_by(seed, &at);
	} else if (c->kind != JM_CROP_PADDED) {
		ret->box = box_of(c->kind, width, height, seed, &at);
		choose_part(&ret->box, c->size, ret_part);
	}
}

/* ---- its values ------------------------------------------------------------------------------ */

/* In pixels of what was decoded. */
static struct jm_picture_box box_in(const struct jm_picture_box *box, const struct jm_picture *p)
{
	return (struct jm_picture_box){box->x / p->shrink - p->left, box->y / p->shrink - p->top,
		box->width / p->shrink, box->height / p->shrink};
}

int jm_crop_apply(const struct jm_crop *c, const struct jm_crop_taken *taken,
	const struct jm_picture *p, struct jm_resize_room *room, void *ret, struct jm_err *err)
{
	const struct jm_resize_to to = {.size = c->size,
		.flips = taken->flips,
		.type = c->type,
		.colours = c->colours,
		.values = ret};
	struct jm_picture_box box = box_in(&taken->box, p);

	if (c->kind == JM_CROP_MOVED || c->kind == JM_CROP_PADDED)
		return jm_picture_place(p, taken->left, taken->top, &to, room, err);
	return jm_picture_resize(p, &box, &to, room, err);
}
