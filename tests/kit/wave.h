/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programmed waveforms of power whose energy is known exactly, and a source that reads them through
 * a sensor like an H100's: power and counter step together once per refresh, power is the mean of a
 * window.
 */
#ifndef WAVE_H
#define WAVE_H

#include "base/ctx.h"
#include "base/clock.h"
#include "measure/session/session.h"

#define WAVE_GPUS 8

/* Power goes in straight lines between knots; before the first and after the last it stays. */
struct wave {
	int n, room;
	double *t, *watts, *slope; /* s, W, W/s from that knot on */
	double *joules;		   /* up to the knot */
};

void wave_add(struct wave *w, double t, double watts, double slope);
void wave_done(struct wave *w);
double wave_joules(const struct wave *w, double t); /* since the first knot; negative before it */
double wave_watts(const struct wave *w, double t);

/* The kinds; each fills from t = -10 s to `end`. seed: changes from call to call. */
void wave_square(struct wave *w, double low, double high, double period, double phase, double end);
void wave_telegraph(
	struct wave *w, double low, double high, double dwell, double end, uint64_t *seed);
void wave_levels(struct wave *w, double low, double high, double dwell, double end, uint64_t *seed);
void wave_ramps(struct wave *w, double low, double high, double dwell, double end, uint64_t *seed);

/* Loads of one period, phase and shape by chance. Random: the mean of both dwells is the period.
 * After WAVE_KINDS: loads whose period is not constant, or not one. */
enum wave_kind {
	WAVE_SQUARE,
	WAVE_SAW,
	WAVE_RANDOM,
	WAVE_SPIKES,
	WAVE_KINDS,
	WAVE_JITTER_1 = WAVE_KINDS, /* square; the half periods differ by up to 1 % of themselves */
	WAVE_JITTER_2,
	WAVE_JITTER_5,
	WAVE_JITTER_10,
	WAVE_DUTY_10, /* high for 10 % of a period; periods differ by up to 2 % */
	WAVE_DUTY_90,
	WAVE_NOISY,   /* square, and up to 20 to 100 W that change every 10 ms or so */
	WAVE_TONES,   /* two square loads, whose periods differ by up to 5 % */
	WAVE_OCTAVES, /* the same, one with twice the period */
	WAVE_MIXED,   /* the same, one near 1/3 to 4 times 100 ms */
	WAVE_ALL_KINDS
};
extern const char *const wave_kind_names[WAVE_ALL_KINDS];
void wave_load(struct wave *w, enum wave_kind kind, double period, double end, uint64_t *seed);

/* Square loads whose half periods differ by chance, at most by that share of themselves. */
void wave_jitter(struct wave *w, double period, double share, double end, uint64_t *seed);
/* The sum of two square loads. */
void wave_tones(struct wave *w, const double period[2], double end, uint64_t *seed);

uint64_t wave_random(uint64_t *seed);
double wave_uniform(uint64_t *seed, double low, double high);

/* What its counter does wrong, in seconds of the clock; 0 = never. */
struct wave_fault {
	double freeze_from, freeze_until;
	bool catches_up;      /* after it, by what was used meanwhile */
	double rate;	      /* counts this share of the energy; 0 = all of it */
	double jump_at, jump; /* J */
	bool power_zero;
};

/* What the source "wave" shows; one per test, set before the session opens. */
struct wave_setup {
	struct wave wave[WAVE_GPUS];
	int gpus;
	double refresh, window, tick_phase; /* s */
	double late;			    /* s by which its readings are late */
	double power_phase;		    /* s that power's ticks come after the counter's */
	double counter_step;		    /* J */
	double limit;			    /* W; 0 = the source reports none */
	double wrap, counter_start;	    /* J; wrap 0 = never */
	bool no_counter, no_power, average_only, stamped;
	bool refresh_unknown;
	double dead_from[WAVE_GPUS], dead_until[WAVE_GPUS]; /* s; both 0 = never */
	/* s: the counters are not read then, and never more from the last on; their last reading
	 * stays. 0 = never */
	double unread_from, unread_until, unread_for_good;
	double power_dead_from;		      /* s, for good; 0 = never */
	struct jm_reading counter[WAVE_GPUS]; /* the last ones */
	double reset_at[WAVE_GPUS];	      /* s; 0 = never */
	struct wave_fault fault[WAVE_GPUS];
	enum jm_scope scope;
	long reads;
};

extern struct wave_setup wave_setup;
extern const struct jm_source *const wave_sources[];

void wave_reset(void); /* an H100's sensor, no GPUs */

/* A session over the wave in simulated time: from t0 to t1 (s), opened a little before t0. */
struct wave_run {
	struct jm_ctx ctx;
	struct jm_session *session;
	int phase;
	double t0, t1;
};
int wave_measure(struct wave_run *run, double t0, double t1, double interval, struct jm_err *err);
void wave_close(struct wave_run *run);

#endif
