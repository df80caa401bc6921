/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power meters and PDUs over Modbus/TCP, by libmodbus (opened when it is needed). Register maps:
 * Yokogawa WT310 (IM WT310-17EN, chapter 9: the numeric items as float32 from input register 2000
 * on, high word first; item 1 U, 2 I, 3 P, 6 the power factor unless the items were changed) and
 * the inlet of PDUs with Xerus firmware (Raritan, Server Technology, Legrand: holding registers,
 * float32, high word first). Any other map: the address of the power, and its type and scale.
 */
#include "base/ctx.h"
#include "base/clock.h"
#include "meter/source.h"
#include "parse_reading.h"
#include "retry.h"
#include "shared_options.h"
#include "vendor/library.h"

#include <errno.h>
#include <math.h>
#include <modbus.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ITEMS 4
#define MAX_WORDS 16

#define MODBUS_CALLS(X)                                                                            \
	X(modbus_new_tcp_pi)                                                                       \
	X(modbus_set_slave)                                                                        \
	X(modbus_set_response_timeout)                                                             \
	X(modbus_set_byte_timeout)                                                                 \
	X(modbus_connect)                                                                          \
	X(modbus_close)                                                                            \
	X(modbus_free)                                                                             \
	X(modbus_read_registers)                                                                   \
	X(modbus_read_input_registers)                                                             \
	X(modbus_strerror)

struct calls {
#define X(name) __typeof__(&name) name;
	MODBUS_CALLS(X)
#undef X
};

static const struct jm_symbol symbols[] = {
#define X(name) {#name, offsetof(struct calls, name)},
	MODBUS_CALLS(X)
#undef X
};

static const struct jm_library library = {
	.title = "libmodbus",
	.variable = "JM_MODBUS_LIB",
	.names = {"libmodbus.so.5"},
	.mend = "install libmodbus (Debian: libmodbus5) or name the file in JM_MODBUS_LIB",
	.symbols = symbols,
	.n_symbols = sizeof(symbols) / sizeof(symbols[0]),
};

enum type { F32, U16, S16, U32, S32 };
static const char *const type_names[] = {"f32", "u16", "s16", "u32", "s32", NULL};

struct item {
	enum jm_quantity quantity;
	int address; /* 0-based */
};

struct map {
	const char *name;
	bool input; /* input registers, else holding registers */
	enum type type;
	int first, words; /* the block of registers that holds them all */
	int n;
	struct item item[MAX_ITEMS]; /* the power first */
};

static const struct map maps[] = {
	{"wt310", true, F32, 2000, 12, 4,
		{{JM_Q_POWER, 2004}, {JM_Q_VOLTAGE, 2000}, {JM_Q_CURRENT, 2002},
			{JM_Q_POWER_FACTOR, 2010}}},
	{"xerus", false, F32, 12296, 16, 4,
		{{JM_Q_POWER, 12306}, {JM_Q_VOLTAGE, 12296}, {JM_Q_CURRENT, 12298},
			{JM_Q_POWER_FACTOR, 12310}}},
};
static const char *const map_names[] = {"wt310", "xerus", NULL};

struct state {
	struct jm_ctx *ctx;
	struct calls call;
	modbus_t *line;
	char host[128], port[16];
	struct map map;
	bool little; /* the low word comes first */
	double scale;
	bool connected;
	int64_t retry_ns; /* not before this */
};

/* ---- the line ---- */

static bool connect_line(struct state *s)
{
	if (s->connected)
		return true;
	if (!jm_retry_now(&s->retry_ns, jm_ctx_now(s->ctx)))
		return false;
	s->connected = s->call.modbus_connect(s->line) == 0;
	return s->connected;
}

static double decode(const struct state *s, const uint16_t *word)
{
	bool wide = s->map.type == F32 || s->map.type == U32 || s->map.type == S32;
	uint32_t bits = wide ? (uint32_t)word[s->little] << 16 | word[!s->little] : word[0];
	float f;

	switch (s->map.type) {
	case F32:
		memcpy(&f, &bits, sizeof(f));
		return (double)f;
	case U16:
	case U32:
		return bits;
	case S16:
		return (int16_t)bits;
	case S32:
		return (int32_t)bits;
	}
	return NAN;
}

