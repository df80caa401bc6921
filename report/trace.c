/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power trace of one run for the page: per meter, points [s, W] in order of time, thinned so that the
 * lowest and the highest reading of each stretch stay. A meter that only counts energy gives the mean
 * power between two changes of its counter. null in place of W is a gap.
 */
#include "report.h"

#include <math.h>
#include <stdlib.h>

#define STRETCHES 700

struct point {
	int64_t t_ns;
	double watts;
};

struct points {
	struct point *at;
	size_t n, room;
	bool counter, failed;
	double wrap;
	struct jm_reading last; /* of a counter: its last change */
};

static void add(struct points *p, int64_t t_ns, double watts)
{
	if (p->n == p->room) {
		size_t room = p->room ? 2 * p->room : 256;
		struct point *grown = reallocarray(p->at, room, sizeof(*grown));

		if (!grown) {
			p->failed = true;
			return;
		}
		p->at = grown;
		p->room = room;
	}
	p->at[p->n++] = (struct point){t_ns, watts};
}

/* The power that led to this count holds since the change before it. */
static void add_count(struct points *p, struct jm_reading r)
{
	double joules = r.value - p->last.value;

	if (joules < 0 && p->wrap > 0)
		joules += p->wrap;
	if (isnan(r.value)) {
		add(p, r.t_ns, NAN);
		p->last = r;
	} else if (isnan(p->last.value) || joules < 0)
		p->last = r;
	else if (joules > 0 && r.t_ns > p->last.t_ns) {
		add(p, p->last.t_ns, joules / ((double)(r.t_ns - p->last.t_ns) * 1e-9));
		p->last = r;
	}
}

static int take(void *arg, struct jm_reading r)
{
	struct points *p = arg;

	if (p->counter)
		add_count(p, r);
	else
		add(p, r.t_ns, r.value);
	return p->failed;
}

static json_t *point_json(const struct point *p, int64_t t0_ns)
{
	json_t *pair = json_array();

	json_array_append_new(pair, json_real(round((double)(p->t_ns - t0_ns) * 1e-6) * 1e-3));
	json_array_append_new(
		pair, isnan(p->watts) ? json_null() : json_real(round(p->watts * 10) / 10));
	return pair;
}

/* Of points i .. end - 1, one stretch: the first gap, the lowest and the highest, in their order. */
static void append_stretch(json_t *out, const struct points *p, size_t i, size_t end, int64_t t0_ns)
{
	size_t low = i, high = i, gap = end;

	for (size_t k = i; k < end; k++) {
		if (isnan(p->at[k].watts) && gap == end)
			gap = k;
		if (p->at[k].watts < p->at[low].watts || isnan(p->at[low].watts))
			low = k;
		if (p->at[k].watts > p->at[high].watts || isnan(p->at[high].watts))
			high = k;
	}
	for (size_t k = i; k < end; k++)
		if (k == low || k == high || k == gap)
			json_array_append_new(out, point_json(&p->at[k], t0_ns));
}

static json_t *thin(const struct points *p, int64_t t0_ns, int64_t t1_ns)
{
	int64_t width = (t1_ns - t0_ns) / STRETCHES + 1;
	json_t *out = json_array();

	for (size_t i = 0, end; i < p->n; i = end) {
		int64_t stretch = (p->at[i].t_ns - t0_ns) / width;

		for (end = i + 1; end < p->n && (p->at[end].t_ns - t0_ns) / width == stretch;)
			end++;
		append_stretch(out, p, i, end, t0_ns);
	}
	return out;
}

static int read_meter(const struct jm_trace *trace, const struct jm_meters *set, int meter,
	struct points *p, struct jm_err *err)
{
	static const enum jm_quantity order[] = {JM_Q_POWER, JM_Q_POWER_AVERAGE, JM_Q_ENERGY};
	int signal = -1;

	*p = (struct points){.last = {.value = NAN}};
	for (size_t i = 0; i < 3 && signal < 0; i++) {
		signal = jm_meter_signal(set, meter, order[i]);
		p->counter = order[i] == JM_Q_ENERGY;
	}
	if (signal < 0)
		return 0;
	p->wrap = set->signal[signal].wrap;
	if (jm_trace_each(trace, signal, 0, INT64_MAX, take, p, err) < 0)
		return err ? err->code : JM_EIO;
	return p->failed ? jm_err_set(err, JM_ENOMEM, "Out of memory for a power trace.") : 0;
}

static void span(const struct points *p, int n, int64_t *ret_t0, int64_t *ret_t1)
{
	*ret_t0 = INT64_MAX;
	*ret_t1 = INT64_MIN;
	for (int i = 0; i < n; i++) {
		if (!p[i].n)
			continue;
		if (p[i].at[0].t_ns < *ret_t0)
			*ret_t0 = p[i].at[0].t_ns;
		if (p[i].at[p[i].n - 1].t_ns > *ret_t1)
			*ret_t1 = p[i].at[p[i].n - 1].t_ns;
	}
}

static json_t *trace_json(const struct jm_meters *set, const struct points *p, int record)
{
	json_t *meters = json_array();
	int64_t t0, t1;

	span(p, set->n, &t0, &t1);
	if (t0 >= t1) {
		json_decref(meters);
		return json_null();
	}
	for (int i = 0; i < set->n; i++)
		if (p[i].n)
			json_array_append_new(
				meters, json_pack("{s:s, s:s, s:s, s:o}", "id", set->meter[i].id,
						"label", set->meter[i].label, "origin",
						jm_origin_name(set->meter[i].origin), "points",
						thin(&p[i], t0, t1)));
	return json_pack("{s:i, s:f, s:f, s:o}", "record", record, "start_s", 0.0, "end_s",
		(double)(t1 - t0) * 1e-9, "meters", meters);
}

int jm_report_trace(const struct jm_trace *trace, const struct jm_meters *set, int record,
	json_t **ret, struct jm_err *err)
{
	struct points *p = calloc((size_t)set->n + 1, sizeof(*p));
	json_t *json = NULL;
	int rc = p ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for a power trace.");

	for (int i = 0; i < set->n && !rc; i++)
		rc = read_meter(trace, set, i, &p[i], err);
	if (!rc)
		json = trace_json(set, p, record);
	if (!rc && !json)
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for a power trace.");
	for (int i = 0; p && i < set->n; i++)
		free(p[i].at);
	free(p);
	if (!rc)
		*ret = json;
	return rc;
}
