/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of one size that are in memory as they were in a file: CIFAR and IDX. */
#ifndef JM_RAW_PICTURES_H
#define JM_RAW_PICTURES_H

#include "data/sets/data_set.h"

struct jm_raw_pictures {
	unsigned char *
		bytes; /* u8 [n][stride]; planes [channels][height][width] begin at `offset` of each */
	size_t stride, offset;
	int channels; /* 1 or 3 */
};

/* The functions `read` and `close` of formats whose state is a struct jm_raw_pictures. */
int jm_raw_pictures_read(const struct jm_data_set *set, int64_t i, struct jm_picture_decoder *d,
	struct jm_picture *ret, int64_t *ret_bytes, struct jm_err *err);
void jm_raw_pictures_close(struct jm_data_set *set);

/* Names of classes, a line each, from DIR/NAME if there are as many lines as classes; else the set
 * keeps none. */
void jm_raw_pictures_name(struct jm_data_set *set, const char *dir, const char *name);

#endif
