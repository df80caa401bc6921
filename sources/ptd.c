/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power analysers behind SPEC's PTDaemon, over its TCP text protocol: Hello, RR and SR (ranges), Go
 * (begins a measurement of samples without end), RL (the samples not read yet), Stop. The protocol
 * is known from the programs that use it (MLPerf's power-dev, SPEC's Chauffeur); the daemon itself
 * was not at hand. For MLPerf a run is made twice: once with ranges found by the analyser
 * (volts=auto,amps=auto), once with fixed ranges above the highest values of the first; the ranges
 * that were set before are put back. Samples carry the time of the daemon's machine. It is mapped
 * to this machine's by the shortest delay that was seen from a sample to its arrival, so that it is
 * late by that delay at most.
 */
#include "base/ctx.h"
#include "base/clock.h"
#include "meter/source.h"
#include "parse_reading.h"
#include "retry.h"
#include "shared_options.h"
#include "vendor/text_line.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAMP_SLACK (10 * JM_SECOND) /* a jump of the daemon's clock, as by summer time */
#define MAX_SAMPLES 100000
#define SIGNALS	    4

static const enum jm_quantity quantities[SIGNALS] = {
	JM_Q_POWER, JM_Q_VOLTAGE, JM_Q_CURRENT, JM_Q_POWER_FACTOR};

struct range {
	char kind;	       /* 'V', 'A' */
	bool change;	       /* the user asks for one */
	double wanted, before; /* NAN = auto */
};

struct state {
	struct jm_ctx *ctx;
	struct jm_text_line line;
	struct range range[2];			/* amps, volts: the order of RR */
	const char *host, *given_mark, *covers; /* options, while it is opened */
	char mark[64];
	double period; /* s */
	int period_ms;
	int64_t retry_ns;
	int64_t offset;	 /* daemon's time minus ours; INT64_MIN = not known */
	int64_t last_ns; /* of the last sample given */
};

/* ---- the daemon ---- */

static bool refuses(const char *answer)
{
	return !strncmp(answer, "Error", 5) || !strncmp(answer, "Invalid", 7) ||
	       !strncmp(answer, "Unknown", 7);
}

static bool command(struct state *s, const char *text)
{
	char answer[256];

	return jm_text_line_ask(&s->line, text, answer, sizeof(answer)) && !refuses(answer);
}

/* "Ranges,<amps auto>,<amps>,<volts auto>,<volts>"; auto: 1, 0, -1 = unknown. */
static void remember_ranges(struct state *s)
{
	double value[4];
	char answer[256];

	for (int i = 0; i < 2; i++)
		s->range[i].before = NAN;
	if (!jm_text_line_ask(&s->line, "RR", answer, sizeof(answer)) ||
		strncmp(answer, "Ranges,", 7) != 0 || jm_parse_list(answer + 7, value, 4) < 4)
		return;
	for (int i = 0; i < 2; i++)
		if (value[2 * i] == 0 && value[2 * i + 1] > 0)
			s->range[i].before = value[2 * i + 1];
}

static bool set_range(struct state *s, const struct range *r, double value)
{
	char text[64];

	if (isnan(value))
		snprintf(text, sizeof(text), "SR,%c,Auto", r->kind);
	else
		snprintf(text, sizeof(text), "SR,%c,%g", r->kind, value);
	return command(s, text);
}

static bool greet(struct state *s)
{
	char answer[256];

	return jm_text_line_open(&s->line) &&
	       jm_text_line_ask(&s->line, "Hello", answer, sizeof(answer)) &&
	       !strncmp(answer, "Hello, PTDaemon", 15);
}

static bool go(struct state *s)
{
	char text[128];

	snprintf(text, sizeof(text), "Go,%d,0,%s", s->period_ms, s->mark);
	return command(s, text);
}

/* After a lost line; the daemon may have gone on measuring, so that Go may be refused. */
static bool connect_line(struct state *s)
{
	if (s->line.fd >= 0)
		return true;
	if (!jm_retry_now(&s->retry_ns, jm_ctx_now(s->ctx)))
		return false;
	if (greet(s)) {
		go(s);
		return s->line.fd >= 0;
	}
	jm_text_line_close(&s->line);
	return false;
}

