/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate of each step. */
#include "lr_schedule.h"

#include <math.h>
#include <stddef.h>

const char *const jm_lr_schedule_kinds[] = {"constant", "cosine", "linear", "step", NULL};

/* 0 after the warm-up, 1 at the end and from then on. */
static double share_done(const struct jm_lr_schedule *s, int64_t step)
{
	double done = (double)(step - s->warmup), all = (double)(s->length - s->warmup);

	return all > 0 && done < all ? done / all : 1;
}

double jm_lr_at(const struct jm_lr_schedule *s, int64_t step)
{
	double fall = s->lr - s->lr_min;

	if (step < s->warmup)
		return s->lr * (double)(step + 1) / (double)s->warmup;
	switch (s->kind) {
	case JM_LR_COSINE:
		return s->lr_min +
		       fall / 2 * (1 + cos(3.14159265358979323846 * share_done(s, step)));
	case JM_LR_LINEAR:
		return s->lr_min + fall * (1 - share_done(s, step));
	case JM_LR_STEP:
		return s->lr * pow(s->factor, (double)((step - s->warmup) / s->every));
	case JM_LR_CONSTANT:
		break;
	}
	return s->lr;
}
