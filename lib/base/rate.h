/* SPDX-License-Identifier: Apache-2.0 */
/* How often something may happen: so many times at once, and so many times a second. */
#ifndef JM_RATE_H
#define JM_RATE_H

#include <stdbool.h>
#include <stdint.h>

struct jm_rate {
	double per_s, most; /* most: at once */
	double left;
	int64_t then_ns;
};

static inline struct jm_rate jm_rate_of(double per_s, double most, int64_t now_ns)
{
	return (struct jm_rate){.per_s = per_s, .most = most, .left = most, .then_ns = now_ns};
}

/* ns until it may happen; 0 = now. */
static inline int64_t jm_rate_wait(struct jm_rate *r, int64_t now_ns)
{
	if (now_ns > r->then_ns)
		r->left += r->per_s * (double)(now_ns - r->then_ns) / 1e9;
	r->then_ns = now_ns;
	if (r->left > r->most)
		r->left = r->most;
	return r->left >= 1 ? 0 : (int64_t)((1 - r->left) / r->per_s * 1e9) + 1;
}

/* It happens, if it may. */
static inline bool jm_rate_take(struct jm_rate *r, int64_t now_ns)
{
	bool may = !jm_rate_wait(r, now_ns);

	r->left -= may;
	return may;
}

#endif
