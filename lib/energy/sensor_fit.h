/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a power sensor behaves, from its readings under a load whose beginnings and ends are known:
 * how often it changes, over how long a window it averages, how late it is and how slowly power
 * itself follows the load.
 *
 * The model of a reading whose value came at time t, after Yang et al., SC'24 (arXiv 2312.02741):
 *
 *	y(t) = 1/W integral of P from t - D - W to t - D
 *	P = low + (high - low) L, T dL/dt = load - L, load 0 or 1, T = rise while it is 1, fall
 *	while it is 0
 *
 * and low and high may drift evenly over the whole time (temperature). An energy counter is the
 * same with the time between two of its steps in place of W.
 */
#ifndef JM_SENSOR_FIT_H
#define JM_SENSOR_FIT_H

#include "meter/meter.h"

/* When the load begins, ends, begins again...; in order. It is off before the first. */
struct jm_load_edges {
	const int64_t *t_ns;
	int n;
};

/* A quantity that was fitted, in seconds. NAN = it could not be determined. */
struct jm_fitted {
	double value;
	/* 95 %: by leaving out an eighth of the time each time (delete-a-group jackknife) */
	double error;
};

struct jm_sensor_fit {
	struct jm_fitted refresh, window, delay, rise, fall;
	double low_watts, high_watts; /* in the middle of the time */
	double rms_watts;	      /* of what the model leaves */
	int changes;		      /* values that were used */
};

/*
 * Where the values of a signal changed, as (value, time): ret has room for n. A reading with a time
 * stamp of the sensor has that time; otherwise the change is between two readings, and their middle
 * is taken. readings: in order of time, repeated values included. Returns how many there are.
 */
int jm_sensor_changes(const struct jm_signal *signal, const struct jm_reading *readings, int n,
	struct jm_reading *ret);
/*
 * quantity: power, or JM_Q_ENERGY for a counter. changes: in order of time.
 * JM_ERANGE: too few changes, or the signal does not follow the load; the reason is in err. refresh
 * is set even then if it can be determined.
 */
int jm_sensor_fit(enum jm_quantity quantity, const struct jm_reading *changes, int n,
	const struct jm_load_edges *edges, struct jm_sensor_fit *ret, struct jm_err *err);

#endif
