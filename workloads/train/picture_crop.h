/* SPDX-License-Identifier: Apache-2.0 */
/* From a picture of any size to the values that a network reads. */
#ifndef JM_PICTURE_CROP_H
#define JM_PICTURE_CROP_H

#include "data/sets/picture.h"

enum jm_crop_kind {
	/* a random part (8 to 100 % of the area, sides 3:4 to 4:3) resized: Szegedy et al., arXiv 1409.4842 */
	JM_CROP_RANDOM,
	/* 7/8 of the shorter side from the middle, resized: 224 of 256 */
	JM_CROP_CENTRE,
	/* a window that is moved by up to 4 pixels over black: He et al., arXiv 1512.03385, section 4.2 */
	JM_CROP_MOVED,
	/* a window in the middle, over black */
	JM_CROP_PADDED,
};

struct jm_crop {
	int size; /* pixels of both sides of the result */
	enum jm_crop_kind kind;
	bool flip; /* mirrors every other picture, at random */
};

/*
 * Writes f32 [3][size][size]: (value / 255 - mean) / deviation of each channel, with ImageNet's mean and deviation. The seed
 * decides all that is random. Resizing is bilinear with the triangle as wide as the step where it shrinks (as Pillow does).
 * scratch: for jm_crop_scratch(c) floats.
 */
void jm_crop_apply(const struct jm_crop *c, const struct jm_picture *p, uint64_t seed,
	float *scratch, float *ret);
size_t jm_crop_scratch(const struct jm_crop *c);

#endif
