/* SPDX-License-Identifier: Apache-2.0 */
/* Power traces, thinned and coded while they are read. */
#include "base/text/json.h"
#include "page_trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_WIDTH 1000000 /* ns of a stretch before any are joined */
#define POINT_MAX   20	    /* bytes of the longest point */
#define BINS	    60	    /* of the whole time, of which means are given */

struct point {
	int64_t t_ns;
	double watts;
};

/* What is kept of a stretch of time: three points at most. */
struct stretch {
	struct point low, high; /* NAN: only gaps */
	int64_t gap_ns;
	double joules,
		seconds; /* of the time in which the power is known; only if the meter has sums */
	bool any, gap;
};

struct meter {
	int signal; /* -1 = no power */
	bool counter;
	bool sums; /* it includes other meters, or another one includes it */
	struct point held;
	double wrap;
	struct jm_reading last; /* of a counter: its last change */
	int64_t t0_ns, t1_ns, width_ns;
	uint64_t readings;
	struct stretch *stretch; /* [room], allocated with the first reading */
	struct stretch *last_stretch;
	int64_t end_ns; /* of the last stretch */
};

struct jm_page_trace {
	const struct jm_meters *set;
	int room;	  /* stretches of a meter */
	int *of;	  /* [signals] the meter whose power it is; -1 = none */
	bool failed;	  /* no memory */
	int64_t begin_ns; /* INT64_MIN = the first reading */
	struct meter meter[];
};

static bool is_nested(const struct jm_meters *set, int index)
{
	for (int i = 0; i < set->n; i++)
		if (set->meter[i].covered_by == index)
			return true;
	return set->meter[index].covered_by >= 0;
}

static void choose_signal(struct jm_page_trace *t, int index)
{
	struct meter *m = &t->meter[index];

	*m = (struct meter){.signal = jm_meter_power_signal(t->set, index),
		.last = {.value = NAN},
		.held = {0, NAN},
		.sums = is_nested(t->set, index),
		.width_ns = FIRST_WIDTH};
	if (m->signal < 0)
		return;
	m->counter = t->set->signal[m->signal].quantity == JM_Q_ENERGY;
	m->wrap = t->set->signal[m->signal].wrap;
	t->of[m->signal] = index;
}

struct jm_page_trace *jm_page_trace_new(const struct jm_meters *set, int stretches)
{
	struct jm_page_trace *t = calloc(1, sizeof(*t) + (size_t)set->n * sizeof(*t->meter));

	if (!t)
		return NULL;
	t->set = set;
	t->room = 2 * stretches;
	t->begin_ns = INT64_MIN;
	t->of = calloc((size_t)set->n_signals + 1, sizeof(*t->of));
	if (!t->of) {
		jm_page_trace_free(t);
		return NULL;
	}
	for (int i = 0; i < set->n_signals; i++)
		t->of[i] = -1;
	for (int i = 0; i < set->n; i++)
		choose_signal(t, i);
	return t;
}

bool jm_page_trace_wants(const struct jm_page_trace *t, int signal)
{
	return signal >= 0 && signal < t->set->n_signals && t->of[signal] >= 0;
}

static void add_point(struct stretch *s, struct point p)
{
	if (!s->any)
		s->low = s->high = (struct point){p.t_ns, NAN};
	s->any = true;
	if (isnan(p.watts)) {
		if (!s->gap)
			s->gap_ns = p.t_ns;
		s->gap = true;
		return;
	}
	if (!(p.watts >= s->low.watts))
		s->low = p;
	if (!(p.watts <= s->high.watts))
		s->high = p;
}

static void join(struct stretch *a, const struct stretch *b)
{
	a->joules += b->joules;
	a->seconds += b->seconds;
	if (b->gap)
		add_point(a, (struct point){b->gap_ns, NAN});
	if (b->any && !isnan(b->low.watts)) {
		add_point(a, b->low);
		add_point(a, b->high);
	}
}

/* Twice as much time for each stretch. */
static void widen(struct meter *m, int room)
{
	for (int i = 0; i < room / 2; i++) {
		struct stretch one = m->stretch[2 * i];

		join(&one, &m->stretch[2 * i + 1]);
		m->stretch[i] = one;
	}
	memset(m->stretch + room / 2, 0, (size_t)(room - room / 2) * sizeof(*m->stretch));
	m->width_ns *= 2;
}

static void begin_stretch(const struct jm_page_trace *t, struct meter *m, int64_t t_ns)
{
	int64_t i;

	while ((t_ns - m->t0_ns) / m->width_ns >= t->room)
		widen(m, t->room);
	i = (t_ns - m->t0_ns) / m->width_ns;
	m->last_stretch = &m->stretch[i];
	m->end_ns = m->t0_ns + (i + 1) * m->width_ns;
}

void jm_page_trace_begin(struct jm_page_trace *t, int64_t t0_ns)
{
	t->begin_ns = t0_ns;
}

