/* SPDX-License-Identifier: Apache-2.0 */
/* From a picture of any size to the values that a network reads. */
#ifndef JM_PICTURE_CROP_H
#define JM_PICTURE_CROP_H

#include "data/sets/picture.h"
#include "picture_resize.h"

enum jm_crop_kind {
	/* a random part (8 to 100 % of the area, sides 3:4 to 4:3) resized: Szegedy et al., arXiv
	 * 1409.4842 */
	JM_CROP_RANDOM,
	/* the largest square, at a random place along the longer side, resized */
	JM_CROP_SQUARE,
	/* the same from the middle */
	JM_CROP_MIDDLE,
	/* 7/8 of the shorter side from the middle, resized: 224 of 256 */
	JM_CROP_CENTRE,
	/* a window that is moved by up to 4 pixels over black: He et al., arXiv 1512.03385, section
	 * 4.2 */
	JM_CROP_MOVED,
	/* a window in the middle, over black */
	JM_CROP_PADDED,
};

struct jm_crop {
	int size; /* pixels of both sides of the result */
	enum jm_crop_kind kind;
	bool flip; /* mirrors every other picture, at random */
	enum jm_dtype type;
	enum jm_colours colours;
};

/* What is taken of one picture, in its own pixels. */
struct jm_crop_taken {
	bool flips;
	struct jm_picture_box box; /* that is resized */
	int left, top; /* JM_CROP_MOVED, JM_CROP_PADDED: where the picture begins in the result */
};

/*
 * What is taken of a picture of this size. The seed decides all that is random. ret_part: the
 * pixels that it needs; they may be decoded 2, 4 or 8 times smaller where the part is at least as
 * many times as large as the result.
 */
void jm_crop_choose(const struct jm_crop *c, uint64_t seed, int width, int height,
	struct jm_crop_taken *ret, struct jm_picture_part *ret_part);

/* Writes [3][size][size] in the type. The picture has the part that was chosen. JM_ENOMEM. */
int jm_crop_apply(const struct jm_crop *c, const struct jm_crop_taken *taken,
	const struct jm_picture *p, struct jm_resize_room *room, void *ret, struct jm_err *err);

#endif
