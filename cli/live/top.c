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
	struct jm_top_history history;
	struct jm_process_energy *processes;
	char *text; /* shown, or to be shown after the help; NULL = none yet */
	enum jm_top_sort sort;
	int first; /* line of the text that is shown first */
	bool over, help, frozen;
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

/* The text of this moment, in place of the one before. */
static int make_text(struct top *t)
{
	struct jm_work_list work = {0};
	char message[sizeof(t->message)];

	jm_work_list_read(&t->cli->ctx, &work, NULL); /* unreadable: none is shown */
	pthread_mutex_lock(&t->lock);
	memcpy(message, t->message, sizeof(message));
	pthread_mutex_unlock(&t->lock);
	free(t->text);
	t->text = jm_top_text(&(struct jm_top_view){.set = jm_session_meters(t->session),
				      .session = t->session,
				      .running = t->running,
				      .history = &t->history,
				      .work = &work,
				      .processes = t->processes,
				      .sort = t->sort,
				      .message = message,
				      .interval_ns = t->interval_ns,
				      .wall_ns = jm_clock_wall(t->cli->ctx.clock),
				      .ascii = !jm_top_screen_utf8()},
		jm_top_screen_width());
	jm_work_list_done(&work);
	return t->text ? 0 : jm_err_set(&t->cli->err, JM_ENOMEM, "Out of memory for the screen.");
}

static int lines_of(const char *text)
{
	int n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

/* The last line: the keys, and which lines are shown where not all are. */
static void put_keys(const struct top *t, int lines, char *out, size_t size)
{
	int shown = jm_top_screen_height();

	snprintf(out, size, "q quit  ? %s  s sort (%s)  f %s", t->help ? "back" : "help",
		jm_top_sort_name(t->sort), t->frozen ? "go on (frozen)" : "freeze");
	if (lines > shown)
		snprintf(out + strlen(out), size - strlen(out), "  lines %d-%d of %d (Up, Down)",
			t->first + 1, t->first + shown < lines ? t->first + shown : lines, lines);
}

static int draw(struct top *t)
{
	char *help = t->help ? jm_top_help_text(jm_top_screen_width()) : NULL, keys[160];
	int lines, most, rc = 0;

	if (!t->frozen || !t->text)
		rc = make_text(t);
	if (!rc && t->help && !help)
		rc = jm_err_set(&t->cli->err, JM_ENOMEM, "Out of memory for the screen.");
	if (!rc) {
		lines = lines_of(help ? help : t->text);
		most = lines - jm_top_screen_height();
		if (t->first > most)
			t->first = most;
		if (t->first < 0)
			t->first = 0;
		put_keys(t, lines, keys, sizeof(keys));
		jm_top_screen_draw(help ? help : t->text, t->first, keys);
	}
	free(help);
	return rc;
}

static void obey(struct top *t, enum jm_top_key key)
{
	int page = jm_top_screen_height();

	switch (key) {
	case JM_TOP_QUIT:
		t->over = true;
		break;
	case JM_TOP_HELP:
		t->help = !t->help;
		t->first = 0;
		break;
	case JM_TOP_SORT:
		t->sort = (t->sort + 1) % JM_TOP_SORT_COUNT;
		break;
	case JM_TOP_FREEZE:
		t->frozen = !t->frozen;
		break;
	case JM_TOP_UP:
	case JM_TOP_PAGE_UP:
		t->first -= key == JM_TOP_UP ? 1 : page;
		break;
	case JM_TOP_DOWN:
	case JM_TOP_PAGE_DOWN:
		t->first += key == JM_TOP_DOWN ? 1 : page;
		break;
	default:
		break;
	}
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

		obey(t, key);
		if (now >= due) {
			jm_top_history_take(&t->history, t->running);
			rc = jm_process_energy_look(t->processes, &t->cli->err);
		}
		if (!rc && !t->over && (now >= due || key != JM_TOP_NONE))
			rc = draw(t);
		if (now >= due)
			due = now + t->interval_ns;
		if (key == JM_TOP_NONE)
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
	if (!rc)
		rc = jm_top_history_new(&t->history, jm_session_meters(t->session)->n, err);
	if (!rc)
		rc = jm_session_start(t->session, err);
	return rc ? rc
		  : jm_process_energy_new(&t->cli->ctx, t->session, t->running, &t->processes, err);
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
	jm_process_energy_free(t->processes);
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
	jm_top_history_done(&t.history);
	free(t.text);
	jm_running_free(t.running);
	jm_source_list_done(&t.sources);
	return rc ? jm_cli_fail(cli) : 0;
}

const struct jm_command jm_command_top = {
	.name = "top",
	.summary = "show devices and running work on the whole terminal",
	.usage = "[options]",
	.description =
		"Reads the sensors and draws, once a second, a row for each device: watts with "
		"the enforced power limit, clocks in MHz, temperature in degrees Celsius, "
		"utilisation, used memory, joules since the start, why its clocks are reduced "
		"(cap: the power limit; heat: the temperature; brake: the power supply; other: "
		"another reason; no: they are not reduced), and its watts at the last updates as "
		"bars, from 0 to the power limit. As many columns are shown as the terminal is "
		"wide; the origin of the watts, where the devices have several. An unknown value "
		"is "
		"'-'. Below are the running work that 'joulemark status' shows and the processes, "
		"with their processor time, use and memory of GPUs, and the energy since the start "
		"that is estimated to be theirs: that of processors by processor time, that of a "
		"GPU by its use as its driver reports it.\n\nKeys: s sorts the processes by the "
		"next column, f freezes the screen while the sensors are read on, the arrows and "
		"the page keys scroll, ? explains the columns. q and Ctrl-C end it, as does --for; "
		"the status is 0. It needs a terminal; 'joulemark watch' writes lines.",
	.example = "joulemark top\n"
		   "joulemark top --source nvml --interval 500ms",
	.options = options,
	.run = top,
};
