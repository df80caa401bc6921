/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's power as its management controller reports it over Redfish (DMTF DSP0268):
 * EnvironmentMetrics (PowerWatts, EnergykWh), else PowerControl of Power, else the sum of what the
 * supplies of PowerSubsystem take in (InputPowerWatts of their metrics), of the chassis named or of
 * the first that has one. By libcurl, opened when it is needed. The controller's certificate is
 * always verified; the password comes from a file.
 */
#include "base/ctx.h"
#include "base/clock.h"
#include "base/text/json.h"
#include "meter/source.h"
#include "parse_reading.h"
#include "shared_options.h"
#include "vendor/redfish.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PATH     256
#define MAX_SUPPLIES 16
#define LISTED_NS    (5 * JM_SECOND) /* supplies may be plugged in and pulled out during a run */
#define KWH	     3.6e6	     /* J */
#define DIGITS	     6		     /* decimals of kWh that are looked at */

/* Where the numbers of a resource are. */
struct form {
	const char *link; /* the member of a chassis that leads to the resource */
	const char *power[3],
		*energy[3]; /* keys from the top; a number ends them or an array's first object */
};

static const struct form forms[] = {
	{"EnvironmentMetrics", {"PowerWatts", "Reading"}, {"EnergykWh", "Reading"}},
	{"Power", {"PowerControl", "PowerConsumedWatts"}, {NULL}},
};

struct state {
	struct jm_ctx *ctx;
	struct jm_https https;
	char path[MAX_PATH];
	const struct form *form;
	bool has_energy;
	double step; /* J, of the counter */
	bool sums;   /* the power is the sum of what supplies take in; then form is not used */
	char supply[MAX_SUPPLIES][MAX_PATH]; /* paths of their metrics */
	int n_supplies;
	int64_t listed_ns; /* when they were; 0 = their sum was unknown since */
	char no_sum
		[320]; /* a sentence with a space before it: why supplies were found, and no sum of them */
};

/* The number behind these keys; NAN = there is none, or one below 0. */
static double number_at(const json_t *j, const char *const *key)
{
	double value;

	for (int i = 0; i < 3 && key[i]; i++) {
		if (json_is_array(j))
			j = json_array_get(j, 0);
		j = json_object_get(j, key[i]);
	}
	if (!key[0] || !json_is_number(j))
		return NAN;
	value = json_number_value(j);
	return value >= 0 ? value : NAN;
}

/* A node that answers draws power. */
static double plausible(double watts)
{
	return watts > 0 && watts <= JM_MAX_WATTS ? watts : NAN;
}

static double watts_of(const struct state *s, const json_t *resource)
{
	return plausible(number_at(resource, s->form->power));
}

/*
 * J, one of the last decimal of a value: controllers do not report how finely they count, and many
 * give whole or thousandths of kWh. A value that ends in zeros looks coarser than it is, so that
 * power is used for longer than necessary.
 */
static double step_of(double kwh)
{
	double scale = 1;

	for (int i = 0; i < DIGITS && fabs(kwh * scale - round(kwh * scale)) > 1e-4; i++)
		scale *= 10;
	return KWH / scale;
}

/* ---- finding the resource ---- */

/* Does this path give a power in one of the forms? */
static bool try_resource(struct state *s, const char *path, const struct form *form)
{
	struct jm_err none = JM_ERR_INIT;
	json_t *resource = jm_https_get_json(&s->https, path, &none);
	double kwh = resource ? number_at(resource, form->energy) : NAN;

	s->form = form;
	s->has_energy = !isnan(kwh);
	s->step = step_of(kwh);
	if (!resource || isnan(watts_of(s, resource))) {
		json_decref(resource);
		return false;
	}
	json_decref(resource);
	if (strlen(path) >= sizeof(s->path))
		return false;
	memcpy(s->path, path, strlen(path) + 1);
	return true;
}

/* What a supply takes in; one that only stands by may report 0. */
static double supply_watts(struct state *s, int i)
{
	static const char *const key[3] = {"InputPowerWatts", "Reading"};
	struct jm_err none = JM_ERR_INIT;
	json_t *metrics = jm_https_get_json(&s->https, s->supply[i], &none);
	double watts = metrics ? number_at(metrics, key) : NAN;

	json_decref(metrics);
	return watts;
}

static double supplies_watts(struct state *s)
{
	double sum = 0;

	for (int i = 0; i < s->n_supplies; i++)
		sum += supply_watts(s, i);
	return plausible(sum);
}

/* What it takes in; NAN = unknown. */
static double add_supply(struct state *s, const char *metrics)
{
	if (strlen(metrics) >= MAX_PATH)
		return NAN;
	snprintf(s->supply[s->n_supplies], MAX_PATH, "%s", metrics);
	return supply_watts(s, s->n_supplies++);
}

