/* SPDX-License-Identifier: Apache-2.0 */
/* The angles of rotary positions. */
#ifndef JM_ROTARY_H
#define JM_ROTARY_H

#include <stdint.h>

/*
 * Pair i of a head of D elements turns by w_i = theta^(-2i/D) radians a position. A factor above 1
 * stretches the slow pairs to longer texts (Llama 3.1: rope_scaling of type "llama3" in config.json
 * of Hugging Face transformers, modeling_rope_utils.py): a pair that turns less than `low` times in
 * `context` positions turns `factor` times slower, one that turns more than `high` times as before,
 * one between them by the weighted mean.
 */
struct jm_rotary {
	double theta;		   /* 10000 */
	double factor;		   /* 0 or 1: as before */
	double low, high, context; /* not read then */
};

/* Radians a position of pair 0 <= i < depth / 2. */
double jm_rotary_speed(const struct jm_rotary *r, int64_t i, int64_t depth);

#endif
