/* SPDX-License-Identifier: Apache-2.0 */
#include "live_line.h"
#include "screen.h"

#include "report/text.h"

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

void jm_live_line_open(struct jm_live_line *line, struct jm_cli *cli, struct jm_session *s)
{
	*line = (struct jm_live_line){.session = s,
		.store = jm_values_text(&cli->values, "store"),
		.draws = !cli->quiet && isatty(STDERR_FILENO),
		.start_ns = jm_ctx_now(&cli->ctx),
		.ctx = &cli->ctx,
		.width = jm_screen_width(STDERR_FILENO)};
}

static void draw(const struct jm_live_line *line, double rate)
{
	double seconds = (double)(jm_ctx_now(line->ctx) - line->start_ns) * 1e-9;
	char text[460], sums[360], number[40], items[60] = "";

	live_text(line->live, sums, sizeof(sums));
	if (!isnan(rate)) {
		jm_text_number(rate, number, sizeof(number));
		snprintf(items, sizeof(items), "  %s items/s", number);
	}
	snprintf(text, sizeof(text), "%.0f s  %s%s", seconds, sums, items);
	/* the last column stays free, or the next one would begin on a new line */
	fprintf(stderr, "\r\033[K%.*s", line->width - 1, text);
	fflush(stderr);
}

static void tell(struct jm_live_line *line, double rate)
{
	struct jm_work_status s = {
		.command = "measure",
		.share = NAN,
		.items_per_s = rate,
		.watts = NAN,
		.joules = NAN,
		.left_s = NAN,
	};

	snprintf(s.work, sizeof(s.work), "%s", line->work);
	snprintf(s.store, sizeof(s.store), "%s", line->store ? line->store : "");
	for (int i = 0; i < JM_ORIGIN_COUNT && isnan(s.watts); i++) {
		struct jm_live_total total = jm_live_total(line->live, jm_origin_order[i]);

		s.origin = jm_origin_order[i];
		s.watts = total.watts;
		s.joules = total.joules;
	}
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
		fputs("\r\033[K", stderr);
	jm_live_free(line->live);
	line->live = NULL;
	jm_work_writer_free(line->writer);
	line->writer = NULL;
}
