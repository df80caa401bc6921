/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JM_IDX_H
#define JM_IDX_H

#include "data/sets/data_set.h"

/*
 * Fills the set from two files of IDX: pictures u8 [n][height][width] and labels u8 [n]; takes over
 * `pictures`, from malloc. Trusts nothing. JM_EFORMAT.
 */
int jm_idx_parse(struct jm_data_set *set, unsigned char *pictures, size_t n_pictures,
	const unsigned char *labels, size_t n_labels, struct jm_err *err);

#endif
