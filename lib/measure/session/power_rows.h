/* SPDX-License-Identifier: Apache-2.0 */
/* A trace as rows at equal intervals, for programs that take power as a table. */
#ifndef JM_POWER_ROWS_H
#define JM_POWER_ROWS_H

#include "meter/meter.h"
#include "trace/trace.h"

/*
 * Row 0 is the beginning of the stretch and the last row its end, so that no edge is missing. Each
 * other row has the mean of the time since the row before it: the sum of value * (time since the
 * row before) over the rows is the integral of the readings.
 */
struct jm_power_rows {
	int n, columns;
	int64_t *t_ns;
	double *value; /* n rows of `columns`; NAN = no reading in this interval */
};

/* The signal of a meter that becomes a column: its power of the shorter window; -1 = none. */
int jm_power_rows_signal(const struct jm_meters *set, int meter);
/* signal: the power signals that become columns. t0_ns < t1_ns, interval_ns > 0. */
int jm_power_rows_of(const struct jm_trace *trace, const int *signal, int columns, int64_t t0_ns,
	int64_t t1_ns, int64_t interval_ns, struct jm_power_rows *ret, struct jm_err *err);
void jm_power_rows_done(struct jm_power_rows *rows);

#endif
