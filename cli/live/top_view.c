/* SPDX-License-Identifier: Apache-2.0 */
/* Columns are shown by their rank, as many as the width takes; the label gets what is left. */
#include "top_view.h"
#include "cli/frame/work_show.h"

#include "base/clock.h"
#include "report/format/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LABEL_LEAST 12
#define LABEL_WHOLE 27 /* "GPU 0 NVIDIA H100 80GB HBM3", before the less important columns come */
#define IMPORTANT   6  /* ranks */
#define LABEL_MOST  40

struct cell {
	const struct jm_top_view *view;
	int meter;
	struct jm_running_meter now;
};

typedef void cell_fn(const struct cell *c, char *out, size_t size);

struct column {
	const char *title;
	int width, rank; /* rank: the lowest are shown first */
	cell_fn *put;
};

/* ---- cells ---- */

static void put_number(double value, int decimals, const char *unit, char *out, size_t size)
{
	if (isnan(value))
		snprintf(out, size, "-");
	else
		snprintf(out, size, "%.*f%s", decimals, value, unit);
}

/* NAN = the meter has no such signal, or nothing was read. */
static double newest(const struct cell *c, enum jm_quantity quantity)
{
	int signal = jm_meter_signal(c->view->set, c->meter, quantity);
	struct jm_reading reading = {NAN, 0};

	if (signal >= 0)
		reading = jm_session_newest(c->view->session, signal);
	return reading.t_ns ? reading.value : NAN;
}

static void put_watts(const struct cell *c, char *out, size_t size)
{
	put_number(c->now.watts, 1, "", out, size);
}

static void put_joules(const struct cell *c, char *out, size_t size)
{
	put_number(c->now.joules, 0, "", out, size);
}

static void put_origin(const struct cell *c, char *out, size_t size)
{
	snprintf(out, size, "%s", jm_origin_name(c->view->set->meter[c->meter].origin));
}

static void put_clock(const struct cell *c, char *out, size_t size)
{
	put_number(newest(c, JM_Q_CLOCK) * 1e-6, 0, "", out, size);
}

static void put_memory_clock(const struct cell *c, char *out, size_t size)
{
	put_number(newest(c, JM_Q_MEMORY_CLOCK) * 1e-6, 0, "", out, size);
}

static void put_celsius(const struct cell *c, char *out, size_t size)
{
	put_number(newest(c, JM_Q_TEMPERATURE), 0, "", out, size);
}

static void put_use(const struct cell *c, char *out, size_t size)
{
	put_number(newest(c, JM_Q_UTILISATION) * 100, 0, "%", out, size);
}

static void put_limit(const struct cell *c, char *out, size_t size)
{
	put_number(newest(c, JM_Q_LIMIT), 0, "", out, size);
}

