/* SPDX-License-Identifier: Apache-2.0 */
/* A row for each device: its power, history, memory, clocks, and why the clocks are held back. */
#include "top_devices.h"
#include "top_table.h"

#include "report/format/text.h"

#include <math.h>
#include <string.h>

#define LABEL_LEAST   9
#define LABEL_WHOLE   27 /* "GPU 0 NVIDIA H100 80GB HBM3", before the less important columns come */
#define LABEL_MOST    40
#define IMPORTANT     8 /* ranks */
#define HISTORY_LEAST 12

struct row {
	const struct jm_top_view *view;
	int meter;
	struct jm_running_meter now;
};

/* NAN = the meter has no such signal, or nothing was read. */
static double newest(const struct row *r, enum jm_quantity quantity)
{
	int signal = jm_meter_signal(r->view->set, r->meter, quantity);
	struct jm_reading reading = {NAN, 0};

	if (signal >= 0)
		reading = jm_session_newest(r->view->session, signal);
	return reading.t_ns ? reading.value : NAN;
}

static void put_watts(const void *row, char *out, size_t size)
{
	double watts = ((const struct row *)row)->now.watts;

	jm_top_put_number(watts, watts < 1000, "", out, size);
}

static void put_joules(const void *row, char *out, size_t size)
{
	jm_top_put_number(((const struct row *)row)->now.joules, 0, "", out, size);
}

static void put_origin(const void *row, char *out, size_t size)
{
	const struct row *r = row;

	snprintf(out, size, "%s", jm_origin_name(r->view->set->meter[r->meter].origin));
}

static void put_clock(const void *row, char *out, size_t size)
{
	jm_top_put_number(newest(row, JM_Q_CLOCK) * 1e-6, 0, "", out, size);
}

static void put_memory_clock(const void *row, char *out, size_t size)
{
	jm_top_put_number(newest(row, JM_Q_MEMORY_CLOCK) * 1e-6, 0, "", out, size);
}

static void put_celsius(const void *row, char *out, size_t size)
{
	jm_top_put_number(newest(row, JM_Q_TEMPERATURE), 0, "", out, size);
}

static void put_use(const void *row, char *out, size_t size)
{
	jm_top_put_number(newest(row, JM_Q_UTILISATION) * 100, 0, "%", out, size);
}

static void put_limit(const void *row, char *out, size_t size)
{
	jm_top_put_number(newest(row, JM_Q_LIMIT), 0, "", out, size);
}

/* "8.0/85.5": of the whole, where that is known; in GB. */
static void put_memory(const void *row, char *out, size_t size)
{
	const struct row *r = row;
	double whole = r->view->set->meter[r->meter].hardware.value[JM_HW_MEMORY];

	jm_top_put_number(newest(r, JM_Q_MEMORY_USED) * 1e-9, 1, "", out, size);
	if (*out != '-' && whole > 0)
		snprintf(
			out + strlen(out), size - strlen(out), "/%.*f", whole < 1e10, whole * 1e-9);
}

