/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's clock and the simulated one. */
#include "base/clock.h"

#include <stdlib.h>
#include <time.h>

struct jm_clock {
	bool simulated;
	pthread_mutex_t lock;
	/* simulated only: */
	int64_t now, wall_offset;
	int joined, asleep;
	struct jm_sleeper *sleepers;
};

static int64_t read_clock(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return ts.tv_sec * JM_SECOND + ts.tv_nsec;
}

struct jm_clock *jm_clock_real(void)
{
	static struct jm_clock real = {.lock = PTHREAD_MUTEX_INITIALIZER};

	return &real;
}

struct jm_clock *jm_clock_new_simulated(int64_t wall_ns)
{
	struct jm_clock *clock = calloc(1, sizeof(*clock));

	if (!clock)
		return NULL;
	clock->simulated = true;
	clock->wall_offset = wall_ns;
	pthread_mutex_init(&clock->lock, NULL);
	return clock;
}

void jm_clock_free(struct jm_clock *clock)
{
	if (!clock || !clock->simulated)
		return;
	pthread_mutex_destroy(&clock->lock);
	free(clock);
}

bool jm_clock_simulated(const struct jm_clock *clock)
{
	return clock->simulated;
}

int64_t jm_clock_now(struct jm_clock *clock)
{
	int64_t now;

	if (!clock->simulated)
		return read_clock(CLOCK_MONOTONIC);
	pthread_mutex_lock(&clock->lock);
	now = clock->now;
	pthread_mutex_unlock(&clock->lock);
	return now;
}

int64_t jm_clock_wall(struct jm_clock *clock)
{
	if (!clock->simulated)
		return read_clock(CLOCK_REALTIME);
	return clock->wall_offset + jm_clock_now(clock);
}

int64_t jm_clock_thread(void)
{
	return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

int64_t jm_clock_boot(void)
{
	return read_clock(CLOCK_BOOTTIME);
}

struct timespec jm_clock_from_now(int64_t ns)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += ns % JM_SECOND;
	until.tv_sec += ns / JM_SECOND + until.tv_nsec / JM_SECOND;
	until.tv_nsec %= JM_SECOND;
	return until;
}

void jm_sleeper_init(struct jm_sleeper *s, struct jm_clock *clock)
{
	pthread_condattr_t attr;

	*s = (struct jm_sleeper){.clock = clock};
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->cond, &attr);
	pthread_condattr_destroy(&attr);
	if (!clock->simulated)
		return;
	pthread_mutex_lock(&clock->lock);
	clock->joined++;
	s->next = clock->sleepers;
	clock->sleepers = s;
	pthread_mutex_unlock(&clock->lock);
}

/* With the lock held: when all threads sleep, time moves to the earliest deadline. */
static void advance(struct jm_clock *clock)
{
	int64_t earliest = JM_FOREVER;

	if (clock->asleep < clock->joined)
		return;
	for (struct jm_sleeper *s = clock->sleepers; s; s = s->next)
		if (s->deadline < earliest)
			earliest = s->deadline;
	if (earliest == JM_FOREVER)
		return;
	clock->now = earliest;
	for (struct jm_sleeper *s = clock->sleepers; s; s = s->next) {
		if (s->deadline > clock->now)
			continue;
		s->asleep = false;
		s->deadline = JM_FOREVER;
		clock->asleep--;
		pthread_cond_signal(&s->cond);
	}
}

void jm_sleeper_done(struct jm_sleeper *s)
{
	struct jm_clock *clock = s->clock;

	if (!clock)
		return;
	if (clock->simulated) {
		pthread_mutex_lock(&clock->lock);
		for (struct jm_sleeper **p = &clock->sleepers; *p; p = &(*p)->next) {
			if (*p == s) {
				*p = s->next;
				break;
			}
		}
		clock->joined--;
		if (clock->joined)
			advance(clock);
		pthread_mutex_unlock(&clock->lock);
	}
	pthread_cond_destroy(&s->cond);
	s->clock = NULL;
}

static void sleep_simulated(struct jm_sleeper *s, int64_t t_ns)
{
	struct jm_clock *clock = s->clock;

	if (t_ns <= clock->now)
		return;
	s->deadline = t_ns;
	s->asleep = true;
	clock->asleep++;
	advance(clock);
	while (s->asleep)
		pthread_cond_wait(&s->cond, &clock->lock);
}

static void sleep_real(struct jm_sleeper *s, int64_t t_ns)
{
	struct timespec ts = {.tv_sec = t_ns / JM_SECOND, .tv_nsec = t_ns % JM_SECOND};

	while (!s->woken && read_clock(CLOCK_MONOTONIC) < t_ns)
		pthread_cond_timedwait(&s->cond, &s->clock->lock, &ts);
}

bool jm_sleep_until(struct jm_sleeper *s, int64_t t_ns)
{
	struct jm_clock *clock = s->clock;
	bool woken;

	pthread_mutex_lock(&clock->lock);
	if (!s->woken) {
		if (clock->simulated)
			sleep_simulated(s, t_ns);
		else
			sleep_real(s, t_ns);
	}
	woken = s->woken;
	s->woken = false;
	pthread_mutex_unlock(&clock->lock);
	return woken;
}

void jm_sleeper_wake(struct jm_sleeper *s)
{
	struct jm_clock *clock = s->clock;

	pthread_mutex_lock(&clock->lock);
	s->woken = true;
	if (s->asleep) {
		s->asleep = false;
		s->deadline = JM_FOREVER;
		clock->asleep--;
	}
	pthread_cond_signal(&s->cond);
	pthread_mutex_unlock(&clock->lock);
}
