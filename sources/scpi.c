/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Yokogawa WT310, WT310E and WT33x power meters by their own commands (SCPI style), over TCP, a
 * serial port (9600 baud, 8N1) or /dev/usbtmcN. Commands after the instruments' communication
 * manual as public drivers use them; the meter's numeric items 1 to 5 are set to P, U, I, lambda
 * and WH of one element. Not verified on an instrument: that its TCP port takes these commands
 * without a VXI-11 or Modbus layer (the source modbus reads its documented registers), the name of
 * the command for the rate, and 'sync', which waits for the end of an update by the status filter.
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

#define WH 3600.0 /* J */

enum { P, U, I, LAMBDA, ENERGY, ITEMS };

static const struct {
	const char *name; /* of the item */
	enum jm_quantity quantity;
	double scale, most; /* to SI units */
} items[ITEMS] = {
	{"P", JM_Q_POWER, 1, JM_MAX_WATTS},
	{"U", JM_Q_VOLTAGE, 1, 1e4},
	{"I", JM_Q_CURRENT, 1, 1e4},
	{"LAMBda", JM_Q_POWER_FACTOR, 1, 1},
	{"WH", JM_Q_ENERGY, WH, 1e12},
};

struct state {
	struct jm_ctx *ctx;
	struct jm_text_line line;
	const char *address, *covers; /* options, while it is opened */
	char name[64];		      /* the first answer to *IDN? */
	int n, element;
	bool sync, integrate;
	double rate, refresh; /* s; NAN = left as it is */
	int64_t retry_ns;
};

/* ---- the instrument ---- */

static bool set_up(struct state *s)
{
	struct jm_text_line *line = &s->line;
	char text[64];
	bool ok;

	ok = jm_text_line_send(line, ":COMMunicate:HEADer OFF") &&
	     jm_text_line_send(line, ":NUMeric:FORMat ASCii");
	snprintf(text, sizeof(text), ":NUMeric:NORMal:NUMber %d", s->n);
	ok = ok && jm_text_line_send(line, text);
	for (int i = 0; ok && i < s->n; i++) {
		snprintf(text, sizeof(text), ":NUMeric:NORMal:ITEM%d %s,%d", i + 1, items[i].name,
			s->element);
		ok = jm_text_line_send(line, text);
	}
	if (ok && !isnan(s->rate)) {
		snprintf(text, sizeof(text), ":SAMPle:RATE %g", s->rate);
		ok = jm_text_line_send(line, text);
	}
	if (ok && s->sync) /* bit 0 of the extended event register: an update is complete */
		ok = jm_text_line_send(line, ":STATus:FILTer1 FALL");
	return ok;
}

static bool start_integration(struct state *s)
{
	return jm_text_line_send(&s->line, ":INTEGrate:STOP") &&
	       jm_text_line_send(&s->line, ":INTEGrate:RESet") &&
	       jm_text_line_send(&s->line, ":INTEGrate:MODE NORMal") &&
	       jm_text_line_send(&s->line, ":INTEGrate:STARt");
}

/* Its name, which must be the one it had before: another instrument at this address measures
 * something else. */
static bool identify(struct state *s)
{
	char name[sizeof(s->name)];

	if (!jm_text_line_ask(&s->line, "*IDN?", name, sizeof(name)))
		return false;
	if (!*s->name)
		memcpy(s->name, name, sizeof(name));
	return !strcmp(s->name, name);
}

/* False: it does not answer or is another one, and is asked again a second later. */
static bool connect_line(struct state *s)
{
	if (s->line.fd >= 0)
		return true;
	if (!jm_retry_now(&s->retry_ns, jm_ctx_now(s->ctx)))
		return false;
	if (!jm_text_line_open(&s->line))
		return false;
	if (identify(s) && set_up(s))
		return true;
	jm_text_line_close(&s->line);
	return false;
}

static bool read_values(struct state *s, double value[ITEMS])
{
	char text[256];

	jm_text_line_limit(&s->line);
	if (!connect_line(s))
		return false;
	if (s->sync && (!jm_text_line_ask(&s->line, ":STATus:EESR?", text, sizeof(text)) ||
			       !jm_text_line_send(&s->line, ":COMMunicate:WAIT 1")))
		return false;
	if (!jm_text_line_ask(&s->line, ":NUMeric:NORMal:VALue?", text, sizeof(text)) ||
		jm_parse_list(text, value, ITEMS) != s->n)
		return false;
	for (int i = 0; i < s->n; i++) {
		value[i] *= items[i].scale;
		if (!(value[i] >= 0 && value[i] <= items[i].most))
			value[i] = NAN;
	}
	if (value[P] == 0) /* nothing is connected, or the range is far too large */
		value[P] = NAN;
	return true;
}

/* ---- opening ---- */

static void prepare(struct state *s)
{
	snprintf(s->line.host, sizeof(s->line.host), "%s", s->address);
	s->line.ending = "\n";
	s->n = s->integrate ? ITEMS : ENERGY;
}

static double ask_rate(struct state *s)
{
	double seconds = NAN;
	char text[64];

	jm_text_line_limit(&s->line);
	if (!jm_text_line_ask(&s->line, ":SAMPle:RATE?", text, sizeof(text)) ||
		jm_parse_list(text, &seconds, 1) != 1)
		return NAN;
	return seconds >= 0.01 && seconds <= 60 ? seconds : NAN;
}

