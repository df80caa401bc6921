/* SPDX-License-Identifier: Apache-2.0 */
#include "waits.h"
#include "base/clock.h"

#include <math.h>
#include <stdlib.h>

#define STEPS 3 /* all events of older steps are reached */

/* Events on the queue before and after a wait. */
struct gap {
	struct jm_event before, behind;
	bool open;  /* recorded, but not read yet */
	bool first; /* of its step */
	long step;  /* how many had begun */
	int next;   /* of a first one: the first of the next step; -1 = none yet */
};

struct jm_waits {
	enum jm_queue queue;
	int n, now;		      /* gaps; that of the next wait */
	int first;		      /* the first gap of the newest step; -1 = none */
	const struct jm_waits *clock; /* that counts the steps; may be this one */
	double seconds;		      /* of all waits */
	double whole, newest;	      /* of steps before the newest with waits, and of that one */
	long waits, newest_step;
	long steps;	     /* of a clock: that have begun */
	int64_t first_ns;    /* in host memory: when the newest step waited; 0 = none did */
	double step_seconds; /* between first waits of steps that follow each other */
	long intervals;
	struct gap gap[];
};

int jm_waits_new(const struct jm_device *d, enum jm_queue queue, int per_step,
	struct jm_waits **ret, struct jm_err *err)
{
	size_t n = (size_t)STEPS * (size_t)per_step;
	struct jm_waits *w = calloc(1, sizeof(*w) + n * sizeof(w->gap[0]));
	int code = 0;

	if (!w)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the times of transfers.");
	w->queue = queue;
	w->clock = w;
	w->first = -1;
	for (; w->n < (int)n && !code; w->n++) {
		code = jm_event_new(d, &w->gap[w->n].before, err);
		if (!code)
			code = jm_event_new(d, &w->gap[w->n].behind, err);
	}
	if (code)
		jm_waits_free(w);
	else
		*ret = w;
	return code;
}

void jm_waits_free(struct jm_waits *w)
{
	for (int i = 0; w && i < w->n; i++) {
		jm_event_drop(&w->gap[i].before);
		jm_event_drop(&w->gap[i].behind);
	}
	free(w);
}

void jm_waits_count_by(struct jm_waits *w, const struct jm_waits *clock)
{
	if (w && clock)
		w->clock = clock;
}

/* step: how many had begun; a wait before the first belongs to none. */
static void count(struct jm_waits *w, long step, double seconds)
{
	w->waits++;
	w->seconds += seconds;
	if (step > w->newest_step) {
		w->whole += w->newest;
		w->newest = 0;
		w->newest_step = step;
	}
	if (step)
		w->newest += seconds;
}

static int read_step(struct jm_waits *w, const struct gap *first, struct jm_err *err)
{
	double seconds;
	int code = jm_event_seconds(&first->before, &w->gap[first->next].before, &seconds, err);

	if (code)
		return code;
	w->step_seconds += seconds;
	w->intervals++;
	return 0;
}

static int read_gap(struct jm_waits *w, struct gap *gap, struct jm_err *err)
{
	double seconds;
	int code;

	if (!gap->open)
		return 0;
	gap->open = false;
	code = jm_event_seconds(&gap->before, &gap->behind, &seconds, err);
	if (code)
		return code;
	count(w, gap->step, seconds);
	return gap->first && gap->next >= 0 ? read_step(w, gap, err) : 0;
}

int jm_waits_begin(struct jm_waits *w, bool first, struct jm_err *err)
{
	struct gap *gap;
	int code;

	if (!w)
		return 0;
	gap = &w->gap[w->now];
	code = read_gap(w, gap, err);
	if (first && w->first >= 0)
		w->gap[w->first].next = w->now;
	if (first) {
		w->first = w->now;
		w->steps++;
	}
	gap->first = first;
	gap->step = w->clock->steps;
	gap->next = -1;
	return code ? code : jm_event_record(&gap->before, w->queue, err);
}

int jm_waits_end(struct jm_waits *w, struct jm_err *err)
{
	struct gap *gap;
	int code;

	if (!w)
		return 0;
	gap = &w->gap[w->now];
	code = jm_event_record(&gap->behind, w->queue, err);
	gap->open = !code;
	w->now = (w->now + 1) % w->n;
	return code;
}

void jm_waits_add(struct jm_waits *w, double seconds)
{
	if (w)
		count(w, w->clock->steps, seconds);
}

void jm_waits_step(struct jm_waits *w)
{
	int64_t now = jm_clock_now(jm_clock_real());

	if (!w)
		return;
	w->steps++;
	if (w->first_ns) {
		w->step_seconds += 1e-9 * (double)(now - w->first_ns);
		w->intervals++;
	}
	w->first_ns = now;
}

void jm_waits_reset(struct jm_waits *w)
{
	if (!w)
		return;
	for (int i = 0; i < w->n; i++)
		w->gap[i].open = false;
	w->seconds = w->whole = w->newest = w->step_seconds = 0;
	w->waits = w->newest_step = w->steps = w->intervals = 0;
	w->first = -1;
	w->first_ns = 0;
}

static void read_rest(struct jm_waits *w)
{
	for (int i = 0; w && i < w->n; i++) /* the oldest first */
		read_gap(w, &w->gap[(w->now + i) % w->n], NULL);
}

/* The waits of steps that another one follows. */
static double followed(const struct jm_waits *w)
{
	return w->whole + (w->newest_step < w->clock->steps ? w->newest : 0);
}

long jm_waits_total(struct jm_waits *w, double *ret_seconds)
{
	read_rest(w);
	*ret_seconds = !w ? 0 : w->clock->steps > 1 ? followed(w) : w->seconds;
	return w ? w->waits : 0;
}

long jm_waits_steps(const struct jm_waits *w)
{
	return !w ? 0 : w->steps > 1 ? w->steps - 1 : w->steps;
}

void jm_waits_means(struct jm_waits *w, double *ret_waited, double *ret_step)
{
	double seconds;

	jm_waits_total(w, &seconds);
	*ret_waited = w && w->clock->steps ? seconds / (double)jm_waits_steps(w->clock) : NAN;
	*ret_step = w && w->intervals ? w->step_seconds / (double)w->intervals : NAN;
}