static void put_throttle(const struct cell *c, char *out, size_t size)
{
	static const struct {
		int bit;
		const char *text;
	} reasons[] = {{JM_THROTTLE_POWER_CAP, "cap"}, {JM_THROTTLE_THERMAL, "heat"},
		{JM_THROTTLE_POWER_BRAKE, "brake"}, {JM_THROTTLE_OTHER, "other"}};
	double bits = newest(c, JM_Q_THROTTLE);

	*out = '\0';
	for (size_t i = 0; !isnan(bits) && i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if ((int)bits & reasons[i].bit)
			jm_text_append(out, size, *out ? "," : "", reasons[i].text);
	if (!*out)
		snprintf(out, size, "%s", isnan(bits) ? "-" : "no");
}

static const struct column columns[] = {
	{"W", 9, 1, put_watts},
	{"origin", 10, 3, put_origin},
	{"MHz", 6, 4, put_clock},
	{"mem MHz", 8, 9, put_memory_clock},
	{"C", 5, 5, put_celsius},
	{"use", 5, 6, put_use},
	{"limit W", 8, 7, put_limit},
	{"J", 11, 8, put_joules},
	{"throttled", 10, 2, put_throttle},
};
#define COLUMNS (int)(sizeof(columns) / sizeof(columns[0]))

/* ---- the table ---- */

struct layout {
	bool shown[COLUMNS];
	int label;
};

static struct layout make_layout(int width)
{
	struct layout l = {.label = width};

	for (int rank = 1; rank <= COLUMNS; rank++)
		for (int i = 0; i < COLUMNS; i++) {
			int least = rank > IMPORTANT ? LABEL_WHOLE : LABEL_LEAST - 1;

			if (columns[i].rank != rank || l.label - columns[i].width < least)
				continue;
			l.shown[i] = true;
			l.label -= columns[i].width;
		}
	if (l.label > LABEL_MOST)
		l.label = LABEL_MOST;
	return l;
}

/* At most so many columns of it, the last of which is a + where it is longer; and filled up to them. */
static void put_padded(FILE *out, const char *text, int width)
{
	int whole = jm_text_width(text), shown = whole > width ? width - 1 : whole, used = 0;
	size_t n = 0;

	while (used < shown) {
		n++;
		while (((unsigned char)text[n] & 0xc0) == 0x80)
			n++;
		used++;
	}
	fprintf(out, "%.*s%s%*s", (int)n, text, whole > width ? "+" : "",
		width - used - (whole > width), "");
}

static void put_titles(const struct layout *l, FILE *out)
{
	put_padded(out, "device", l->label);
	for (int i = 0; i < COLUMNS; i++)
		if (l->shown[i])
			fprintf(out, "%*s", columns[i].width, columns[i].title);
	fputc('\n', out);
}

/* What is inside of another meter is left out, but for whole GPUs and processors. */
static bool is_shown(const struct jm_meters *set, int i)
{
	const struct jm_meter *m = &set->meter[i];

	if (m->scope == JM_SCOPE_CONTEXT)
		return false;
	return m->covered_by < 0 || m->scope == JM_SCOPE_GPU || m->scope == JM_SCOPE_PACKAGE;
}

static void put_device(const struct jm_top_view *view, const struct layout *l, int meter, FILE *out)
{
	struct cell c = {view, meter, jm_running_of(view->running, meter)};
	char text[32];

	put_padded(out, view->set->meter[meter].label, l->label);
	for (int i = 0; i < COLUMNS; i++) {
		if (!l->shown[i])
			continue;
		columns[i].put(&c, text, (size_t)columns[i].width); /* a column stays free */
		fprintf(out, "%*s", columns[i].width, text);
	}
	fputc('\n', out);
}

/* ---- the line above, the work below ---- */

/* Of the topmost meters; NAN = one is unknown, two share a part, or there is none. */
static double sum_of(const struct jm_top_view *view, enum jm_origin origin)
{
	double sum = 0;
	int n = 0;

	for (int i = 0; i < view->set->n; i++) {
		const struct jm_meter *m = &view->set->meter[i];

		if (m->origin != origin || !jm_meter_counts(view->set, i))
			continue;
		sum += m->overlaps >= 0 ? NAN : jm_running_of(view->running, i).watts;
		n++;
	}
	return n ? sum : NAN;
}

static void put_sums(const struct jm_top_view *view, int width, FILE *out)
{
	time_t wall = (time_t)(view->wall_ns / JM_SECOND);
	char text[400], clock[16], watts[40];
	struct tm tm;

	localtime_r(&wall, &tm);
	strftime(clock, sizeof(clock), "%H:%M:%S", &tm);
	snprintf(text, sizeof(text), "%s", clock);
	for (int i = 0; i < JM_ORIGIN_COUNT; i++) {
		double sum = sum_of(view, jm_origin_order[i]);

		if (isnan(sum))
			continue;
		jm_text_quantity(sum, NAN, "W", watts, sizeof(watts));
		jm_text_append(text, sizeof(text), "  ", watts);
		jm_text_append(text, sizeof(text), " ", jm_origin_name(jm_origin_order[i]));
	}
	put_padded(out, text, width);
	fputc('\n', out);
}

static void put_work(const struct jm_top_view *view, int width, FILE *out)
{
	fputc('\n', out);
	jm_work_print(view->work, out, width);
	if (!view->work->n)
		jm_text_wrap(out, "No run or measurement of joulemark is under way.", 0, 2, width);
	if (*view->message)
		jm_text_wrap(out, view->message, 0, 2, width);
}

char *jm_top_text(const struct jm_top_view *view, int width)
{
	struct layout layout = make_layout(width);
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);

	if (!out)
		return NULL;
	put_sums(view, width, out);
	put_titles(&layout, out);
	for (int i = 0; i < view->set->n; i++)
		if (is_shown(view->set, i))
			put_device(view, &layout, i, out);
	put_work(view, width, out);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}