/* A place without a supply says so, or has neither a state nor metrics. */
static bool is_place(const json_t *supply)
{
	const char *state =
		json_string_value(json_object_get(json_object_get(supply, "Status"), "State"));

	return state ? !strcmp(state, "Absent") : !jm_redfish_link(supply, "Metrics");
}

/* What the supply takes in; 0 = there is none, NAN = unknown: a sum without it would be too
 * small. */
static double try_supply(struct state *s, const char *path)
{
	struct jm_err none = JM_ERR_INIT;
	json_t *supply = path ? jm_https_get_json(&s->https, path, &none) : NULL;
	const char *metrics = jm_redfish_link(supply, "Metrics");
	bool place = supply && is_place(supply), full = s->n_supplies == MAX_SUPPLIES;
	double watts = place ? 0 : metrics && !full ? add_supply(s, metrics) : NAN;

	if (isnan(watts) && full)
		snprintf(s->no_sum, sizeof(s->no_sum),
			" There are more than %d power supplies; a sum of so many is not "
			"supported.",
			MAX_SUPPLIES);
	else if (isnan(watts))
		snprintf(s->no_sum, sizeof(s->no_sum),
			" The power supply %.200s reports no InputPowerWatts, so the sum of the "
			"supplies is unknown.",
			path ? path : "without a path");
	json_decref(supply);
	return watts;
}

/* Lists the supplies, and what they take in; NAN = unknown. */
static double list_supplies(struct state *s, const char *path)
{
	struct jm_err none = JM_ERR_INIT;
	json_t *subsystem = jm_https_get_json(&s->https, path, &none), *list = NULL;
	const char *link = subsystem ? jm_redfish_link(subsystem, "PowerSupplies") : NULL;
	const json_t *member;
	double sum = 0;
	size_t i;

	s->n_supplies = 0;
	s->listed_ns = jm_ctx_now(s->ctx);
	list = link ? jm_https_get_json(&s->https, link, &none) : NULL;
	json_array_foreach(json_object_get(list, "Members"), i, member)
	{
		sum += try_supply(s, json_string_value(json_object_get(member, "@odata.id")));
	}
	json_decref(list);
	json_decref(subsystem);
	return plausible(sum);
}

static bool try_supplies(struct state *s, const char *path)
{
	s->sums = strlen(path) < sizeof(s->path) && !isnan(list_supplies(s, path));
	if (!s->sums)
		return false;
	memcpy(s->path, path, strlen(path) + 1);
	s->has_energy = false;
	return true;
}

static bool try_chassis(void *arg, const char *path, const char *id)
{
	struct state *s = arg;
	struct jm_err none = JM_ERR_INIT;
	json_t *chassis = jm_https_get_json(&s->https, path, &none);
	bool found = false;

	(void)id;
	for (size_t i = 0; chassis && !found && i < sizeof(forms) / sizeof(forms[0]); i++) {
		const char *link = jm_redfish_link(chassis, forms[i].link);

		found = link && try_resource(s, link, &forms[i]);
	}
	if (chassis && !found && jm_redfish_link(chassis, "PowerSubsystem"))
		found = try_supplies(s, jm_redfish_link(chassis, "PowerSubsystem"));
	json_decref(chassis);
	return found;
}

static int too_late(const struct state *s, struct jm_err *err)
{
	return jm_err_set(err, JM_ENOENT,
		"The management controller %s did not send a whole answer within %g s; a slow "
		"controller needs a longer timeout=TIME.",
		s->https.host, (double)s->https.timeout_ns / JM_SECOND);
}

static int find_chassis(struct state *s, const char *wanted, struct jm_err *err)
{
	int rc = jm_redfish_each_chassis(&s->https, wanted, try_chassis, s, err);

	if (rc || *s->path)
		return rc;
	if (s->https.late)
		return too_late(s, err);
	return jm_err_set(err, JM_ENOENT,
		"The management controller %s reports no power for %s%s; name a chassis with "
		"chassis=ID or the resource with path=PATH.%s",
		s->https.host, wanted ? "chassis " : "any chassis", wanted ? wanted : "",
		s->no_sum);
}

static int use_path(struct state *s, const char *path, struct jm_err *err)
{
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
		if (try_resource(s, path, &forms[i]))
			return 0;
	if (try_supplies(s, path))
		return 0;
	if (s->https.late)
		return too_late(s, err);
	return jm_err_set(err, JM_ENOENT,
		"%s of the management controller %s has neither PowerWatts nor PowerControl, and "
		"no power supplies that report their InputPowerWatts.%s",
		path, s->https.host, s->no_sum);
}

/* ---- the source ---- */

static void redfish_close(void *state)
{
	struct state *s = state;

	if (!s)
		return;
	jm_https_close(&s->https);
	free(s);
}

/* The options, while it is opened. */
struct call {
	struct jm_https_peer peer;
	const char *chassis, *path; /* NULL = not given */
	const char *covers;
};

