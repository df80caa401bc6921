/* SPDX-License-Identifier: Apache-2.0 */
#include "top_view.h"
#include "cli/frame/work_show.h"
#include "top_devices.h"
#include "top_processes.h"
#include "top_table.h"

#include "base/clock.h"
#include "report/format/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
	jm_top_put_padded(out, text, width);
	fputc('\n', out);
}

static void put_work(const struct jm_top_view *view, int width, FILE *out)
{
	if (view->work->n)
		fputc('\n', out);
	jm_work_print(view->work, out, width);
	if (*view->message) {
		fputc('\n', out);
		jm_text_wrap(out, view->message, 0, 2, width);
	}
}

/* The text of a stream that is closed here; NULL without memory. */
static char *closed(FILE *out, char **text)
{
	if (!fclose(out))
		return *text;
	free(*text);
	return NULL;
}

char *jm_top_text(const struct jm_top_view *view, int width)
{
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);

	if (!out)
		return NULL;
	put_sums(view, width, out);
	jm_top_put_devices(view, width, out);
	put_work(view, width, out);
	jm_top_put_processes(view, width, out);
	return closed(out, &text);
}

char *jm_top_help_text(int width)
{
	static const char *const lines[] = {
		"W: the newest reading, or the rate of the counter of a meter without power "
		"readings. "
		"The bars are its values at the last updates, from 0 to the power limit, or to the "
		"largest of them.",
		"limit W: the enforced power limit. C: degrees Celsius. use: the share of time in "
		"which the device worked. mem GB: its used memory, of all.",
		"throttled: why the clocks are reduced. cap: the power limit; heat: the "
		"temperature; "
		"brake: the power supply; other: another reason; no: they are not reduced.",
		"origin: measured, estimated, simulated or replayed; with one for all it stands in "
		"the first line alone. An unknown value is '-'.",
		"Processes: CPU is processor time, 100% is one processor; use is that of the GPUs, "
		"as "
		"their driver reports it.",
		"J est.: energy since top began, estimated: that of the processors by processor "
		"time, "
		"that of a GPU by its use. A process that has ended leaves the list.",
	};
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);

	if (!out)
		return NULL;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		jm_text_wrap(out, lines[i], 0, 2, width);
		fputc('\n', out);
	}
	jm_text_wrap(out,
		"s: sort the processes by the next column. f: freeze the screen; the sensors are "
		"read on. Up, Down, Page Up, Page Down: scroll. ?: this page. q: quit.",
		0, 2, width);
	return closed(out, &text);
}