/* All registers of the map in one question; false = no answer. */
static bool read_block(struct state *s, uint16_t *block)
{
	int got;

	if (!connect_line(s))
		return false;
	got = s->map.input
		      ? s->call.modbus_read_input_registers(
				s->line, s->map.first, s->map.words, block)
		      : s->call.modbus_read_registers(s->line, s->map.first, s->map.words, block);
	/* An exception is an answer; after anything else what comes next may be the rest of this
	 * one. */
	if (got < 0 && (errno <= MODBUS_ENOBASE || errno > EMBXGTAR)) {
		s->call.modbus_close(s->line);
		s->connected = false;
	}
	return got == s->map.words;
}

/* A value of the block in its unit; NAN = one that cannot be. */
static double value_of(const struct state *s, const uint16_t *block, const struct item *item)
{
	double value = decode(s, block + item->address - s->map.first);

	if (item->quantity == JM_Q_POWER)
		value *= s->scale;
	return isfinite(value) && value >= 0 && value < JM_MAX_WATTS ? value : NAN;
}

/* ---- opening ---- */

/* The options, while it is opened. */
struct call {
	const char *host, *map; /* NULL = not given */
	const char *table, *covers;
	double power; /* address of its register; NAN = not given */
	double scale; /* W of a step of the register */
	enum type type;
	bool low_first;
	int port, unit;
	double timeout;	    /* s */
	int64_t refresh_ns; /* 0 = unknown */
};

static int custom_map(struct state *s, const struct call *c, struct jm_err *err)
{
	if (isnan(c->power))
		return jm_err_set(err, JM_EUSAGE,
			"The source modbus needs map=NAME (wt310, xerus) or the register of the "
			"power, as in 'modbus:pdu1,power=12306,type=f32'.");
	s->map = (struct map){.name = "registers",
		.input = !strcmp(c->table, "input"),
		.type = c->type,
		.first = (int)c->power,
		.n = 1,
		.item = {{JM_Q_POWER, (int)c->power}}};
	s->map.words = c->type == U16 || c->type == S16 ? 1 : 2;
	s->scale = c->scale;
	s->little = c->low_first;
	return 0;
}

static int choose_map(struct state *s, const struct call *c, struct jm_err *err)
{
	s->scale = 1;
	for (size_t i = 0; c->map && i < sizeof(maps) / sizeof(maps[0]); i++)
		if (!strcmp(maps[i].name, c->map))
			s->map = maps[i];
	return c->map ? 0 : custom_map(s, c, err);
}

static int open_line(struct state *s, const struct call *c, struct jm_err *err)
{
	uint16_t block[MAX_WORDS];

	if (!c->host)
		return jm_err_set(err, JM_EUSAGE,
			"The source modbus needs a host, as in 'modbus:host=meter1,map=wt310'.");
	snprintf(s->host, sizeof(s->host), "%s", c->host);
	snprintf(s->port, sizeof(s->port), "%d", c->port);
	s->line = s->call.modbus_new_tcp_pi(s->host, s->port);
	if (!s->line)
		return jm_err_set(err, JM_EUSAGE, "'%s' is not the name of a Modbus host: %s.",
			s->host, s->call.modbus_strerror(errno));
	s->call.modbus_set_slave(s->line, c->unit);
	s->call.modbus_set_response_timeout(
		s->line, (uint32_t)c->timeout, (uint32_t)((c->timeout - floor(c->timeout)) * 1e6));
	/* no time limit between two bytes: the one above then covers the whole answer */
	s->call.modbus_set_byte_timeout(s->line, 0, 0);
	if (!connect_line(s))
		return jm_err_set(err, JM_ENOENT,
			"Modbus host %s, port %s, does not answer: %s; check its address, port and "
			"whether it accepts connections from this machine.",
			s->host, s->port, s->call.modbus_strerror(errno));
	if (!read_block(s, block) || isnan(value_of(s, block, &s->map.item[0])))
		return jm_err_set(err, JM_EIO,
			"Modbus host %s returns no power from register %d of its %s registers "
			"(%s); check map, register, type and unit id.",
			s->host, s->map.item[0].address, s->map.input ? "input" : "holding",
			s->call.modbus_strerror(errno));
	return 0;
}

static int add_meter(
	struct state *s, const struct call *c, struct jm_meters *set, struct jm_err *err)
{
	struct jm_meter meter = {.source = "modbus", .origin = JM_MEASURED, .covers = c->covers};
	struct jm_signal signal[MAX_ITEMS];