/* ---- samples ---- */

static int64_t time_of(struct state *s, const struct jm_ptd_sample *sample, int64_t now)
{
	int64_t delay = sample->t_ns - now, t;

	if (s->offset == INT64_MIN || delay > s->offset || delay < s->offset - STAMP_SLACK)
		s->offset = delay;
	t = sample->t_ns - s->offset;
	if (t <= s->last_ns)
		t = s->last_ns + 1;
	t = t > now ? now : t;
	s->last_ns = t;
	return t;
}

static void give_unknown(struct state *s, struct jm_sink *sink)
{
	int64_t now = jm_ctx_now(s->ctx);

	for (int i = 0; i < SIGNALS; i++)
		jm_give(sink, i, NAN, now);
	s->last_ns = now;
}

static bool give_sample(struct state *s, struct jm_sink *sink, int64_t now)
{
	struct jm_ptd_sample sample;
	char text[1024];
	int64_t t;

	if (!jm_text_line_receive(&s->line, text, sizeof(text)))
		return false;
	if (!jm_parse_ptd(text, &sample))
		sample = (struct jm_ptd_sample){
			now + (s->offset == INT64_MIN ? 0 : s->offset), NAN, NAN, NAN, NAN};
	t = time_of(s, &sample, now);
	jm_give(sink, 0, sample.watts, t);
	jm_give(sink, 1, sample.volts, t);
	jm_give(sink, 2, sample.amps, t);
	jm_give(sink, 3, sample.factor, t);
	return true;
}

static int ptd_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct state *s = state;
	char answer[256];
	int n = 0, used = 0;
	int64_t now;

	(void)err;
	jm_text_line_limit(&s->line);
	if (!connect_line(s) || !jm_text_line_ask(&s->line, "RL,*", answer, sizeof(answer))) {
		give_unknown(s, sink);
		return 0;
	}
	if (sscanf(answer, "Last %6d sample%n", &n, &used) != 1 || !used || n < 0 ||
		n > MAX_SAMPLES)
		n = 0; /* "No unread samples": there will be some later */
	now = jm_ctx_now(s->ctx);
	for (int i = 0; i < n; i++)
		if (!give_sample(s, sink, now)) {
			give_unknown(s, sink);
			break;
		}
	return 0;
}

/* ---- opening ---- */

static void prepare(struct state *s)
{
	snprintf(s->line.host, sizeof(s->line.host), "%s", s->host);
	s->line.ending = "\r\n";
	s->period_ms = (int)(s->period * 1e3);
	for (int i = 0; i < 2; i++)
		s->range[i].kind = i ? 'V' : 'A';
	snprintf(s->mark, sizeof(s->mark), "%s", s->given_mark);
	for (char *c = s->mark; *c; c++) /* a comma would begin another field */
		if (*c == ',' || *c < ' ')
			*c = '_';
}

static int start_measuring(struct state *s, struct jm_err *err)
{
	jm_text_line_limit(&s->line);
	if (!greet(s))
		return jm_err_set(err, JM_ENOENT,
			"No PTDaemon answers at %s, port %d (%s); start it with its device, and "
			"check address "
			"and port.",
			s->line.host, s->line.port,
			s->line.fd < 0 ? strerror(errno) : "another greeting");
	remember_ranges(s);
	for (int i = 0; i < 2; i++)
		if (s->range[i].change && !set_range(s, &s->range[i], s->range[i].wanted))
			return jm_err_set(err, JM_ENOSUP,
				"PTDaemon at %s does not set the range of %s; the analyser may not "
				"have it.",
				s->line.host, i ? "volts" : "amps");
	if (go(s))
		return 0;
	return jm_err_set(err, JM_EIO,
		"PTDaemon at %s does not begin a measurement with a sample every %d ms; another "
		"program may be using it.",
		s->line.host, s->period_ms);
}

