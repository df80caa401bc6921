/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Outlets and inlets of PDUs over SNMP, by net-snmp (opened when it is needed). What the vendors'
 * tables are is in `kinds` below, from PowerNet-MIB (APC rPDU2), PDU2-MIB (Raritan, Legrand),
 * Sentry4-MIB (Server Technology) and GEIST-V5-MIB (Vertiv). Several outlets feed one node: they
 * are added to a meter of the node. MIB files and net-snmp's configuration are not read; passwords
 * come from files.
 */
#include "base/ctx.h"
#include "base/clock.h"
#include "meter/source.h"
#include "parse_reading.h"
#include "shared_options.h"
#include "vendor/snmp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OUTLETS 24
#define MAX_OIDS    (2 * MAX_OUTLETS)
#define KWH	    3.6e6 /* J */

/*
 * A kind of outlet: columns whose rows are named by an index. tail: what comes behind the index.
 * scale: SI units of one step; digits: a column that tells how many of the value's digits are
 * decimals (then scale is 1).
 */
struct kind {
	const char *name, *index; /* index: where there is only one */
	enum jm_scope scope;
	const char *power, *power_tail, *energy, *energy_tail, *digits;
	double watts, joules;
};

#define APC	"1.3.6.1.4.1.318.1.1.26"
#define RARITAN "1.3.6.1.4.1.13742.6"
#define SENTRY4 "1.3.6.1.4.1.1718.4.1"
#define GEIST	"1.3.6.1.4.1.21239.5.2.3"

static const struct kind kinds[] = {
	{"apc", "1", JM_SCOPE_NODE, APC ".4.3.1.5", "", APC ".4.3.1.9", "", NULL, 10, 0.1 * KWH},
	{"apc-outlet", NULL, JM_SCOPE_OUTLET, APC ".9.4.3.1.7", "", APC ".9.4.3.1.11", "", NULL, 1,
		0.1 * KWH},
	{"raritan", "1.1", JM_SCOPE_NODE, RARITAN ".5.2.3.1.4", ".5", RARITAN ".5.2.3.1.4", ".8",
		RARITAN ".3.3.4.1.7", 1, 1e-3 * KWH},
	{"raritan-outlet", NULL, JM_SCOPE_OUTLET, RARITAN ".5.4.3.1.4", ".5", RARITAN ".5.4.3.1.4",
		".8", RARITAN ".3.5.4.1.7", 1, 1e-3 * KWH},
	{"sentry4", "1.1", JM_SCOPE_NODE, SENTRY4 ".3.3.1.3", "", NULL, "", NULL, 1, 0},
	{"sentry4-outlet", NULL, JM_SCOPE_OUTLET, SENTRY4 ".8.3.1.9", "", NULL, "", NULL, 1, 0},
	{"geist", "1", JM_SCOPE_NODE, GEIST ".1.1.9", "", GEIST ".1.1.12", "", NULL, 1, 1e-3 * KWH},
	{"geist-outlet", NULL, JM_SCOPE_OUTLET, GEIST ".6.1.12", "", NULL, "", NULL, 1, 0},
};
static const char *const kind_names[] = {"apc", "apc-outlet", "raritan", "raritan-outlet",
	"sentry4", "sentry4-outlet", "geist", "geist-outlet", NULL};

struct outlet {
	char index[32];
	struct jm_snmp_value power, energy; /* length 0 = none */
};

struct state {
	struct jm_ctx *ctx;
	struct jm_snmp snmp;
	struct kind kind;
	int n;
	bool sum; /* a meter of the node behind those of its outlets */
	struct outlet outlet[MAX_OUTLETS];
};

/* The options, while it is opened. */
struct call {
	struct jm_snmp_peer peer;
	const char *kind, *oid, *index; /* NULL = not given */
	const char *covers;
	double scale; /* W of a step of oid */
};

/* ---- opening ---- */

static int open_line(struct state *s, const struct call *c, struct jm_err *err)
{
	if (!c->peer.host)
		return jm_err_set(err, JM_EUSAGE,
			"The source snmp needs a host, as in 'snmp:host=pdu1,kind=apc'.");
	return jm_snmp_open(&s->snmp, &c->peer, err);
}

static int choose_kind(struct state *s, const struct call *c, struct jm_err *err)
{
	for (size_t i = 0; c->kind && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i].name, c->kind))
			s->kind = kinds[i];
	if (c->oid)
		s->kind = (struct kind){.name = "oid",
			.index = "",
			.scope = JM_SCOPE_NODE,
			.power = c->oid,
			.power_tail = "",
			.watts = c->scale};
	return s->kind.name ? 0
			    : jm_err_set(err, JM_EUSAGE,
				      "The source snmp needs kind=NAME (apc, apc-outlet, raritan, "
				      "raritan-outlet, sentry4, sentry4-outlet, geist, "
				      "geist-outlet) or the oid of a power value.");
}

