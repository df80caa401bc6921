/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate of each step. */
#ifndef JM_SCHEDULE_H
#define JM_SCHEDULE_H

#include <stdint.h>

enum jm_schedule_kind {
	JM_SCHEDULE_CONSTANT,
	JM_SCHEDULE_COSINE,
	JM_SCHEDULE_LINEAR,
	JM_SCHEDULE_STEP
};
extern const char *const jm_schedule_kinds[]; /* NULL-terminated, in the enum's order */

/*
 * First `warmup` steps rise in a straight line to lr. Then cosine (Loshchilov and Hutter, arXiv
 * 1608.03983, without restarts) and linear fall to lr_min until step `length` and stay there; step
 * multiplies by `factor` after every `every` steps.
 */
struct jm_schedule {
	enum jm_schedule_kind kind;
	double lr, lr_min, factor;
	int64_t warmup, length, every;
};

double jm_schedule_lr(const struct jm_schedule *s, int64_t step /* from 0 */);

#endif
