/* SPDX-License-Identifier: Apache-2.0 */
/* watch: the present watts of each device, line by line, until it is ended or its reader ends. */
#include "cli/frame/cli.h"
#include "cli/frame/device_option.h"
#include "cli/frame/interrupts.h"
#include "cli/frame/json_option.h"
#include "cli/frame/screen.h"
#include "meter/source_list.h"
#include "watch_show.h"

#include "base/ctx.h"
#include "base/clock.h"
#include "base/files/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const formats[] = {
	[JM_WATCH_TEXT] = "text",
	[JM_WATCH_CSV] = "csv",
	[JM_WATCH_CSV_WIDE] = "csv-wide",
	[JM_WATCH_JSON] = "json",
	NULL,
};

struct watch {
	struct jm_cli *cli;
	const char *path;   /* of the output; NULL = standard output */
	const char *device; /* NULL = not given */
	const char *with;   /* likewise */
	char *const *source_texts;
	struct jm_source_list sources;
	struct jm_session *session;
	struct jm_live *live;
	struct jm_watch_show show;
	int out_fd, wake_fd;
	int64_t interval_ns, for_ns,
		end_ns; /* for_ns: 0 = without limit; end_ns: then JM_FOREVER */
	bool over;	/* ended by a signal, or its reader has ended */
};

static const struct jm_option options[] = {
	{JM_DEVICE_ROW, JM_BIND(JM_TEXT, struct watch, device)},
	JM_SOURCE_OPTION(struct watch, source_texts),
	{.name = "interval",
		JM_BIND(JM_DURATION, struct watch, interval_ns),
		.unit = "s",
		.min = 0.1,
		.max = 3600,
		.argument = "TIME",
		.fallback = "1s",
		.help = "time between two lines, such as 500ms; the sensors are read as often as "
			"they change"},
	{.name = "for",
		JM_BIND(JM_DURATION, struct watch, for_ns),
		.unit = "s",
		.min = 0.1,
		.max = 1e9,
		.argument = "TIME",
		.help = "end after this time, such as 60s or 10min; without it Ctrl-C ends it"},
	{.name = "format",
		JM_BIND(JM_CHOICE, struct watch, show.format),
		.choices = formats,
		.fallback = "text",
		.help = "per interval one line of text, rows of CSV (one per meter), one row of "
			"CSV with a column of watts for each meter (csv-wide), or one line of "
			"JSON"},
	{JM_JSON_FORMAT},
	{.name = "with",
		JM_BIND(JM_TEXT, struct watch, with),
		.argument = "LIST",
		.help = JM_WATCH_EXTRA_HELP},
	{.name = "output",
		JM_BIND(JM_TEXT, struct watch, path),
		.argument = "FILE",
		.help = "write to this file, line by line, instead of standard output"},
	{0},
};

/* ---- waiting and writing ---- */

/* At most PIPE_BUF bytes: what poll says there is room for. */
static void write_some(struct watch *w, const char **bytes, size_t *n)
{
	ssize_t k = write(w->out_fd, *bytes, *n < PIPE_BUF ? *n : PIPE_BUF);

	if (k > 0) {
		*bytes += k;
		*n -= (size_t)k;
	} else if (k < 0 && errno == EPIPE) {
		w->over = true;
	} else if (k < 0 && errno != EINTR && errno != EAGAIN) {
		jm_err_set(&w->cli->err, JM_EIO, "The lines could not be written: %s.",
			strerror(errno));
		w->over = true;
	}
}

static int timeout_ms(const struct watch *w, int64_t until_ns)
{
	int64_t left = until_ns - jm_ctx_now(&w->cli->ctx);

	left = left < 0 ? 0 : (left + JM_MILLISECOND - 1) / JM_MILLISECOND;
	return left > INT_MAX ? INT_MAX : (int)left;
}

/* Until the time has come, the output takes bytes (events = POLLOUT), it has lost its reader, or a
 * signal came. True when the output takes bytes. */
static bool wait_until(struct watch *w, int64_t until_ns, short events)
{
	struct pollfd fds[] = {
		{.fd = w->wake_fd, .events = POLLIN},
		{.fd = w->out_fd, .events = events},
	};

	if (poll(fds, 2, timeout_ms(w, until_ns)) < 0)
		return false;
	if (fds[0].revents || (fds[1].revents & (POLLERR | POLLNVAL)))
		w->over = true;
	return !w->over && (fds[1].revents & POLLOUT);
}

/* A reader that does not read holds back the lines, not the sampling, the end or Ctrl-C. */
static void write_line(struct watch *w, const char *bytes, size_t n)
{
	while (n && !w->over) {
		if (jm_ctx_now(&w->cli->ctx) >= w->end_ns + w->interval_ns)
			return;
		if (wait_until(w, w->end_ns + w->interval_ns, POLLOUT))
			write_some(w, &bytes, &n);
	}
}

static int put_line(struct watch *w)
{
	int64_t wall = jm_clock_wall(w->cli->ctx.clock), now = jm_ctx_now(&w->cli->ctx);
	char *text = NULL;
	size_t n = 0;
	FILE *f;

	if (jm_live_step(w->live, &w->cli->err))
		return w->cli->err.code;
	f = open_memstream(&text, &n);
	if (f)
		jm_watch_put(&w->show, f, wall, now);
	if (!f || fclose(f)) {
		free(text);
		return jm_err_set(&w->cli->err, JM_ENOMEM, "Out of memory for a line of text.");
	}
	write_line(w, text, n);
	free(text);
	return w->cli->err.code;
}

