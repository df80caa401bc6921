/* SPDX-License-Identifier: Apache-2.0 */
/* Pixels to normalised values, or to bytes: resized, or as they are over black. */
#ifndef JM_PICTURE_RESIZE_H
#define JM_PICTURE_RESIZE_H

#include "data/sets/picture.h"
#include "engine/graph/model.h"
#include "engine/graph/tensor.h"

/* A part of a picture, in pixels. */
struct jm_picture_box {
	double x, y, width, height;
};

struct jm_resize_to {
	int size;	    /* pixels of both sides */
	bool flips;	    /* left becomes right */
	enum jm_dtype type; /* u8: rounded pixels, whatever the colours */
	enum jm_colours colours;
	void *values; /* [3][size][size] */
};

/* What one thread keeps from picture to picture; zeroed at first. */
struct jm_resize_room {
	float *values;
	size_t n;
};

/*
 * Resizes a part, bilinear with the triangle as wide as the step where it shrinks (as Pillow does
 * with `box`): pixels around the part weigh in at its edges. JM_ENOMEM.
 */
int jm_picture_resize(const struct jm_picture *p, const struct jm_picture_box *box,
	const struct jm_resize_to *to, struct jm_resize_room *room, struct jm_err *err);
/* The pixels as they are, the first one at (left, top) of the result; black around them.
 * JM_ENOMEM. */
int jm_picture_place(const struct jm_picture *p, int left, int top, const struct jm_resize_to *to,
	struct jm_resize_room *room, struct jm_err *err);
void jm_resize_room_done(struct jm_resize_room *room);

#endif
