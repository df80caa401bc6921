/* SPDX-License-Identifier: Apache-2.0 */
/* Two methods of computing a meter's energy, and the results of each; energy.c combines them. */
#ifndef JM_ENERGY_PARTS_H
#define JM_ENERGY_PARTS_H

#include "meter/meter.h"
#include "trace/trace.h"

#define Z95 1.96 /* standard deviations of a 95 % interval */

struct jm_fault;

struct jm_trace_interval {
	const struct jm_trace *trace;
	const struct jm_meters *set;
	int64_t t0, t1;
};

struct jm_part {
	double joules;	 /* NAN where a part of the stretch is unknown */
	double known;	 /* J over what is known */
	double variance; /* J^2, of joules */
	double covered_s;
	double watts_max;
	long samples, gaps;
	int resets; /* counter */
	/* counter: J, 95 %, that the device may have used beyond it: it was not seen to step at the
	 * end; 0 = none */
	double hidden;
	/* power: share of the time between the sensor's windows; 0 = none, or unknown */
	double unseen;
	/* power: the readings are few and alike, so that they may all show one moment of the
	 * load */
	bool alike;
	bool few;   /* power: the readings are too few to tell that they do not */
	int places; /* power: as in struct jm_energy */
};

/* power_slots.c: power by its readings, each of which holds until the next one. */
struct jm_held_power {
	double joules, covered_s, most; /* of the time with readings; most: W, 0 = none */
	double zero_s;			/* of covered_s, at 0 W */
};
/* Adds the interval to the sum, from the trace. */
int jm_power_held(const struct jm_trace *trace, int signal, int64_t t0, int64_t t1,
	struct jm_held_power *sum, struct jm_err *err);

/* A slot before and after a moment within it. */
struct jm_split {
	bool known;
	int64_t t;
	struct jm_held_power before, after;
};

#define JM_POWER_SLOTS 512
struct jm_power_slots {
	int64_t t0, t1, length; /* of one slot */
	struct jm_held_power slot[JM_POWER_SLOTS];
	int n; /* the slot that is being filled, up to `at`; it ends at `end` */
	int64_t at, end;
	double value; /* that holds from there on */
	struct jm_split split;
};
void jm_power_slots_init(struct jm_power_slots *c, int64_t t0, int64_t t1);
/* In order of time; the last one before t0, too. */
void jm_power_slots_add(struct jm_power_slots *c, const struct jm_reading *reading, int n);
void jm_power_slots_end(struct jm_power_slots *c);
/* Like jm_power_held; readings within the slots are not read again. */
int jm_power_slots_held(struct jm_power_slots *c, const struct jm_trace *trace, int signal,
	int64_t t0, int64_t t1, struct jm_held_power *sum, struct jm_err *err);

/* Gets the readings of a signal while another function iterates over them. */
struct jm_watch {
	int64_t t0, t1; /* as in jm_trace_each_some */
	jm_readings_fn *fn;
	void *arg;
};

/* energy_counter.c: signal is a counter; power: the meter's power signal for the shape, or -1;
 * watch: also gets the readings of the counter, at least those of its own interval; NULL = none */
int jm_energy_by_counter(const struct jm_trace_interval *s, int signal, int power,
	const struct jm_watch *watch, struct jm_part *ret, struct jm_err *err);

/* The signals of a meter; -1 = it has none. shape: the power that shows what happens within a
 * counter's step. */
struct jm_meter_signals {
	int meter, counter, power, shape;
	double limit; /* W: the highest limit of the device in the interval; 0 = not known */
};
/* energy_power.c: of m's power; *slots are filled from a while before the interval to a while
 * after */
int jm_energy_by_power(const struct jm_trace_interval *s, const struct jm_meter_signals *m,
	struct jm_power_slots *slots, struct jm_part *ret, struct jm_err *err);
/* energy_check.c: the energy by counter, and can the readings be true? slots: of the power. */
int jm_energy_check(const struct jm_trace_interval *s, const struct jm_meter_signals *m,
	struct jm_power_slots *slots, struct jm_part *ret_counter, struct jm_fault *ret,
	struct jm_err *err);