static void put_throttle(const void *row, char *out, size_t size)
{
	static const struct {
		int bit;
		const char *text;
	} reasons[] = {{JM_THROTTLE_POWER_CAP, "cap"}, {JM_THROTTLE_THERMAL, "heat"},
		{JM_THROTTLE_POWER_BRAKE, "brake"}, {JM_THROTTLE_OTHER, "other"}};
	double bits = newest(row, JM_Q_THROTTLE);

	*out = '\0';
	for (size_t i = 0; !isnan(bits) && i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if ((int)bits & reasons[i].bit)
			jm_text_append(out, size, *out ? "," : "", reasons[i].text);
	if (!*out)
		snprintf(out, size, "%s", isnan(bits) ? "-" : "no");
}

enum { WATTS, LIMIT, ORIGIN, MHZ, CELSIUS, USE, MEMORY, MEMORY_CLOCK, JOULES, THROTTLED, COLUMNS };

static const struct jm_top_column columns[COLUMNS] = {
	[WATTS] = {"W", 7, 1, put_watts},
	[LIMIT] = {"limit W", 8, 6, put_limit},
	[ORIGIN] = {"origin", 10, 3, put_origin},
	[MHZ] = {"MHz", 6, 4, put_clock},
	[CELSIUS] = {"C", 4, 5, put_celsius},
	[USE] = {"use", 5, 7, put_use},
	[MEMORY] = {"mem GB", 9, 8, put_memory},
	[MEMORY_CLOCK] = {"mem MHz", 8, 10, put_memory_clock},
	[JOULES] = {"J", 11, 9, put_joules},
	[THROTTLED] = {"throttled", 10, 2, put_throttle},
};

/* What is inside of another meter is left out, but for whole GPUs and processors. */
static bool is_shown(const struct jm_meters *set, int i)
{
	const struct jm_meter *m = &set->meter[i];

	if (m->scope == JM_SCOPE_CONTEXT)
		return false;
	return m->covered_by < 0 || m->scope == JM_SCOPE_GPU || m->scope == JM_SCOPE_PACKAGE;
}

/* With one origin for all, which the sums above name, the column of origins waits until all others
 * have room. */
static void adapt(const struct jm_meters *set, struct jm_top_column *column)
{
	int origins = 0;

	for (int i = 0; i < set->n; i++)
		if (is_shown(set, i))
			origins |= 1 << set->meter[i].origin;
	if (origins & (origins - 1))
		return;
	for (int i = 0; i < COLUMNS; i++)
		column[i].rank -= column[i].rank > column[ORIGIN].rank;
	column[ORIGIN].rank = COLUMNS;
}

static void put_history(const struct row *r, int width, FILE *out)
{
	const double *watts = r->view->history->watts[r->meter];
	double top = newest(r, JM_Q_LIMIT);

	if (isnan(top))
		top = 0;
	for (int i = 0; i < JM_TOP_HISTORY; i++)
		top = fmax(top, watts[i]); /* NAN is left out */
	fputc(' ', out);
	jm_top_put_bars(out, watts, JM_TOP_HISTORY, width - 1, top > 0 ? top : 1, r->view->ascii);
}

/* Of the bars: about a third of a wide terminal. 0 = there is no room for them. */
static int history_width(int width)
{
	int most = JM_TOP_HISTORY;

	if (width < LABEL_LEAST + columns[WATTS].width + columns[THROTTLED].width + HISTORY_LEAST)
		return 0;
	return width < 100 ? HISTORY_LEAST : width / 3 < most ? width / 3 : most;
}

void jm_top_put_devices(const struct jm_top_view *view, int width, FILE *out)
{
	struct jm_top_column column[COLUMNS];
	struct jm_top_layout l;
	int bars = history_width(width);
	char title[64] = "";

	memcpy(column, columns, sizeof(column));
	adapt(view->set, column);
	l = jm_top_lay_out(
		column, COLUMNS, width - bars, LABEL_LEAST, IMPORTANT, LABEL_WHOLE, LABEL_MOST);
	bars += bars ? l.left : 0;
	if (bars > JM_TOP_HISTORY)
		bars = JM_TOP_HISTORY;
	jm_top_put_titles(&l, "device", out);
	if (bars)
		snprintf(title, sizeof(title), " W, %.0f s",
			(bars - 1) * (double)view->interval_ns * 1e-9);
	jm_top_put_padded(out, title, bars);
	fputc('\n', out);
	for (int i = 0; i < view->set->n; i++) {
		struct row r = {view, i, jm_running_of(view->running, i)};

		if (!is_shown(view->set, i))
			continue;
		jm_top_put_padded(out, view->set->meter[i].label, l.text);
		jm_top_put_cells(&l, &r, out);
		if (bars)
			put_history(&r, bars, out);
		fputc('\n', out);
	}
}