static int check_instrument(struct state *s, struct jm_err *err)
{
	double value[ITEMS];

	jm_text_line_limit(&s->line);
	if (!connect_line(s))
		return jm_err_set(err, JM_ENOENT,
			"The instrument at %s does not answer *IDN? (%s); check the address, port "
			"or baud "
			"rate, and that nothing else is connected to it.",
			s->line.host, strerror(errno));
	if (!strstr(s->name, "WT"))
		return jm_err_set(err, JM_ENOSUP,
			"The instrument at %s identifies itself as '%s', which is not a power "
			"meter of the WT series.",
			s->line.host, s->name);
	s->refresh = ask_rate(s);
	if (s->integrate && !start_integration(s))
		return jm_err_set(err, JM_EIO, "%s does not start its integration.", s->name);
	if (s->line.fd < 0)
		s->retry_ns = 0; /* an older instrument may not know the question for its rate */
	if (!read_values(s, value) || isnan(value[P]))
		return jm_err_set(err, JM_EIO,
			"%s at %s reports no power of element %d; check its wiring, its ranges and "
			"the number of the element.",
			s->name, s->line.host, s->element);
	return 0;
}

static int add_meter(struct state *s, struct jm_meters *set, struct jm_err *err)
{
	struct jm_meter meter = {.source = "scpi", .origin = JM_MEASURED, .covers = s->covers};
	struct jm_signal signal[ITEMS];

	meter.scope = strcmp(s->covers, "/") ? JM_SCOPE_OUTLET : JM_SCOPE_NODE;
	snprintf(meter.id, sizeof(meter.id), "scpi:%.90s/%d", s->line.host, s->element);
	snprintf(meter.label, sizeof(meter.label), "%.60s", s->name);
	for (int i = 0; i < s->n; i++)
		signal[i] = (struct jm_signal){.quantity = items[i].quantity,
			.refresh_ns = isnan(s->refresh) ? 0 : (int64_t)(s->refresh * 1e9),
			.window_ns = items[i].quantity == JM_Q_ENERGY ? 0
				     : isnan(s->refresh)	      ? -1
								      : (int64_t)(s->refresh * 1e9),
			.accuracy = NAN};
	return jm_meters_add_whole(set, &meter, signal, s->n, err);
}

static void scpi_close(void *state)
{
	struct state *s = state;

	if (!s)
		return;
	jm_text_line_limit(&s->line);
	if (s->integrate && s->line.fd >= 0)
		jm_text_line_send(&s->line, ":INTEGrate:STOP");
	jm_text_line_close(&s->line);
	free(s);
}

static int scpi_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	struct state *s;
	int rc;

	s = calloc(1, sizeof(*s));
	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for an instrument.");
	JM_FILL(options, s);
	if (!s->address) {
		free(s);
		return jm_err_set(err, JM_EUSAGE,
			"The source scpi needs an address, as in 'scpi:wt310.lab', "
			"'scpi:/dev/usbtmc0' or "
			"'scpi:/dev/ttyS0'.");
	}
	s->ctx = ctx;
	s->line.fd = -1;
	prepare(s);
	rc = check_instrument(s, err);
	if (!rc)
		rc = add_meter(s, set, err);
	if (rc)
		scpi_close(s);
	else
		*ret_state = s;
	return rc;
}

static int scpi_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct state *s = state;
	double value[ITEMS];
	bool known = read_values(s, value);
	int64_t now = jm_ctx_now(s->ctx);

	(void)err;
	for (int i = 0; i < s->n; i++)
		jm_give(sink, i, known ? value[i] : NAN, now);
	return 0;
}

static const struct jm_option options[] = {
	{.name = "address",
		JM_BIND(JM_TEXT, struct state, address),
		.argument = "WHERE",
		.help = "the instrument's network name, or its device file (/dev/usbtmc0, "
			"/dev/ttyS0)"},
	JM_PORT_OPTION(struct state, line.port, "10001", "TCP"),
	{.name = "baud",
		JM_BIND(JM_INT, struct state, line.baud),
		.min = 1200,
		.max = 115200,
		.fallback = "9600",
		.argument = "N",
		.help = "speed of a serial port"},
	{.name = "element",
		JM_BIND(JM_INT, struct state, element),
		.min = 1,
		.max = 3,
		.fallback = "1",
		.argument = "N",
		.help = "input element of the meter"},
	{.name = "rate",
		JM_BIND(JM_DURATION, struct state, rate),
		.unit = "s",
		.min = 0.1,
		.max = 5,
		.argument = "TIME",
		.help = "sets its update period: 0.1, 0.25, 0.5, 1, 2 or 5 s; without it the "
			"period is not changed"},
	{.name = "sync",
		JM_BIND(JM_FLAG, struct state, sync),
		.help = "wait for the end of each update of the meter"},
	{.name = "integrate",
		JM_BIND(JM_FLAG, struct state, integrate),
		.help = "restart the meter's own integration and read its energy"},
	JM_TIMEOUT_OPTION(struct state, line.timeout_ns, 60, "2s", ""),
	JM_COVERS_OPTION(
		struct state, covers, "what it measures: / (the node), psu/0, outside/door..."),
	{0},
};

const struct jm_source jm_source_scpi = {
	.name = "scpi",
	.summary = "Yokogawa WT power meters over TCP, serial or USB, by their own commands",
	.options = options,
	.origin = JM_MEASURED,
	.keeps_time = true,
	.on_request = true,
	.open = scpi_open,
	.read = scpi_read,
	.close = scpi_close,
};
