/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the benches of the sampler share. */
#ifndef BENCH_SAMPLING_H
#define BENCH_SAMPLING_H

#include "measure/session/session.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

/* Processor time of this process. */
static inline double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static inline void sleep_s(double s)
{
	struct timespec ts = {(time_t)s, (long)((s - floor(s)) * 1e9)};

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

/* Waits until the next moment of a grid of that many ns, less than a second; *ts: the moment
 * before. */
static inline void sleep_step(struct timespec *ts, long step_ns)
{
	ts->tv_nsec += step_ns;
	if (ts->tv_nsec >= 1000000000) {
		ts->tv_nsec -= 1000000000;
		ts->tv_sec++;
	}
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, ts, NULL);
}

/* Prints why and ends the bench if the session cannot be opened. */
static inline struct jm_session *must_open(struct jm_ctx *ctx, const struct jm_session_options *o)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_session *s;

	if (!jm_session_open(ctx, o, &s, &err))
		return s;
	printf("%s\n", err.text);
	exit(1);
}

#endif