/* A power reading is valid until the next reading, which is in the last stretch. */
static void hold_until(struct meter *m, struct point next)
{
	int64_t from = m->held.t_ns, to;

	for (; from < next.t_ns && !isnan(m->held.watts); from = to) {
		int64_t i = (from - m->t0_ns) / m->width_ns;
		double seconds;

		to = m->t0_ns + (i + 1) * m->width_ns;
		to = to < next.t_ns ? to : next.t_ns;
		seconds = (double)(to - from) * 1e-9;
		m->stretch[i].joules += m->held.watts * seconds;
		m->stretch[i].seconds += seconds;
	}
	m->held = next;
}

static void add(struct jm_page_trace *t, struct meter *m, struct point p)
{
	if (!m->stretch) {
		m->stretch = calloc((size_t)t->room, sizeof(*m->stretch));
		m->t0_ns = m->end_ns = p.t_ns;
	}
	if (!m->stretch) {
		t->failed = true;
		return;
	}
	if (p.t_ns < m->t0_ns || (m->readings && p.t_ns <= m->t1_ns))
		return;
	m->t1_ns = p.t_ns;
	m->readings++;
	if (p.t_ns >= m->end_ns)
		begin_stretch(t, m, p.t_ns);
	add_point(m->last_stretch, p);
	if (m->sums)
		hold_until(m, p);
}

/* The power that led to this count holds since the change before it. */
static void add_count(struct jm_page_trace *t, struct meter *m, struct jm_reading r)
{
	double seconds = (double)(r.t_ns - m->last.t_ns) * 1e-9;
	double joules = jm_counter_rise(m->wrap, m->last.value, r.value, seconds);

	if (isnan(r.value)) {
		add(t, m, (struct point){r.t_ns, NAN});
		m->last = r;
	} else if (isnan(joules)) {
		if (!isnan(m->last.value)) /* a reset: unknown from the last change on */
			add(t, m, (struct point){m->last.t_ns, NAN});
		m->last = r;
	} else if (joules > 0 && seconds > 0) {
		add(t, m, (struct point){m->last.t_ns, joules / seconds});
		m->last = r;
	}
}

void jm_page_trace_take(struct jm_page_trace *t, int signal, struct jm_reading r)
{
	struct meter *m;

	if (!jm_page_trace_wants(t, signal))
		return;
	m = &t->meter[t->of[signal]];
	if (m->counter)
		add_count(t, m, r);
	else
		add(t, m, (struct point){r.t_ns, r.value});
}

struct chunk_of {
	struct jm_page_trace *t;
	int signal;
};

static int take(void *arg, struct jm_reading r)
{
	struct chunk_of *c = arg;

	jm_page_trace_take(c->t, c->signal, r);
	return c->t->failed;
}

int jm_page_trace_chunk(struct jm_page_trace *t, const struct jm_chunk *chunk, struct jm_err *err)
{
	struct chunk_of c = {t, chunk->signal};

	return jm_chunk_each(chunk, take, &c, err);
}

/* ---- as JSON --------------------------------------------------------------------------------- */

struct code {
	uint8_t *at;	     /* where the next byte goes */
	int64_t t_ms, watts; /* of the last point; 0.1 W */
	int n;
};

static void put_varint(struct code *c, uint64_t v)
{
	for (; v > 0x7f; v >>= 7)
		*c->at++ = (uint8_t)(v | 0x80);
	*c->at++ = (uint8_t)v;
}

static void put_point(struct code *c, struct point p, int64_t t0_ns)
{
	int64_t t_ms = llround((double)(p.t_ns - t0_ns) * 1e-6), watts, change;

	put_varint(c, (uint64_t)(t_ms - c->t_ms));
	c->t_ms = t_ms;
	c->n++;
	if (isnan(p.watts)) {
		put_varint(c, 0);
		return;
	}
	watts = llround(fmin(fmax(p.watts, -1e12), 1e12) * 10);
	change = watts - c->watts;
	put_varint(c, 1 + (change < 0 ? 2 * (uint64_t)-change - 1 : 2 * (uint64_t)change));
	c->watts = watts;
}

static int compare(const void *a, const void *b)
{
	const struct point *x = a, *y = b;

	return (x->t_ns > y->t_ns) - (x->t_ns < y->t_ns);
}

static void put_stretch(struct code *c, const struct stretch *s, int64_t t0_ns)
{
	struct point p[3];
	size_t n = 0;

	if (s->gap)
		p[n++] = (struct point){s->gap_ns, NAN};
	if (s->any && !isnan(s->low.watts))
		p[n++] = s->low;
	if (s->any && !isnan(s->low.watts) && s->high.t_ns != s->low.t_ns)
		p[n++] = s->high;
	qsort(p, n, sizeof(*p), compare);
	for (size_t i = 0; i < n; i++) {
		p[i].t_ns = p[i].t_ns > t0_ns ? p[i].t_ns : t0_ns;
		put_point(c, p[i], t0_ns);
	}
}

