/* SPDX-License-Identifier: Apache-2.0 */
#include "power_rows.h"
#include "trace/hold_sum.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

struct column {
	struct jm_power_rows *rows;
	int column;
	int row; /* that is being summed up */
	struct jm_held held;
	double sum, time; /* of value x time since the row before, in seconds with a reading */
};

static double *cell(const struct column *c, int row)
{
	return &c->rows->value[(size_t)row * (size_t)c->rows->columns + (size_t)c->column];
}

static void hold_until(struct column *c, int64_t t_ns)
{
	double time = jm_held_until(&c->held, t_ns);

	if (time > 0)
		c->sum += c->held.value * time;
	c->time += time;
}

/* The rows that end before a reading of this time. */
static void end_rows(struct column *c, int64_t t_ns)
{
	for (; c->row < c->rows->n && c->rows->t_ns[c->row] <= t_ns; c->row++) {
		hold_until(c, c->rows->t_ns[c->row]);
		/* row 0 has no interval: it is the reading that holds there */
		if (c->row)
			*cell(c, c->row) = c->time > 0 ? c->sum / c->time : NAN;
		else
			*cell(c, 0) = c->held.value;
		c->sum = 0;
		c->time = 0;
	}
}

static int take(void *arg, struct jm_reading r)
{
	struct column *c = arg;

	/* of equal times the reading comes first, so that row 0 has what was read there */
	end_rows(c, r.t_ns - 1);
	hold_until(c, r.t_ns);
	c->held.value = r.value;
	return c->row == c->rows->n;
}

static int fill(const struct jm_trace *trace, int signal, int column, struct jm_power_rows *rows,
	struct jm_err *err)
{
	int64_t t0 = rows->t_ns[0], t1 = rows->t_ns[rows->n - 1];
	struct column c = {.rows = rows, .column = column, .held = {t0, t1, t0, NAN}};
	int rc = jm_trace_each(trace, signal, t0, t1, take, &c, err);

	if (rc)
		return rc;
	end_rows(&c, t1);
	if (isnan(*cell(&c, 0)))
		*cell(&c, 0) = *cell(&c, 1);
	return 0;
}

static int make(
	struct jm_power_rows *rows, int64_t t0, int64_t t1, int64_t interval, struct jm_err *err)
{
	int64_t inner = (t1 - t0 - 1) / interval; /* rows between the first and the last */

	if (inner > INT_MAX / 2)
		return jm_err_set(err, JM_EUSAGE,
			"The measurement took so long that its power has too many rows; use a "
			"longer interval.");
	rows->n = (int)inner + 2;
	rows->t_ns = calloc((size_t)rows->n, sizeof(*rows->t_ns));
	rows->value = calloc((size_t)rows->n * (size_t)rows->columns + 1, sizeof(*rows->value));
	if (!rows->t_ns || !rows->value)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d rows of power.", rows->n);
	for (int i = 0; i < rows->n - 1; i++)
		rows->t_ns[i] = t0 + i * interval;
	rows->t_ns[rows->n - 1] = t1;
	return 0;
}

int jm_power_rows_signal(const struct jm_meters *set, int meter)
{
	int signal = jm_meter_signal(set, meter, JM_Q_POWER);

	return signal < 0 ? jm_meter_signal(set, meter, JM_Q_POWER_AVERAGE) : signal;
}

int jm_power_rows_of(const struct jm_trace *trace, const int *signal, int columns, int64_t t0_ns,
	int64_t t1_ns, int64_t interval_ns, struct jm_power_rows *ret, struct jm_err *err)
{
	struct jm_power_rows rows = {.columns = columns};
	int rc = make(&rows, t0_ns, t1_ns, interval_ns, err);

	for (int i = 0; !rc && i < columns; i++)
		rc = fill(trace, signal[i], i, &rows, err);
	if (rc)
		jm_power_rows_done(&rows);
	else
		*ret = rows;
	return rc;
}

void jm_power_rows_done(struct jm_power_rows *rows)
{
	free(rows->t_ns);
	free(rows->value);
	*rows = (struct jm_power_rows){0};
}