/* energy_pattern.c: how readings of power follow each other, one a refresh. Constant memory. */
#define JM_PATTERN_LAGS 32
#define JM_PATTERN_TRACKS                                                                          \
	8 /* a load of nearly so many refreshes shows as many slow waves in turn */
struct jm_pattern {
	double last[2 *
		    JM_PATTERN_LAGS]; /* the newest readings, the newest one first from `at` on */
	int at;
	double apart[JM_PATTERN_LAGS];	 /* W^2, sums, at lags of 1 refresh and more */
	double first;			 /* W, the first reading */
	double sum, squares;		 /* W and W^2, of what readings differ from the first */
	double least, most;		 /* W */
	double jump[JM_PATTERN_TRACKS];	 /* W, the largest change, at lags of 1 refresh and more */
	double path[JM_PATTERN_TRACKS];	 /* W, the sum of these changes */
	long n, compared;		 /* readings; those in `apart` */
	double before_last, last_change; /* W, from reading to reading */
	double step;	     /* W, the largest change between readings that are steady */
	long turns;	     /* ways from near one end of the range to near the other */
	int end;	     /* that the readings were near last: 1 = most, -1 = least */
	double range_turned; /* W, the range when the turns began to count */
	int side;	     /* of the mean so far, that the last reading was on */
	long since, longest; /* readings: where that side began; most on one side */
};
/* A value that stays for n refreshes. */
void jm_pattern_add(struct jm_pattern *p, double watts, long n);
double jm_pattern_mean(const struct jm_pattern *p); /* W */
/* By how much a load that repeats makes the variance of the energy grow, or shrink if many readings
 * show it at different places; 1 = it does not repeat. */
double jm_pattern_repeats(const struct jm_pattern *p);
/* Variance of readings by half the mean square of their changes, at most 1: readings that swing
 * from high to low and back change by more than what is missed between them. */
double jm_pattern_swing(const struct jm_pattern *p);
/* How many moments of its load the sensor saw, over and over, if they are few; else 0. */
int jm_pattern_places(const struct jm_pattern *p);
/* W, 95 %: how far the mean may be off because a slow wave of readings may be an alias of a fast
 * load; 0 = the readings show no such wave. limit: W, of the device; 0 = not known. */
double jm_pattern_alias(const struct jm_pattern *p, double seen_share, double limit);

/*
 * How power went around an edge: levels, and gaps between readings in which it went from one to the
 * next at a moment that is not known. Where in the gaps it did is one number, share, from 0 to 1.
 */
#define JM_SHAPE_GAPS 40
struct jm_shape {
	int n;
	struct {
		int64_t begin, end;
		double from, to; /* W */
	} gap[JM_SHAPE_GAPS];
};

struct jm_plateau;

/* energy_unseen.c: what power does inside one step of a counter. */
struct jm_unseen {
	bool known;
	double window, refresh; /* s */
	double squares;		/* W^2: of means over the window, around the counter's mean */
};
/* Of a signal around an edge, all finite, in order of time. */
struct jm_runs {
	const struct jm_signal *signal; /* NULL = there is none */
	const struct jm_plateau *run;
	int n;
};
/* For an edge at t. */
void jm_unseen_init(
	struct jm_unseen *u, const struct jm_runs *counter, const struct jm_runs *power, int64_t t);
/* J^2, at a share of a step of that length in seconds. */
double jm_unseen_variance(const struct jm_unseen *u, double length, double share);

/* energy_shape.c. From the runs of a power signal, finite ones, in order of time. */
void jm_shape_init(
	struct jm_shape *shape, const struct jm_signal *power, const struct jm_plateau *run, int n);
/* Joules from a to b when power changed at this share of the gaps. */
double jm_shape_joules(const struct jm_shape *shape, int64_t a, int64_t b, double share);
/* The share with which joules from a to b come nearest to what a counter says. */
double jm_shape_fit(const struct jm_shape *shape, int64_t a, int64_t b, double joules);
/* The largest change of power in the gaps that touch a to b. */
double jm_shape_change(const struct jm_shape *shape, int64_t a, int64_t b);

/* How long a reading is valid after it was read: a refresh that may be late. */
static inline int64_t jm_reach(const struct jm_signal *signal)
{
	return signal->refresh_ns + signal->refresh_ns / 5 + INT64_C(20000000);
}

#endif