static json_t *base64(const uint8_t *bytes, size_t n)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t length = (n + 2) / 3 * 4;
	char *text = malloc(length + 1);
	json_t *json;

	if (!text)
		return NULL;
	for (size_t i = 0, k = 0; i < n; i += 3, k += 4) {
		uint32_t v = (uint32_t)bytes[i] << 16 |
			     (i + 1 < n ? (uint32_t)bytes[i + 1] << 8 : 0) |
			     (i + 2 < n ? bytes[i + 2] : 0);

		text[k] = digits[v >> 18];
		text[k + 1] = digits[v >> 12 & 63];
		text[k + 2] = i + 1 < n ? digits[v >> 6 & 63] : '=';
		text[k + 3] = i + 2 < n ? digits[v & 63] : '=';
	}
	json = json_stringn(text, length);
	free(text);
	return json;
}

/* Divides a stretch among the bins that it overlaps, in proportion to time. */
static void spread(const struct stretch *s, double from, double to, struct stretch *bin)
{
	for (int i = (int)fmax(floor(from), 0); i < BINS && i < to; i++) {
		double part = (fmin(to, i + 1) - fmax(from, i)) / (to - from);

		bin[i].joules += part * s->joules;
		bin[i].seconds += part * s->seconds;
	}
}

/* Mean power in each of BINS equal parts of the time; null where it is known for less than half of
 * it. */
static json_t *means_json(
	const struct jm_page_trace *t, const struct meter *m, int64_t t0, int64_t t1)
{
	double width = (double)(t1 - t0) / BINS;
	struct stretch bin[BINS] = {0};
	json_t *out = json_array();

	for (int i = 0; i < t->room; i++) {
		double from = (double)(m->t0_ns - t0 + i * m->width_ns) / width;

		if (m->stretch[i].seconds > 0)
			spread(&m->stretch[i], from, from + (double)m->width_ns / width, bin);
	}
	for (int i = 0; i < BINS; i++) {
		double tenths = rint(10 * bin[i].joules / bin[i].seconds);

		json_array_append_new(
			out, jm_json_number(bin[i].seconds < 0.5e-9 * width ? NAN : tenths / 10));
	}
	return out;
}

static json_t *meter_json(const struct jm_page_trace *t, int index, int64_t t0_ns, int64_t t1_ns)
{
	const struct jm_meter *about = &t->set->meter[index];
	const struct meter *m = &t->meter[index];
	uint8_t *bytes = malloc(3 * (size_t)t->room * POINT_MAX);
	struct code c = {.at = bytes};
	json_t *points, *json;

	for (int i = 0; bytes && i < t->room; i++)
		put_stretch(&c, &m->stretch[i], t0_ns);
	points = bytes ? base64(bytes, (size_t)(c.at - bytes)) : NULL;
	free(bytes);
	json = json_pack("{s:s, s:s, s:s, s:i, s:o*}", "id", about->id, "label", about->label,
		"origin", jm_origin_name(about->origin), "n", c.n, "points", points);
	if (m->sums)
		json_object_set_new(json, "means", means_json(t, m, t0_ns, t1_ns));
	return json;
}

static void span(const struct jm_page_trace *t, int64_t *ret_t0, int64_t *ret_t1)
{
	*ret_t0 = INT64_MAX;
	*ret_t1 = INT64_MIN;
	for (int i = 0; i < t->set->n; i++) {
		const struct meter *m = &t->meter[i];

		if (!m->readings)
			continue;
		*ret_t0 = m->t0_ns < *ret_t0 ? m->t0_ns : *ret_t0;
		*ret_t1 = m->t1_ns > *ret_t1 ? m->t1_ns : *ret_t1;
	}
	if (t->begin_ns != INT64_MIN)
		*ret_t0 = t->begin_ns;
}

json_t *jm_page_trace_json(const struct jm_page_trace *t, int record)
{
	json_t *meters = json_array();
	uint64_t readings = 0;
	int64_t t0, t1;

	span(t, &t0, &t1);
	if (t->failed || t0 >= t1) {
		json_decref(meters);
		return t->failed ? NULL : json_null();
	}
	for (int i = 0; i < t->set->n; i++) {
		readings += t->meter[i].readings;
		if (t->meter[i].readings)
			json_array_append_new(meters, meter_json(t, i, t0, t1));
	}
	return json_pack("{s:i, s:f, s:I, s:o}", "record", record, "end_s",
		(double)(t1 - t0) * 1e-9, "readings", (json_int_t)readings, "meters", meters);
}

void jm_page_trace_free(struct jm_page_trace *t)
{
	for (int i = 0; t && t->of && i < t->set->n; i++)
		free(t->meter[i].stretch);
	free(t ? t->of : NULL);
	free(t);
}
