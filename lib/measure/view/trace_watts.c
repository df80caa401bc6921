/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watts of all meters side by side. A meter without a power sensor has those of its counter:
 * the joules between two of its changes, from the first of these on. Points are collected for a
 * window of time at once, which bounds memory.
 */
#include "trace_watts.h"
#include "base/text/csv_fields.h"
#include "base/clock.h"
#include "measure/session/session_private.h"

#include <math.h>
#include <stdlib.h>

#define WINDOW_LEAST (JM_SECOND / 4)
#define WINDOWS_MOST 1000

struct column {
	int signal;
	bool counter;
	double wrap;
	struct jm_reading last; /* of a counter: its last change */
	double watts;		/* at the next row; NAN = unknown */
};

struct point {
	int64_t t_ns;
	double watts;
	int column;
};

struct table {
	const struct jm_trace *trace;
	struct column *column;
	int n_columns, at; /* at: the column that is read */
	struct point *point;
	size_t n, room;
	int64_t t0_ns, t1_ns; /* of the window, the end exclusive */
	bool failed;
};

static void add_point(struct table *t, int64_t t_ns, double watts)
{
	if (t_ns < t->t0_ns || t_ns >= t->t1_ns || t->failed)
		return;
	if (t->n == t->room) {
		size_t room = 2 * t->room + 1024;
		struct point *more = realloc(t->point, room * sizeof(*more));

		t->failed = !more;
		if (!more)
			return;
		t->point = more;
		t->room = room;
	}
	t->point[t->n++] = (struct point){t_ns, watts, t->at};
}

/* A change of a counter gives the power since its last change. After the last one, and at a reset,
 * the power is unknown. */
static void add_count(struct table *t, struct column *c, struct jm_reading r)
{
	double seconds = (double)(r.t_ns - c->last.t_ns) * 1e-9;
	double joules = jm_counter_rise(c->wrap, c->last.value, r.value, seconds);

	if (joules == 0)
		return;
	if (!isnan(c->last.value))
		add_point(t, c->last.t_ns, joules > 0 ? joules / seconds : NAN);
	c->last = r;
}

static int take(void *arg, struct jm_reading r)
{
	struct table *t = arg;
	struct column *c = &t->column[t->at];

	if (c->counter)
		add_count(t, c, r);
	else
		add_point(t, r.t_ns, r.value);
	return t->failed;
}

static int read_window(struct table *t, struct jm_err *err)
{
	int rc = 0;

	t->n = 0;
	for (t->at = 0; t->at < t->n_columns && !rc; t->at++) {
		struct column *c = &t->column[t->at];

		c->last = (struct jm_reading){.value = NAN};
		if (c->signal < 0)
			continue;
		rc = jm_trace_each(t->trace, c->signal, t->t0_ns, t->t1_ns, take, t, err);
		if (c->counter && !isnan(c->last.value))
			add_point(t, c->last.t_ns, NAN);
	}
	return t->failed ? jm_err_set(err, JM_ENOMEM, "Out of memory for a table of watts.") : rc;
}

static int compare(const void *pa, const void *pb)
{
	const struct point *a = pa, *b = pb;

	if (a->t_ns != b->t_ns)
		return (a->t_ns > b->t_ns) - (a->t_ns < b->t_ns);
	return a->column - b->column;
}

static void put_row(const struct table *t, int64_t t_ns, FILE *f)
{
	jm_csv_put_time(f, t_ns);
	for (int i = 0; i < t->n_columns; i++) {
		fputc(',', f);
		if (isfinite(t->column[i].watts))
			fprintf(f, "%.9g", t->column[i].watts);
	}
	fputc('\n', f);
}

static void put_window(struct table *t, int64_t start_ns, FILE *f)
{
	qsort(t->point, t->n, sizeof(*t->point), compare);
	for (size_t i = 0; i < t->n; i++) {
		t->column[t->point[i].column].watts = t->point[i].watts;
		if (i + 1 == t->n || t->point[i + 1].t_ns != t->point[i].t_ns)
			put_row(t, t->point[i].t_ns - start_ns, f);
	}
}

static int note_span(void *arg, struct jm_reading r)
{
	int64_t *span = arg;

	span[0] = r.t_ns < span[0] ? r.t_ns : span[0];
	span[1] = r.t_ns > span[1] ? r.t_ns : span[1];
	return 0;
}

static int put_windows(struct table *t, int64_t start_ns, FILE *f, struct jm_err *err)
{
	int64_t span[2] = {INT64_MAX, INT64_MIN}, width;
	int rc = 0;

	for (int i = 0; i < t->n_columns && !rc; i++)
		if (t->column[i].signal >= 0)
			rc = jm_trace_each(t->trace, t->column[i].signal, INT64_MIN, INT64_MAX,
				note_span, span, err);
	if (rc || span[0] > span[1])
		return rc;
	width = (span[1] - span[0]) / WINDOWS_MOST + 1;
	width = width > WINDOW_LEAST ? width : WINDOW_LEAST;
	for (t->t0_ns = span[0]; t->t0_ns <= span[1] && !rc; t->t0_ns = t->t1_ns) {
		t->t1_ns = t->t0_ns + width;
		rc = read_window(t, err);
		if (!rc)
			put_window(t, start_ns, f);
	}
	return rc;
}

static struct column column_of(const struct jm_meters *set, int meter)
{
	struct column c = {.signal = jm_meter_power_signal(set, meter), .watts = NAN};

	if (c.signal < 0)
		return c;
	c.counter = set->signal[c.signal].quantity == JM_Q_ENERGY;
	c.wrap = set->signal[c.signal].wrap;
	return c;
}

int jm__csv_put_watts(struct jm_session *s, FILE *f, struct jm_err *err)
{
	struct table t = {.trace = s->trace, .n_columns = s->set.n};
	int rc;

	t.column = calloc((size_t)s->set.n + 1, sizeof(*t.column));
	if (!t.column)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a table of watts.");
	fputs("t_s", f);
	for (int i = 0; i < s->set.n; i++) {
		t.column[i] = column_of(&s->set, i);
		fputc(',', f);
		jm_csv_put_text(f, s->set.meter[i].id);
	}
	fputc('\n', f);
	rc = put_windows(&t, s->start_ns, f, err);
	free(t.point);
	free(t.column);
	return rc;
}