static int add_meter(struct state *s, struct jm_meters *set, struct jm_err *err)
{
	struct jm_meter meter = {.source = "ptd", .origin = JM_MEASURED, .covers = s->covers};
	struct jm_signal signal[SIGNALS];

	meter.scope = strcmp(s->covers, "/") ? JM_SCOPE_OUTLET : JM_SCOPE_NODE;
	snprintf(meter.id, sizeof(meter.id), "ptd:%.90s:%d", s->line.host, s->line.port);
	snprintf(meter.label, sizeof(meter.label), "%.40s (PTDaemon)", s->line.host);
	for (int i = 0; i < SIGNALS; i++)
		signal[i] = (struct jm_signal){.quantity = quantities[i],
			.refresh_ns = s->period_ms * JM_MILLISECOND,
			.window_ns = -1,
			.accuracy = NAN};
	return jm_meters_add_whole(set, &meter, signal, SIGNALS, err);
}

static void ptd_close(void *state)
{
	struct state *s = state;

	if (!s)
		return;
	jm_text_line_limit(&s->line);
	if (s->line.fd >= 0)
		command(s, "Stop");
	for (int i = 0; i < 2; i++)
		if (s->line.fd >= 0 && s->range[i].change)
			set_range(s, &s->range[i], s->range[i].before);
	jm_text_line_close(&s->line);
	free(s);
}

static int ptd_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	struct state *s;
	int rc;

	s = calloc(1, sizeof(*s));
	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for PTDaemon.");
	JM_FILL(options, s);
	if (!s->host) {
		free(s);
		return jm_err_set(err, JM_EUSAGE,
			"The source ptd needs the host of PTDaemon, as in "
			"'ptd:host=meter1,port=8888'.");
	}
	s->ctx = ctx;
	s->line.fd = -1;
	s->offset = s->last_ns = INT64_MIN;
	prepare(s);
	rc = start_measuring(s, err);
	if (!rc)
		rc = add_meter(s, set, err);
	if (rc)
		ptd_close(s);
	else
		*ret_state = s;
	return rc;
}

static const char *const automatic[] = {"auto", NULL};

static const struct jm_option options[] = {
	JM_HOST_OPTION(struct state, host, "host on which the daemon runs"),
	JM_PORT_OPTION(struct state, line.port, "8888", "TCP"),
	{.name = "volts",
		JM_BIND(JM_REAL, struct state, range[1].wanted),
		JM_GIVEN(struct state, range[1].change),
		.unit = "V",
		.min = 1,
		.max = 10000,
		.choices = automatic,
		.argument = "V",
		.help = "sets the range of volts: auto or a number; restored afterwards"},
	{.name = "amps",
		JM_BIND(JM_REAL, struct state, range[0].wanted),
		JM_GIVEN(struct state, range[0].change),
		.unit = "A",
		.min = 0.001,
		.max = 10000,
		.choices = automatic,
		.argument = "A",
		.help = "sets the range of amperes: auto (a ranging run) or a number (a testing "
			"run)"},
	{.name = "mark",
		JM_BIND(JM_TEXT, struct state, given_mark),
		.fallback = "joulemark",
		.argument = "TEXT",
		.help = "mark of the samples in the daemon's log"},
	{.name = "period",
		JM_BIND(JM_DURATION, struct state, period),
		.unit = "s",
		.min = 0.1,
		.max = 60,
		.fallback = "1s",
		.argument = "TIME",
		.help = "time between two samples"},
	JM_TIMEOUT_OPTION(struct state, line.timeout_ns, 60, "5s", " with all its samples"),
	JM_COVERS_OPTION(
		struct state, covers, "what the analyser measures: / (the node), psu/0..."),
	{0},
};

const struct jm_source jm_source_ptd = {
	.name = "ptd",
	.summary = "power analysers behind SPEC's PTDaemon",
	.options = options,
	.origin = JM_MEASURED,
	.keeps_time = true,
	.on_request = true,
	.open = ptd_open,
	.read = ptd_read,
	.close = ptd_close,
};
