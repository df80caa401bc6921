/* SPDX-License-Identifier: Apache-2.0 */
/* The clock of the fake device of backend_later.c: it runs 40e-6 faster than CLOCK_MONOTONIC, with
 * another zero. */
#ifndef JM_LATER_CLOCK_H
#define JM_LATER_CLOCK_H

#include <stdint.h>
#include <time.h>

#define FASTER	 40e-6
#define OF_CLOCK INT64_C(1790000000000000000)

static inline int64_t host_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t own_time(int64_t host)
{
	return OF_CLOCK + host + (int64_t)(FASTER * (double)host);
}

#endif
