/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate of each step. */
#ifndef JM_LR_SCHEDULE_H
#define JM_LR_SCHEDULE_H

#include <stdint.h>

enum jm_lr_schedule_kind { JM_LR_CONSTANT, JM_LR_COSINE, JM_LR_LINEAR, JM_LR_STEP };
extern const char *const jm_lr_schedule_kinds[]; /* NULL-terminated, in the enum's order */

/*
 * First `warmup` steps rise in a straight line to lr. Then cosine (Loshchilov and Hutter, arXiv
 * 1608.03983, without restarts) and linear fall to lr_min until step `length` and stay there; step
 * multiplies by `factor` after every `every` steps.
 */
struct jm_lr_schedule {
	enum jm_lr_schedule_kind kind;
	double lr, lr_min, factor;
	int64_t warmup, length, every;
};

double jm_lr_at(const struct jm_lr_schedule *s, int64_t step /* from 0 */);

#endif
