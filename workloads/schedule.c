/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate of each step. */
#include "schedule.h"

#include <math.h>
#include <stddef.h>

const char *const jm_schedule_kinds[] = {"constant", "cosine", "linear", "step", NULL};

/* 0 after the warm-up, 1 at the end and from then on. */
static double share_done(const struct jm_schedule *s, int64_t step)
{
	double done = (double)(step - s->warmup), all = (double)(s->length - s->warmup);

	return all > 0 && done < all ? done / all : 1;
}

double jm_schedule_lr(const struct jm_schedule *s, int64_t step)
{
	double fall = s->lr - s->lr_min;

	if (step < s->warmup)
		return s->lr * (double)(step + 1) / (double)s->warmup;
	switch (s->kind) {
	case JM_SCHEDULE_COSINE:
		return s->lr_min +
		       fall / 2 * (1 + cos(3.14159265358979323846 * share_done(s, step)));
	case JM_SCHEDULE_LINEAR:
		return s->lr_min + fall * (1 - share_done(s, step));
	case JM_SCHEDULE_STEP:
		return s->lr * pow(s->factor, (double)((step - s->warmup) / s->every));
	case JM_SCHEDULE_CONSTANT:
		break;
	}
	return s->lr;
}
