/* SPDX-License-Identifier: Apache-2.0 */
#include "live_line.h"
#include "cli/frame/screen.h"
#include "cli/frame/work_show.h"

#include "base/printable.h"
#include "report/format/text.h"

#include <math.h>
#include <unistd.h>

static void live_text(const struct jm_live *live, char *out, size_t size)
{
	char watts[40], joules[40];

	*out = '\0';
	for (int i = 0; i < JM_ORIGIN_COUNT; i++) {
		struct jm_live_total total = jm_live_total(live, jm_origin_order[i]);

		if (isnan(total.watts))
			continue;
		jm_text_quantity(total.watts, NAN, "W", watts, sizeof(watts));
		jm_text_quantity(total.joules, NAN, "J", joules, sizeof(joules));
		jm_text_append(out, size, *out ? ", " : "", watts);
		jm_text_append(out, size, " ", joules);
		jm_text_append(out, size, " ", jm_origin_name(jm_origin_order[i]));
	}
}

void jm_live_line_open(
	struct jm_live_line *line, struct jm_cli *cli, struct jm_session *s, const char *unit)
{
	*line = (struct jm_live_line){.session = s,
		.unit = unit ? unit : "item",
		.draws = !cli->quiet && isatty(STDERR_FILENO),
		.start_ns = jm_ctx_now(&cli->ctx),
		.for_s = NAN,
		.ctx = &cli->ctx,
		.width = jm_screen_width(STDERR_FILENO)};
}

/* Of the most significant origin whose watts are known; watts NAN = of none. */
static struct jm_live_total main_total(const struct jm_live *live, enum jm_origin *ret_origin)
{
	struct jm_live_total total = {.watts = NAN, .joules = NAN};

	for (int i = 0; i < JM_ORIGIN_COUNT && isnan(total.watts); i++) {
		*ret_origin = jm_origin_order[i];
		total = jm_live_total(live, jm_origin_order[i]);
	}
	return total;
}

static void items_text(const struct jm_live_line *line, double rate, char *out, size_t size)
{
	enum jm_origin origin;
	double watts = main_total(line->live, &origin).watts;
	char number[40];

	if (isnan(rate))
		return;
	jm_text_estimate(rate, NAN, number, sizeof(number));
	jm_text_append(out, size, "", "  ");
	jm_text_append(out, size, "", number);
	jm_text_append(out, size, " ", line->unit);
	jm_text_append(out, size, "", "/s");
	if (isnan(watts))
		return;
	jm_text_quantity(watts / rate, NAN, "J", number, sizeof(number));
	jm_text_append(out, size, "  ", number);
	jm_text_append(out, size, "/", line->unit);
}

static double seconds_so_far(const struct jm_live_line *line)
{
	return (double)(jm_ctx_now(line->ctx) - line->start_ns) * 1e-9;
}

/* NAN = unknown */
static double seconds_left(const struct jm_live_line *line)
{
	return isnan(line->for_s) ? NAN : fmax(line->for_s - seconds_so_far(line), 0);
}

static void draw(const struct jm_live_line *line, double rate)
{
	char text[560], sums[360], items[100] = "", time[32], left[48] = "";

	live_text(line->live, sums, sizeof(sums));
	items_text(line, rate, items, sizeof(items));
	if (!isnan(line->for_s)) {
		jm_work_time_text(seconds_left(line), time, sizeof(time));
		snprintf(left, sizeof(left), "  %s left", time);
	}
	snprintf(text, sizeof(text), "%.0f s  %s%s%s", seconds_so_far(line), sums, items, left);
	jm_text_tame(text);
	/* the last column stays free, or the next one would begin on a new line */
	fprintf(stderr, "\r\033[K%.*s", line->width - 1, text);
	fflush(stderr);
}

static void tell(struct jm_live_line *line, double rate)
{
	enum jm_origin origin;
	struct jm_live_total total = main_total(line->live, &origin);
	struct jm_work_status s = {
		.command = "measure",
		.share = NAN,
		.items_per_s = rate,
		.watts = total.watts,
		.joules = total.joules,
		.origin = origin,
		.left_s = seconds_left(line),
	};

	snprintf(s.work, sizeof(s.work), "%s", line->work);
	snprintf(s.store, sizeof(s.store), "%s", line->store ? line->store : "");
	snprintf(s.unit, sizeof(s.unit), "%s", isnan(rate) ? "" : line->unit);
	jm_work_writer_put(line->writer, &s);
}

void jm_live_line_tick(void *arg, double items, double seconds)
{
	struct jm_live_line *line = arg;
	double rate = items > 0 && seconds > 0 ? items / seconds : NAN;

	if (!line->live && jm_live_new(line->session, line->start_ns, &line->live, NULL))
		return;
	if (!line->writer)
		line->writer = jm_work_writer_new(line->ctx);
	if (jm_live_step(line->live, NULL))
		return;
	if (line->draws)
		draw(line, rate);
	tell(line, rate);
}

void jm_live_line_draw(void *arg)
{
	jm_live_line_tick(arg, NAN, NAN);
}

void jm_live_line_close(struct jm_live_line *line)
{
	if (line->live && line->draws)
		jm_screen_clear_line();
	jm_live_free(line->live);
	line->live = NULL;
	jm_work_writer_free(line->writer);
	line->writer = NULL;
}