static int name_value(struct jm_snmp_value *value, const char *column, const char *index,
	const char *tail, struct jm_err *err)
{
	char text[256];

	snprintf(text, sizeof(text), "%s%s%s%s", column, *index ? "." : "", index, tail);
	return jm_snmp_parse(text, value)
		       ? 0
		       : jm_err_set(err, JM_EUSAGE,
				 "'%s' is not an object identifier such as 1.3.6.1.4.1.318.", text);
}

static int add_outlet(struct state *s, const char *index, size_t n, struct jm_err *err)
{
	struct outlet *o = &s->outlet[s->n];
	int rc;

	if (s->n == MAX_OUTLETS || n >= sizeof(o->index))
		return jm_err_set(err, JM_EUSAGE,
			"More than %d outlets are named, or a longer name.", MAX_OUTLETS);
	snprintf(o->index, sizeof(o->index), "%.*s", (int)n, index);
	o->power.scale = s->kind.watts;
	o->energy.scale = s->kind.joules;
	rc = name_value(&o->power, s->kind.power, o->index, s->kind.power_tail, err);
	if (!rc && s->kind.energy)
		rc = name_value(&o->energy, s->kind.energy, o->index, s->kind.energy_tail, err);
	s->n++;
	return rc;
}

/* "3+4": the rows of the columns */
static int add_outlets(struct state *s, const struct call *c, struct jm_err *err)
{
	const char *list = c->index;
	int rc = 0;

	if (!list)
		list = s->kind.index;
	if (!list)
		return jm_err_set(err, JM_EUSAGE,
			"The source snmp needs the outlets of this node, as in 'snmp:pdu1,kind=%s,"
			"index=3+4'.",
			s->kind.name);
	do {
		size_t n = strcspn(list, "+");

		rc = add_outlet(s, list, n, err);
		list += n + (list[n] == '+');
	} while (!rc && *list);
	s->sum = s->n > 1;
	return rc;
}

/* How many of the digits are decimals, where the kind has a column of it; a value of which that is
 * unknown is none. False = no answer. */
static bool ask_digits(
	struct state *s, struct outlet *o, struct jm_snmp_value *value, const char *tail)
{
	struct jm_snmp_value digits;
	const struct jm_snmp_value *one = &digits;
	struct jm_err none = JM_ERR_INIT;
	double n;

	if (!s->kind.digits || !value->length ||
		name_value(&digits, s->kind.digits, o->index, tail, &none))
		return true;
	if (!jm_snmp_ask(&s->snmp, &one, 1, &n))
		return false;
	if (n >= 0 && n < 10)
		value->scale *= pow(10, -n);
	else
		value->length = 0;
	return true;
}

static int no_answer(const struct state *s, struct jm_err *err)
{
	return jm_err_set(err, JM_ENOENT,
		"SNMP host %s does not answer; check its address, its port, the community or user, "
		"and whether it accepts connections from this machine.",
		s->snmp.host);
}

static int check_answers(struct state *s, struct jm_err *err)
{
	for (int i = 0; i < s->n; i++) {
		struct outlet *o = &s->outlet[i];
		const struct jm_snmp_value *both[] = {&o->power, &o->energy};
		double answer[2] = {NAN, NAN};

		if (!jm_snmp_ask(&s->snmp, both, o->energy.length ? 2 : 1, answer))
			return no_answer(s, err);
		if (isnan(answer[0]))
			return jm_err_set(err, JM_ENOENT,
				"SNMP host %s reports no power for '%s' of kind %s; check kind and "
				"index.",
				s->snmp.host, o->index, s->kind.name);
		if (isnan(answer[1]))
			o->energy.length = 0;
		if (!ask_digits(s, o, &o->power, s->kind.power_tail) ||
			!ask_digits(s, o, &o->energy, s->kind.energy_tail))
			return no_answer(s, err);
		if (!o->power.length)
			return jm_err_set(err, JM_ENOENT,
				"SNMP host %s does not report how many digits of the power of '%s' "
				"are decimals, so its unit is unknown; name the value by its oid, "
				"with oid=OID,scale=X.",
				s->snmp.host, o->index);
	}
	return 0;
}

static int add_meter(struct state *s, const struct outlet *o, const char *covers,
	struct jm_meters *set, struct jm_err *err)
{
	struct jm_meter meter = {
		.source = "snmp", .origin = JM_MEASURED, .scope = s->kind.scope, .covers = covers};
	struct jm_signal power = {.quantity = JM_Q_POWER,
		.step = o ? o->power.scale : 0,
		.window_ns = -1,
		.accuracy = NAN};
	struct jm_signal energy = {
		.quantity = JM_Q_ENERGY, .step = o ? o->energy.scale : 0, .accuracy = NAN};
	int rc;

	if (!strcmp(covers, "/"))
		meter.scope = JM_SCOPE_NODE;
	snprintf(meter.id, sizeof(meter.id), "snmp:%.70s/%s%s%s", s->snmp.host, s->kind.name,
		o && *o->index ? "/" : "", o ? o->index : "+");
	snprintf(meter.label, sizeof(meter.label), "%.32s %s%s%.12s", s->snmp.host, s->kind.name,
		o && *o->index ? " " : "", o ? o->index : "sum");
	rc = jm_meters_add(set, &meter, err);
	if (rc >= 0)
		rc = jm_meters_add_signal(set, &power, err);
	if (rc >= 0 && o && o->energy.length)
		rc = jm_meters_add_signal(set, &energy, err);
	return rc < 0 ? rc : 0;
}