	meter.scope = strcmp(meter.covers, "/") ? JM_SCOPE_OUTLET : JM_SCOPE_NODE;
	snprintf(meter.id, sizeof(meter.id), "modbus:%.80s:%s/%d/%d", s->host, s->port, c->unit,
		s->map.item[0].address);
	snprintf(meter.label, sizeof(meter.label), "%.40s (%s)", s->host, s->map.name);
	for (int i = 0; i < s->map.n; i++)
		signal[i] = (struct jm_signal){.quantity = s->map.item[i].quantity,
			.refresh_ns = c->refresh_ns,
			.window_ns = -1,
			.accuracy = NAN};
	return jm_meters_add_whole(set, &meter, signal, s->map.n, err);
}

static void modbus_source_close(void *state)
{
	struct state *s = state;

	if (!s)
		return;
	if (s->line) {
		s->call.modbus_close(s->line);
		s->call.modbus_free(s->line);
	}
	free(s);
}

static int modbus_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	struct call c = {0};
	int rc;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for Modbus.");
	s->ctx = ctx;
	JM_FILL(options, &c);
	rc = choose_map(s, &c, err);
	if (!rc)
		rc = jm_library_open(&library, &s->call, err);
	if (!rc)
		rc = open_line(s, &c, err);
	if (!rc)
		rc = add_meter(s, &c, set, err);
	if (rc)
		modbus_source_close(s);
	else
		*ret_state = s;
	return rc;
}

static int modbus_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct state *s = state;
	uint16_t block[MAX_WORDS];
	bool known = read_block(s, block);
	int64_t now = jm_ctx_now(s->ctx);

	(void)err;
	for (int i = 0; i < s->map.n; i++)
		jm_give(sink, i, known ? value_of(s, block, &s->map.item[i]) : NAN, now);
	return 0;
}

static const char *const tables[] = {"holding", "input", NULL};

static const struct jm_option options[] = {
	JM_HOST_OPTION(struct call, host, "the meter's name or address"),
	{.name = "map",
		JM_BIND(JM_CHOICE, struct call, map),
		.choices = map_names,
		.argument = "NAME",
		.help = "its registers: wt310 (Yokogawa), xerus (inlet of a Raritan or Server "
			"Technology PDU)"},
	{.name = "power",
		JM_BIND(JM_INT, struct call, power),
		.max = 65535,
		.argument = "N",
		.help = "address of the register with the power, counted from 0, in place of a "
			"map"},
	{.name = "type",
		JM_BIND(JM_CHOICE, struct call, type),
		.choices = type_names,
		.fallback = "f32",
		.argument = "TYPE",
		.help = "f32, u16, s16, u32 or s32 in that register"},
	{.name = "table",
		JM_BIND(JM_CHOICE, struct call, table),
		.choices = tables,
		.fallback = "holding",
		.argument = "KIND",
		.help = "holding or input registers"},
	JM_SCALE_OPTION(struct call, scale, "watts per unit of that register"),
	{.name = "low-first",
		JM_BIND(JM_FLAG, struct call, low_first),
		.help = "the low word is in the first of two registers"},
	JM_PORT_OPTION(struct call, port, "502", "TCP"),
	{.name = "unit",
		JM_BIND(JM_INT, struct call, unit),
		.min = 0,
		.max = 255,
		.fallback = "1",
		.argument = "N",
		.help = "Modbus unit id"},
	JM_TIMEOUT_OPTION(struct call, timeout, 60, "1s", ""),
	{.name = "refresh",
		JM_BIND(JM_DURATION, struct call, refresh_ns),
		.unit = "s",
		.min = 0.001,
		.max = 3600,
		.argument = "TIME",
		.help = "time between two new values of the meter, if known"},
	JM_COVERS_OPTION(
		struct call, covers, "what it measures: / (the node), psu/0, outside/door..."),
	{0},
};

const struct jm_source jm_source_modbus = {
	.name = "modbus",
	.summary = "power meters and PDUs over Modbus/TCP (Yokogawa WT310, Xerus, any registers)",
	.options = options,
	.origin = JM_MEASURED,
	.keeps_time = true,
	.on_request = true,
	.open = modbus_open,
	.read = modbus_read,
	.close = modbus_source_close,
};
