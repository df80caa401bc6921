/* SPDX-License-Identifier: Apache-2.0 */
/* top: show devices and running work on the whole terminal, drawn again until q or Ctrl-C. */
#include "cli/frame/cli.h"
#include "cli/frame/device_option.h"
#include "cli/frame/interrupts.h"
#include "top_screen.h"
#include "top_view.h"

#include "base/clock.h"
#include "base/ctx.h"
#include "meter/source_list.h"

#include <limits.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct top {
	struct jm_cli *cli;
	const char *device; /* NULL = not given */
	char *const *source_texts;
	struct jm_source_list sources;
	struct jm_session *session;
	struct jm_running *running;
	int wake_fd;
	int64_t interval_ns, for_ns, end_ns; /* for_ns: 0 = without limit */
	bool over;
	/* the last warning: threads that read sensors log as well */
	pthread_mutex_t lock;
	char message[300];
};

static const struct jm_option options[] = {
	{JM_DEVICE_ROW, JM_BIND(JM_TEXT, struct top, device)},
	JM_SOURCE_OPTION(struct top, source_texts),
	{.name = "interval",
		JM_BIND(JM_DURATION, struct top, interval_ns),
		.unit = "s",
		.min = 0.1,
		.max = 3600,
		.argument = "TIME",
		.fallback = "1s",
		.help = "time between two updates of the screen, such as 500ms; the sensors are "
			"read as often as they change"},
	{.name = "for",
		JM_BIND(JM_DURATION, struct top, for_ns),
		.unit = "s",
		.min = 0.1,
		.max = 1e9,
		.argument = "TIME",
		.help = "end after this time, such as 60s; without it q or Ctrl-C ends it"},
	{0},
};

/* ---- drawing ---- */

/* Lines on standard error would overwrite parts of the screen. */
static void keep_message(void *arg, enum jm_level level, const char *line)
{
	struct top *t = arg;

	if (level < JM_WARNING)
		return;
	pthread_mutex_lock(&t->lock);
	snprintf(t->message, sizeof(t->message), "%s", line);
	pthread_mutex_unlock(&t->lock);
}

static int draw(struct top *t)
{
	struct jm_work_list work = {0};
	char message[sizeof(t->message)];
	char *text;

	jm_work_list_read(&t->cli->ctx, &work, NULL); /* unreadable: none is shown */
	pthread_mutex_lock(&t->lock);
	memcpy(message, t->message, sizeof(message));
	pthread_mutex_unlock(&t->lock);
	text = jm_top_text(&(struct jm_top_view){.set = jm_session_meters(t->session),
				   .session = t->session,
				   .running = t->running,
				   .work = &work,
				   .message = message,
				   .wall_ns = jm_clock_wall(t->cli->ctx.clock)},
		jm_top_screen_width());
	jm_work_list_done(&work);
	if (!text)
		return jm_err_set(&t->cli->err, JM_ENOMEM, "Out of memory for the screen.");
	jm_top_screen_draw(text, JM_TOP_HEAD);
	free(text);
	return 0;
}

/* Until then, or a key, a signal, a new size, or the end of the terminal. */
static void wait_until(struct top *t, int64_t until_ns)
{
	int64_t ms = (until_ns - jm_ctx_now(&t->cli->ctx) + JM_MILLISECOND - 1) / JM_MILLISECOND;
	struct pollfd fds[] = {
		{.fd = t->wake_fd, .events = POLLIN},
		{.fd = STDIN_FILENO, .events = POLLIN},
	};
	int n = poll(fds, 2, ms < 0 ? 0 : ms > INT_MAX ? INT_MAX : (int)ms);

	if (n > 0 && (fds[0].revents || (fds[1].revents & (POLLHUP | POLLERR | POLLNVAL))))
		t->over = true;
}

static int go_on(struct top *t)
{
	int64_t due = jm_ctx_now(&t->cli->ctx);
	int rc = 0;

	while (!rc && !t->over && jm_ctx_now(&t->cli->ctx) < t->end_ns) {
		enum jm_top_key key = jm_top_screen_key();
		int64_t now = jm_ctx_now(&t->cli->ctx);

		if (key == JM_TOP_QUIT)
			break;
		if (now >= due || key == JM_TOP_REDRAW)
			rc = draw(t);
		if (now >= due)
			due = now + t->interval_ns;
		wait_until(t, due < t->end_ns ? due : t->end_ns);
	}
	return rc;
}

/* ---- beginning and end ---- */

static void on_reading(void *arg, int signal, struct jm_reading reading)
{
	struct top *t = arg;

	jm_running_take(t->running, signal, reading);
}

static int start_session(struct top *t)
{
	struct jm_session_options o = {
		.sources = (const char *const *)t->sources.name,
		.on_reading = on_reading,
		.on_reading_arg = t,
		.no_trace = true,
	};
	struct jm_err *err = &t->cli->err;
	int rc = jm_session_open(&t->cli->ctx, &o, &t->session, err);

	if (!rc)
		rc = jm_running_new(jm_session_meters(t->session), &t->running, err);
	return rc ? rc : jm_session_start(t->session, err);
}

/* The screen is opened before the sensors, so that a missing terminal is reported immediately. */
static int show(struct top *t)
{
	struct jm_ctx *ctx = &t->cli->ctx, before = *ctx;
	int rc = jm_catch_interrupts(ctx, &t->wake_fd, &t->cli->err);

	if (!rc)
		rc = jm_top_screen_open(&t->cli->err);
	if (rc)
		return rc;
	ctx->log = keep_message;
	ctx->log_arg = t;
	rc = start_session(t);
	t->end_ns = t->for_ns ? jm_ctx_now(ctx) + t->for_ns : JM_FOREVER;
	if (!rc)
		rc = go_on(t);
	jm_top_screen_close();
	jm_session_close(t->session);
	ctx->log = before.log;
	ctx->log_arg = before.log_arg;
	return rc;
}

static int top(struct jm_cli *cli)
{
	struct top t = {.cli = cli, .wake_fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};
	int rc;

	JM_FILL(&cli->values, &t);
	rc = jm_device_sources(t.device, t.source_texts, &t.sources, &cli->err);
	if (!rc)
		rc = show(&t);
	jm_running_free(t.running);
	jm_source_list_done(&t.sources);
	return rc ? jm_cli_fail(cli) : 0;
}

const struct jm_command jm_command_top = {
	.name = "top",
	.summary = "show devices and running work on the whole terminal",
	.usage = "[options]",
	.description =
		"Reads the sensors and draws, once a second, a row for each device: watts and "
		"joules since the start with their origin, clocks in MHz, temperature in degrees "
		"Celsius, utilisation, the enforced power limit, and why its clocks are reduced "
		"(cap: the power limit; heat: the temperature; brake: the power supply; other: "
		"another reason; no: they are not reduced). As many columns are shown as the "
		"terminal is wide. An unknown value is '-'. Below the devices is the running work "
		"that 'joulemark status' shows.\n\nq and Ctrl-C end it, as does --for; the status "
		"is 0. It needs a terminal; 'joulemark watch' writes lines.",
	.example = "joulemark top\n"
		   "joulemark top --source nvml --interval 500ms",
	.options = options,
	.run = top,
};
