/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room base: what every other room needs: errors, context, clock, text, JSON and tables of its
 * keys, options, statistics, files, child processes and signals.
 * May include: none.
 *
 * Time as a parameter: the same code runs under the machine's clock and under a simulated one.
 *
 * A thread that sleeps on a clock does so through its own sleeper. Simulated time stands still
 * while any sleeper is awake and jumps to the earliest deadline when all sleep; so a thread that
 * waits for anything else (a lock held for long, a join) must first finish its sleeper.
 */
#ifndef JM_CLOCK_H
#define JM_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define JM_SECOND      INT64_C(1000000000) /* ns */
#define JM_MILLISECOND INT64_C(1000000)	   /* ns */
#define JM_FOREVER     INT64_MAX

struct jm_clock;

struct jm_clock *jm_clock_real(void);
/* Starts at t_ns = 0 with wall time wall_ns (since 1970). NULL when out of memory. */
struct jm_clock *jm_clock_new_simulated(int64_t wall_ns);
void jm_clock_free(struct jm_clock *clock); /* takes NULL; no effect on the real clock */

bool jm_clock_simulated(const struct jm_clock *clock);
int64_t jm_clock_now(struct jm_clock *clock);  /* monotonic, ns */
int64_t jm_clock_wall(struct jm_clock *clock); /* ns since 1970 */

/* Of two times. */
static inline int64_t jm_earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline int64_t jm_later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

int64_t jm_clock_thread(void); /* processor time of this thread, ns */
/* ns since the machine started: no step of the wall clock counts, and the time in which the machine
 * sleeps does. */
int64_t jm_clock_boot(void);
/* CLOCK_MONOTONIC so many ns from now, for waits in real time. */
struct timespec jm_clock_from_now(int64_t ns);

struct jm_sleeper {
	struct jm_clock *clock;
	int64_t deadline; /* while asleep */
	bool asleep, woken;
	pthread_cond_t cond;
	struct jm_sleeper *next;
};

/* Joins the clock. Of a new thread's sleeper, do this before the thread starts, or time may run
 * on. */
void jm_sleeper_init(struct jm_sleeper *s, struct jm_clock *clock);
void jm_sleeper_done(struct jm_sleeper *s);
/* Sleeps until t_ns (in the past: returns at once). True when jm_sleeper_wake ended it early. */
bool jm_sleep_until(struct jm_sleeper *s, int64_t t_ns);
/* From any thread. A wake that comes while awake ends the next sleep. */
void jm_sleeper_wake(struct jm_sleeper *s);

#endif
