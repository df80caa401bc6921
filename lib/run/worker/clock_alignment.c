/* SPDX-License-Identifier: Apache-2.0 */
/* Relates the clock of a device to that of the run. */
#include "clock_alignment.h"

#include <math.h>

void jm_alignment_add(struct jm_alignment *a, const struct jm_work_time *anchor)
{
	a->n -= a->n == JM_ANCHORS;
	a->anchor[a->n++] = *anchor;
}

static int64_t middle(const struct jm_work_time *t)
{
	return t->before_ns + (t->after_ns - t->before_ns) / 2;
}

static double half_width(const struct jm_work_time *t)
{
	return 0.5 * (double)(t->after_ns - t->before_ns);
}

/* Nanoseconds of the run per nanosecond of the device. */
static double slope(const struct jm_alignment *a)
{
	const struct jm_work_time *first = &a->anchor[0], *last = &a->anchor[a->n - 1];

	if (last->device_ns <= first->device_ns)
		return 1;
	return (double)(middle(last) - middle(first)) /
	       (double)(last->device_ns - first->device_ns);
}

int64_t jm_alignment_host(const struct jm_alignment *a, int64_t device_ns)
{
	const struct jm_work_time *first = &a->anchor[0];
	int64_t passed = device_ns - first->device_ns;

	/* the part beyond `passed` alone is rounded: a double holds no clock to the ns */
	return middle(first) + passed + llround((slope(a) - 1) * (double)passed);
}

double jm_alignment_error(const struct jm_alignment *a)
{
	double width = 0, off = 0;

	for (int i = 0; i < a->n; i++) {
		const struct jm_work_time *t = &a->anchor[i];

		width = fmax(width, half_width(t));
		off = fmax(off, fabs((double)(jm_alignment_host(a, t->device_ns) - middle(t))));
	}
	return width + off;
}

double jm_alignment_drift(const struct jm_alignment *a)
{
	return a->n < 2 ? NAN : 1e6 * (1 / slope(a) - 1);
}