/* The last interval is shorter where --for is no multiple of it. */
static int go_on(struct watch *w)
{
	int64_t due = w->show.start_ns + w->interval_ns, last = w->show.start_ns;
	int rc = 0;

	while (!rc && !w->over && last < w->end_ns) {
		int64_t now = jm_ctx_now(&w->cli->ctx);

		if (due > w->end_ns)
			due = w->end_ns;
		if (now < due) {
			wait_until(w, due, 0);
			continue;
		}
		rc = put_line(w);
		last = due;
		now = jm_ctx_now(&w->cli->ctx);
		/* lines that a slow reader held up are left out, not made up for */
		due += ((now - due) / w->interval_ns + 1) * w->interval_ns;
	}
	return rc;
}

/* ---- beginning ---- */

static int open_output(struct watch *w)
{
	const char *path = w->path;

	if (!path || !strcmp(path, "-"))
		return 0;
	if (jm_output_try(path, &w->cli->err))
		return w->cli->err.code;
	w->out_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (w->out_fd < 0)
		return jm_err_set(
			&w->cli->err, JM_EIO, "%s could not be opened: %s.", path, strerror(errno));
	return 0;
}

static int open_session(struct watch *w)
{
	struct jm_err *err = &w->cli->err;
	int rc = jm_device_sources(w->device, w->source_texts, &w->sources, err);
	struct jm_session_options o = {.sources = (const char *const *)w->sources.name};

	if (!rc)
		rc = jm_session_open(&w->cli->ctx, &o, &w->session, err);
	if (!rc)
		rc = jm_session_start(w->session, err);
	w->show.start_ns = jm_ctx_now(&w->cli->ctx);
	if (!rc)
		rc = jm_live_new(w->session, w->show.start_ns, &w->live, err);
	return rc;
}

static void set_show(struct watch *w)
{
	struct jm_watch_show *show = &w->show;

	show->width = w->cli->given_width ? w->cli->width : jm_screen_width(w->out_fd);
	show->repeat_head = isatty(w->out_fd);
	show->set = jm_session_meters(w->session);
	show->live = w->live;
	show->session = w->session;
	show->interval_ns = w->interval_ns;
	w->end_ns = w->for_ns ? show->start_ns + w->for_ns : JM_FOREVER - w->interval_ns;
}

static int watch(struct jm_cli *cli)
{
	struct watch w = {.cli = cli, .out_fd = STDOUT_FILENO, .wake_fd = -1};
	int rc;

	JM_FILL(&cli->values, &w);
	w.show.n_extra = jm_watch_extra_parse(w.with, w.show.extra, &cli->err);
	rc = w.show.n_extra < 0 ? w.show.n_extra : open_output(&w);
	if (!rc)
		rc = jm_catch_interrupts(&cli->ctx, &w.wake_fd, &cli->err);
	if (!rc)
		rc = open_session(&w);
	if (!rc) {
		set_show(&w);
		rc = go_on(&w);
	}
	jm_live_free(w.live);
	jm_session_close(w.session);
	jm_source_list_done(&w.sources);
	if (w.out_fd != STDOUT_FILENO && w.out_fd >= 0 && close(w.out_fd) && !rc)
		rc = jm_err_set(&cli->err, JM_EIO, "The lines could not all be written: %s.",
			strerror(errno));
	return rc ? jm_cli_fail(cli) : 0;
}

const struct jm_command jm_command_watch = {
	.name = "watch",
	.summary = "print the present watts and joules of each device, line by line",
	.usage = "[options]",
	.description =
		"Reads the sensors as 'measure' does and prints, once a second, the mean power of "
		"each device since the line before and the energy since the start, until Ctrl-C, "
		"until --for is over, or until the reader of its output exits.\n\n"
		"Text has one line per interval: the sums of each origin (measured, estimated, "
		"simulated, replayed) in W and J, then the meters that no other one includes in W, "
		"as many as fit into the width. CSV and JSON have every meter with its origin, the "
		"95 % uncertainty of its watts, and the time interval that they cover, in seconds "
		"since the start (JSON: start_ns, of CLOCK_MONOTONIC). csv-wide has the watts "
		"alone, with a column for each meter. Unknown is '-' in text, empty in CSV and "
		"null in JSON. Where a sensor could not be read, or joulemark itself did not run, "
		"for more than a second, the watts of that time are unknown, and the joules from "
		"then on, until the meter's energy counter tells them, if it has one. The values "
		"of a meter are complete up to about one refresh of its sensor before the present; "
		"a meter whose sensor changes less often than lines are printed keeps its last "
		"value and its times. --with adds the newest readings of other signals of the same "
		"meters.",
	.example = "joulemark watch\n"
		   "joulemark watch --with memory,temperature,clock\n"
		   "joulemark watch --source nvml --format csv --for 10min >watts.csv\n"
		   "joulemark watch --json --interval 500ms | jq .total.watts_measured",
	.options = options,
	.run = watch,
};
