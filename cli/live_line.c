/* SPDX-License-Identifier: Apache-2.0 */
#include "live_line.h"
#include "screen.h"

#include "report/text.h"

#include <math.h>
#include <unistd.h>

void jm_live_text(const struct jm_live *live, char *out, size_t size)
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

int jm_live_line_open(struct jm_live_line *line, struct jm_cli *cli, struct jm_session *s)
{
	*line = (struct jm_live_line){.session = s,
		.start_ns = jm_ctx_now(&cli->ctx),
		.ctx = &cli->ctx,
		.width = jm_screen_width(STDERR_FILENO)};
	if (cli->quiet || !isatty(STDERR_FILENO))
		return 0;
	return jm_live_new(s, line->start_ns, &line->live, &cli->err);
}

void jm_live_line_draw(void *arg)
{
	struct jm_live_line *line = arg;
	char text[400], sums[360];

	if (!line->live || jm_live_step(line->live, NULL))
		return;
	jm_live_text(line->live, sums, sizeof(sums));
	snprintf(text, sizeof(text), "%.0f s  %s",
		(double)(jm_ctx_now(line->ctx) - line->start_ns) * 1e-9, sums);
	/* the last column stays free, or the next one would begin on a new line */
	fprintf(stderr, "\r\033[K%.*s", line->width - 1, text);
	fflush(stderr);
}

void jm_live_line_close(struct jm_live_line *line)
{
	if (line->live)
		fputs("\r\033[K", stderr);
	jm_live_free(line->live);
	line->live = NULL;
}