static int open_https(struct state *s, const struct call *c, struct jm_err *err)
{
	if (!c->peer.host)
		return jm_err_set(err, JM_EUSAGE,
			"The source redfish needs the management controller's name, as in "
			"'redfish:bmc1,user=reader,password-file=FILE'.");
	return jm_https_open(&s->https, &c->peer, err);
}

static int add_meter(
	struct state *s, const struct call *c, struct jm_meters *set, struct jm_err *err)
{
	struct jm_meter meter = {.source = "redfish", .origin = JM_MEASURED, .covers = c->covers};
	struct jm_signal power = {.quantity = JM_Q_POWER, .window_ns = -1, .accuracy = NAN};
	struct jm_signal energy = {.quantity = JM_Q_ENERGY, .step = s->step, .accuracy = NAN};
	int rc;

	meter.scope = strcmp(meter.covers, "/") ? JM_SCOPE_PLATFORM
		      : s->sums			? JM_SCOPE_PSU
						: JM_SCOPE_NODE;
	snprintf(meter.id, sizeof(meter.id), "redfish:%.40s%.60s", s->https.host, s->path);
	snprintf(meter.label, sizeof(meter.label), "%.50s (Redfish)", s->https.host);
	rc = jm_meters_add(set, &meter, err);
	if (rc >= 0)
		rc = jm_meters_add_signal(set, &power, err);
	if (rc >= 0 && s->has_energy)
		rc = jm_meters_add_signal(set, &energy, err);
	return rc < 0 ? rc : 0;
}

static int redfish_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	struct call c;
	int rc;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for Redfish.");
	s->ctx = ctx;
	JM_FILL(options, &c);
	rc = open_https(s, &c, err);
	if (!rc)
		rc = c.path ? use_path(s, c.path, err) : find_chassis(s, c.chassis, err);
	if (!rc)
		rc = add_meter(s, &c, set, err);
	if (rc)
		redfish_close(s);
	else
		*ret_state = s;
	return rc;
}

/* Of the supplies that are there now. */
static double ask_supplies(struct state *s)
{
	bool again = !s->listed_ns || jm_ctx_now(s->ctx) - s->listed_ns >= LISTED_NS;
	double watts = again ? list_supplies(s, s->path) : supplies_watts(s);

	if (isnan(watts))
		s->listed_ns = 0;
	return watts;
}

/* Power, and energy in joules where there is a counter. */
static void ask(struct state *s, double *ret_watts, double *ret_joules)
{
	struct jm_err none = JM_ERR_INIT;
	json_t *resource = s->sums ? NULL : jm_https_get_json(&s->https, s->path, &none);

	*ret_joules = NAN;
	*ret_watts = s->sums ? ask_supplies(s) : resource ? watts_of(s, resource) : NAN;
	if (resource && s->has_energy)
		*ret_joules = number_at(resource, s->form->energy) * KWH;
	json_decref(resource);
}

static int redfish_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct state *s = state;
	int64_t asked = jm_ctx_now(s->ctx), now;
	double watts, joules;

	(void)err;
	jm_https_limit(&s->https);
	ask(s, &watts, &joules);
	/* The controller read its sensor at some time between question and answer. */
	now = asked + (jm_ctx_now(s->ctx) - asked) / 2;
	jm_give(sink, 0, watts, now);
	if (s->has_energy)
		jm_give(sink, 1, joules, now);
	return 0;
}

static const struct jm_option options[] = {
	JM_HOST_OPTION(struct call, peer.host, "the management controller's name or address"),
	{.name = "user",
		JM_BIND(JM_TEXT, struct call, peer.user),
		.argument = "NAME",
		.help = "name of the user who reads the power"},
	{.name = "password-file",
		JM_BIND(JM_TEXT, struct call, peer.password_file),
		.argument = "FILE",
		.help = "file with that user's password"},
	{.name = "ca-file",
		JM_BIND(JM_TEXT, struct call, peer.ca_file),
		.argument = "FILE",
		.help = "the controller's certificate or that of its authority, where the system "
			"does "
			"not know it"},
	{.name = "chassis",
		JM_BIND(JM_TEXT, struct call, chassis),
		.argument = "ID",
		.help = "id of the chassis; without it the first one that reports its power"},
	{.name = "path",
		JM_BIND(JM_TEXT, struct call, path),
		.argument = "PATH",
		.help = "path of the resource: EnvironmentMetrics, Power or PowerSubsystem"},
	JM_PORT_OPTION(struct call, peer.port, "443", "TCP"),
	JM_TIMEOUT_OPTION(struct call, peer.timeout, 120, "10s", ""),
	JM_COVERS_OPTION(struct call, covers,
		"what the power of the chassis includes: / (the node), gpu/UUID..."),
	{0},
};

const struct jm_source jm_source_redfish = {
	.name = "redfish",
	.summary = "the node's power from its management controller, over Redfish",
	.options = options,
	.origin = JM_MEASURED,
	.keeps_time = true,
	.on_request = true,
	.open = redfish_open,
	.read = redfish_read,
	.close = redfish_close,
};