static int add_meters(
	struct state *s, const struct call *c, struct jm_meters *set, struct jm_err *err)
{
	const char *covers = c->covers;
	int rc = 0;

	for (int i = 0; !rc && i < s->n; i++) {
		char part[64];

		snprintf(part, sizeof(part), "psu/%s", s->outlet[i].index);
		rc = add_meter(s, &s->outlet[i], s->sum ? part : covers, set, err);
	}
	return rc || !s->sum ? rc : add_meter(s, NULL, covers, set, err);
}

static void snmp_source_close(void *state)
{
	struct state *s = state;

	if (!s)
		return;
	jm_snmp_close(&s->snmp);
	free(s);
}

static int snmp_open_source(struct jm_ctx *ctx, const struct jm_values *options,
	struct jm_meters *set, void **ret_state, struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	struct call c;
	int rc;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for SNMP.");
	s->ctx = ctx;
	JM_FILL(options, &c);
	rc = choose_kind(s, &c, err);
	if (!rc)
		rc = add_outlets(s, &c, err);
	if (!rc)
		rc = open_line(s, &c, err);
	if (!rc)
		rc = check_answers(s, err);
	if (!rc)
		rc = add_meters(s, &c, set, err);
	if (rc)
		snmp_source_close(s);
	else
		*ret_state = s;
	return rc;
}

/* All of it in one question, so that the parts of a sum are of one moment. */
static int snmp_read_source(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct state *s = state;
	const struct jm_snmp_value *value[MAX_OIDS] = {NULL};
	double answer[MAX_OIDS], sum = 0;
	int64_t now;
	int n = 0, signal = 0;

	(void)err;
	for (int i = 0; i < s->n; i++) {
		value[n++] = &s->outlet[i].power;
		if (s->outlet[i].energy.length)
			value[n++] = &s->outlet[i].energy;
	}
	if (!jm_snmp_ask(&s->snmp, value, n, answer))
		for (int i = 0; i < n; i++)
			answer[i] = NAN;
	now = jm_ctx_now(s->ctx);
	for (int i = 0, k = 0; i < s->n; i++) {
		double watts = answer[k++] * s->outlet[i].power.scale;

		watts = watts < JM_MAX_WATTS ? watts : NAN;
		sum += watts;
		jm_give(sink, signal++, watts, now);
		if (s->outlet[i].energy.length)
			jm_give(sink, signal++, answer[k++] * s->outlet[i].energy.scale, now);
	}
	if (s->sum)
		jm_give(sink, signal, sum, now);
	return 0;
}

static const struct jm_option options[] = {
	JM_HOST_OPTION(struct call, peer.host, "the PDU's name or address"),
	{.name = "kind",
		JM_BIND(JM_CHOICE, struct call, kind),
		.choices = kind_names,
		.argument = "KIND",
		.help = "apc, raritan, sentry4, geist: the whole PDU; with -outlet: its outlets"},
	{.name = "index",
		JM_BIND(JM_TEXT, struct call, index),
		.argument = "N+N",
		.help = "rows of the vendor's table: the outlets that feed this node, as in 3+4 or "
			"1.1.3"},
	{.name = "oid",
		JM_BIND(JM_TEXT, struct call, oid),
		.argument = "OID",
		.help = "object identifier of a power value, in place of a kind"},
	JM_SCALE_OPTION(struct call, scale, "watts per unit of that power"),
	{.name = "community-file",
		JM_BIND(JM_TEXT, struct call, peer.community_file),
		.argument = "FILE",
		.help = "file with the community of SNMPv2c; without it 'public'"},
	{.name = "user",
		JM_BIND(JM_TEXT, struct call, peer.user),
		.argument = "NAME",
		.help = "user of SNMPv3"},
	{.name = "auth-file",
		JM_BIND(JM_TEXT, struct call, peer.auth_file),
		.argument = "FILE",
		.help = "file with the user's password (SHA-1)"},
	{.name = "priv-file",
		JM_BIND(JM_TEXT, struct call, peer.priv_file),
		.argument = "FILE",
		.help = "file with the password of the encryption (AES)"},
	JM_PORT_OPTION(struct call, peer.port, "161", "UDP"),
	JM_TIMEOUT_OPTION(struct call, peer.timeout, 60, "1s",
		"; after half of it the question is sent again"),
	JM_COVERS_OPTION(
		struct call, covers, "what the outlets feed: / (the node), psu/0, outside/door..."),
	{0},
};

const struct jm_source jm_source_snmp = {
	.name = "snmp",
	.summary = "PDUs over SNMP: APC, Raritan, Server Technology, Geist, any object",
	.options = options,
	.origin = JM_MEASURED,
	.keeps_time = true,
	.on_request = true,
	.open = snmp_open_source,
	.read = snmp_read_source,
	.close = snmp_source_close,
};
