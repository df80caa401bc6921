/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power limit of the node in its management controller over Redfish (DMTF DSP0268):
 * PowerLimitWatts of EnvironmentMetrics, else PowerLimit of the PowerControl of Power, of the
 * chassis named or of the only one that has it. The controller keeps it through a reboot of the
 * node. A change is a PATCH with the ETag of what was read before (If-Match), so that it is refused
 * where another program changed the resource in between; it is then read and sent once more. Some
 * controllers (OpenBMC's) have another ETag after each reading of their sensors: where the limit
 * itself is still the same, the second try is for whichever ETag there is. "unlocked" is
 * ControlMode Disabled, or a LimitInWatts of null.
 *
 * The argument is a file, by its absolute path because the restore opens it from elsewhere, with a
 * line NAME=VALUE for each option below; lines that begin with # are comments.
 */
#include "guard/control.h"
#include "base/ctx.h"
#include "base/option.h"
#include "base/text/json.h"
#include "vendor/redfish.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PATH  256
#define LINE	  512
#define MOST	  1e6  /* W */
#define LONGEST	  10.0 /* s to wait for a limit; the warm-up is for longer ones */
#define DISABLED  "Disabled"
#define AUTOMATIC "Automatic"

struct state {
	struct jm_https https;
	char path[MAX_PATH];
	bool modern; /* EnvironmentMetrics; else Power */
	bool takes_power_off;
	double at_open; /* W, the limit when the control was opened; NAN = none */
	bool unsure;	/* it is unknown whether the last change was made, or will be */
	struct jm_knob knob;
};

struct limit {
	struct jm_knob_value now;
	double min, max, fallback, correction_ms;
	bool modes;	      /* can be switched off and on by its ControlMode */
	bool power_off;	      /* above the limit the controller powers the node off */
	size_t place, places; /* of PowerControl */
	char etag[JM_ETAG];
};

static bool is_word(const json_t *object, const char *key, const char *word)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text && !strcmp(text, word);
}

static struct jm_knob_value watts_or_none(const json_t *value, bool off)
{
	if (off)
		return jm_knob_value_word(JM_UNLOCKED);
	return jm_knob_value_of(jm_json_real(value));
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool parse_modern(const json_t *resource, struct limit *l)
{
	const json_t *limit = json_object_get(resource, "PowerLimitWatts");
	bool off = is_word(limit, "ControlMode", DISABLED);

	if (!json_is_object(limit))
		return false;
	l->modes = off || is_word(limit, "ControlMode", AUTOMATIC); /* no other one is written */
	l->now = watts_or_none(json_object_get(limit, "SetPoint"), off);
	l->min = jm_json_real_of(limit, "AllowableMin");
	l->max = jm_json_real_of(limit, "AllowableMax");
	l->fallback = jm_json_real_of(limit, "DefaultSetPoint");
	return l->modes || jm_knob_value_known(&l->now);
}

static bool parse_old(const json_t *resource, struct limit *l)
{
	const json_t *all = json_object_get(resource, "PowerControl"), *one, *limit = NULL;

	json_array_foreach(all, l->place, one)
	{
		limit = json_object_get(one, "PowerLimit");
		if (json_object_get(limit, "LimitInWatts"))
			break;
	}
	l->places = json_array_size(all);
	if (l->place == l->places)
		return false;
	l->now = watts_or_none(json_object_get(limit, "LimitInWatts"),
		json_is_null(json_object_get(limit, "LimitInWatts")));
	l->max = jm_json_real_of(json_array_get(all, l->place), "PowerCapacityWatts");
	l->correction_ms = jm_json_real_of(limit, "CorrectionInMs");
	l->power_off = is_word(limit, "LimitException", "HardPowerOff");
	return true;
}

/* False: the resource has no limit. */
static bool parse_limit(const json_t *resource, bool modern, struct limit *l)
{
	*l = (struct limit){.min = NAN, .max = NAN, .fallback = NAN, .correction_ms = NAN};
	if (!(modern ? parse_modern(resource, l) : parse_old(resource, l)))
		return false;
	if (!(l->min >= 1))
		l->min = 1;
	if (!(l->max > l->min && l->max <= MOST))
		l->max = MOST;
	return true;
}

static int read_limit(struct state *s, struct limit *l, struct jm_err *err)
{
	json_t *resource = jm_https_get_json(&s->https, s->path, err);
	const char *tag;
	bool has;

	if (!resource)
		return JM_EIO;
	has = parse_limit(resource, s->modern, l);
	tag = json_string_value(json_object_get(resource, "@odata.etag"));
	snprintf(l->etag, sizeof(l->etag), "%s",
		*s->https.etag		       ? s->https.etag
		: tag && strlen(tag) < JM_ETAG ? tag
					       : "");
	json_decref(resource);
	return has ? 0
		   : jm_err_set(err, JM_EIO,
			     "%s of the management controller %s has no power limit any more.",
			     s->path, s->https.host);
}

/* ---- finding the resource -------------------------------------------------------------------- */

static bool try_path(struct state *s, const char *path, bool modern)
{
	struct jm_err none = JM_ERR_INIT;
	struct limit limit;

	if (!path || strlen(path) >= sizeof(s->path))
		return false;
	memcpy(s->path, path, strlen(path) + 1);
	s->modern = modern;
	return !read_limit(s, &limit, &none);
}

static bool try_chassis(struct state *s, const char *path)
{
	struct jm_err none = JM_ERR_INIT;
	json_t *chassis = jm_https_get_json(&s->https, path, &none);
	bool found = try_path(s, jm_redfish_link(chassis, "EnvironmentMetrics"), true) ||
		     try_path(s, jm_redfish_link(chassis, "Power"), false);

	json_decref(chassis);
	return found;
}

static int no_limit(const struct state *s, const char *where, struct jm_err *err)
{
	return jm_err_set(err, JM_ENOSUP,
		"The management controller %s has no power limit in %s: neither PowerLimitWatts of "
		"EnvironmentMetrics nor PowerLimit of Power.",
		s->https.host, where);
}

/* The limits of the chassis that were looked at. */
struct search {
	struct state *s;
	const char *wanted;		   /* NULL = any */
	char path[MAX_PATH];		   /* of the first limit; "" = none yet */
	char id[64], second[64], late[64]; /* of chassis */
	bool modern;
};

static bool look_at(void *arg, const char *path, const char *id)
{
	struct search *w = arg;
	struct state *s = w->s;
	bool found;

	jm_https_limit(&s->https);
	found = try_chassis(s, path);
	if (s->https.late)
		snprintf(w->late, sizeof(w->late), "%.60s", id);
	if (s->https.late || !found)
		return s->https.late;
	if (*w->path) {
		snprintf(w->second, sizeof(w->second), "%.60s", id);
		return true;
	}
	memcpy(w->path, s->path, sizeof(w->path));
	w->modern = s->modern;
	snprintf(w->id, sizeof(w->id), "%.60s", id);
	return w->wanted;
}

/* Several chassis with a limit, of which one may be the node and another one a GPU, are refused, as
 * is one that does not answer. */
static int find_chassis(struct state *s, const char *wanted, struct jm_err *err)
{
	struct search w = {.s = s, .wanted = wanted};
	int rc;

	jm_https_limit(&s->https);
	rc = jm_redfish_each_chassis(&s->https, wanted, look_at, &w, err);
	if (rc)
		return rc;
	if (*w.late)
		return jm_err_set(err, JM_EIO,
			"The management controller %s does not answer for the chassis %s within %g "
			"s, so it is unknown whether this chassis has a limit, too; allow more "
			"time "
			"with a line timeout=TIME, or name the node's chassis by a line "
			"chassis=ID.",
			s->https.host, w.late, (double)s->https.timeout_ns * 1e-9);
	if (*w.second)
		return jm_err_set(err, JM_EUSAGE,
			"The management controller %s has a power limit in the chassis %s and in "
			"%s; name the node's by a line chassis=ID.",
			s->https.host, w.id, w.second);
	if (!*w.path)
		return no_limit(s, wanted ? wanted : "any chassis", err);
	memcpy(s->path, w.path, sizeof(s->path));
	s->modern = w.modern;
	return 0;
}

static int find_limit(struct state *s, const char *chassis, const char *path, struct jm_err *err)
{
	if (!path)
		return find_chassis(s, chassis, err);
	jm_https_limit(&s->https);
	return try_path(s, path, true) || try_path(s, path, false) ? 0 : no_limit(s, path, err);
}

/* ---- opening --------------------------------------------------------------------------------- */

struct call {
	struct jm_https_peer peer;
	const char *chassis, *path; /* NULL = not given */
	bool takes_power_off;
};

static const struct jm_option options[] = {
	{.name = "host", JM_BIND(JM_TEXT, struct call, peer.host)},
	{.name = "user", JM_BIND(JM_TEXT, struct call, peer.user)},
	{.name = "password-file", JM_BIND(JM_TEXT, struct call, peer.password_file)},
	{.name = "ca-file", JM_BIND(JM_TEXT, struct call, peer.ca_file)},
	{.name = "chassis", JM_BIND(JM_TEXT, struct call, chassis)},
	{.name = "path", JM_BIND(JM_TEXT, struct call, path)},
	{.name = "port",
		JM_BIND(JM_INT, struct call, peer.port),
		.min = 1,
		.max = 65535,
		.fallback = "443"},
	{.name = "timeout",
		JM_BIND(JM_DURATION, struct call, peer.timeout),
		.unit = "s",
		.min = 0.01,
		.max = 8, /* of one call, which may be four questions; below JM_DRIVER_LIMIT_NS */
		.fallback = "8s"},
	{.name = "accept-power-off", JM_BIND(JM_FLAG, struct call, takes_power_off)},
	{0},
};

/* A line without '=' is not quoted, as it may be a password. */
static int take_line(
	struct jm_values *v, const char *file, int number, char *line, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	char *equals = strchr(line, '=');

	if (strlen(line) == LINE - 1 && line[LINE - 2] != '\n')
		return jm_err_set(err, JM_EUSAGE, "%s: line %d has more than %d bytes.", file,
			number, LINE - 2);
	line[strcspn(line, "\n")] = '\0';
	if (!*line || *line == '#')
		return 0;
	if (!equals)
		return jm_err_set(
			err, JM_EUSAGE, "%s: line %d is not of the form NAME=VALUE.", file, number);
	*equals = '\0';
	if (!jm_option_find(options, line))
		return jm_err_set(err, JM_EUSAGE,
			"%s: '%.60s' is no option of Redfish; it takes lines such as "
			"host=bmc1, user=NAME, password-file=FILE, ca-file=FILE, chassis=ID.",
			file, line);
	if (jm_values_set(v, line, equals + 1, &why))
		return jm_err_set(err, JM_EUSAGE, "%s: %s", file, why.text);
	return 0;
}

static int read_file(const char *file, struct jm_values *v, struct jm_err *err)
{
	char line[LINE];
	int rc = 0, n = 0;
	FILE *f;

	if (*file != '/')
		return jm_err_set(err, JM_EUSAGE,
			"The control redfish takes a file by its absolute path, as in "
			"redfish:/etc/joulemark/redfish.conf, not '%s'.",
			file);
	f = fopen(file, "re");
	if (!f)
		return jm_err_set(err, JM_ENOENT, "Cannot open %s: %s.", file, strerror(errno));
	while (!rc && fgets(line, sizeof(line), f))
		rc = take_line(v, file, ++n, line, err);
	if (!rc && ferror(f))
		rc = jm_err_set(err, JM_EIO, "Cannot read %s: %s.", file, strerror(errno));
	fclose(f);
	return rc;
}

/* NULL: it is not given. */
static int check_path(const char *file, const char *name, const char *path, struct jm_err *err)
{
	if (!path || *path == '/')
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"%s: %s takes an absolute path, because the restore starts in another folder, not "
		"'%s'.",
		file, name, path);
}

static int connect_and_find(
	struct state *s, const char *file, const struct jm_values *v, struct jm_err *err)
{
	struct call c;
	int rc;

	JM_FILL(v, &c);
	s->takes_power_off = c.takes_power_off;
	if (!c.peer.host)
		return jm_err_set(err, JM_EUSAGE,
			"%s does not name the management controller; add a line host=NAME.", file);
	rc = check_path(file, "password-file", c.peer.password_file, err);
	if (!rc)
		rc = check_path(file, "ca-file", c.peer.ca_file, err);
	if (!rc)
		rc = jm_https_open(&s->https, &c.peer, err);
	return rc ? rc : find_limit(s, c.chassis, c.path, err);
}

static int add_limit(struct state *s, struct jm_knobs *set, struct jm_err *err)
{
	struct limit l;
	int rc;

	jm_https_limit(&s->https);
	rc = read_limit(s, &l, err);
	if (rc)
		return rc;
	s->at_open = jm_knob_value_number(&l.now);
	s->knob = (struct jm_knob){.name = "node.power",
		.unit = "W",
		.min = l.min,
		.max = l.max,
		.fallback = jm_knob_value_of(l.fallback),
		.ends = JM_ENDS_NEVER,
		.unlockable = !s->modern || l.modes};
	if (l.correction_ms > 0)
		s->knob.settle_s = fmin(l.correction_ms * 1e-3, LONGEST);
	snprintf(s->knob.device, sizeof(s->knob.device), "%.40s%.80s", s->https.host, s->path);
	snprintf(s->knob.label, sizeof(s->knob.label), "%.50s (Redfish)", s->https.host);
	rc = jm_knobs_add(set, &s->knob, err);
	return rc < 0 ? rc : 0;
}

static void redfish_close(void *state)
{
	struct state *s = state;

	if (s)
		jm_https_close(&s->https);
	free(s);
}

static int redfish_open(struct jm_ctx *ctx, const char *arg, struct jm_knobs *set, void **ret_state,
	struct jm_err *err)
{
	struct jm_values values = {0};
	struct state *s;
	int rc;

	(void)ctx;
	if (!*arg)
		return jm_err_set(err, JM_ENOENT,
			"Redfish needs a file that says where the management controller is: "
			"--control redfish:/etc/joulemark/redfish.conf.");
	s = calloc(1, sizeof(*s));
	rc = s ? jm_values_init(&values, options, err)
	       : jm_err_set(err, JM_ENOMEM, "Out of memory for Redfish.");
	if (!rc)
		rc = read_file(arg, &values, err);
	if (!rc)
		rc = connect_and_find(s, arg, &values, err);
	if (!rc)
		rc = add_limit(s, set, err);
	jm_values_done(&values);
	if (rc)
		redfish_close(s);
	else
		*ret_state = s;
	return rc;
}

/* Unknown while a change may still be made, so that a restore writes its value. */
static int redfish_get(void *state, int i, struct jm_knob_value *ret_accepted,
	struct jm_knob_value *ret_enforced, struct jm_err *err)
{
	struct state *s = state;
	struct limit l;
	int rc;

	(void)i;
	jm_https_limit(&s->https);
	rc = read_limit(s, &l, err);
	if (!rc)
		*ret_accepted = *ret_enforced = s->unsure ? jm_knob_value_of(NAN) : l.now;
	return rc;
}

/* ---- setting --------------------------------------------------------------------------------- */

static json_t *json_watts(const struct jm_knob_value *value)
{
	double watts = jm_knob_value_number(value);

	if (jm_knob_value_is(value, JM_UNLOCKED))
		return json_null();
	return watts == round(watts) ? json_integer((json_int_t)watts) : json_real(watts);
}

/* The members to change; NULL = memory ran out. */
static json_t *change(
	const struct state *s, const struct limit *l, const struct jm_knob_value *value)
{
	bool off = jm_knob_value_is(value, JM_UNLOCKED);
	json_t *places;

	if (s->modern && off)
		return json_pack("{s:{s:s}}", "PowerLimitWatts", "ControlMode", DISABLED);
	if (s->modern && (jm_knob_value_is(&l->now, JM_UNLOCKED) || (l->modes && s->unsure)))
		return json_pack("{s:{s:o,s:s}}", "PowerLimitWatts", "SetPoint", json_watts(value),
			"ControlMode", AUTOMATIC);
	if (s->modern)
		return json_pack("{s:{s:o}}", "PowerLimitWatts", "SetPoint", json_watts(value));
	places = json_array();
	/* {} leaves an element as it is; one that is not sent would be removed */
	for (size_t i = 0; places && i < l->places; i++)
		json_array_append_new(places, i != l->place
						      ? json_object()
						      : json_pack("{s:{s:o}}", "PowerLimit",
								"LimitInWatts", json_watts(value)));
	return json_pack("{s:o}", "PowerControl", places);
}

/* A limit that is not below the present one, or the one before, makes a power-off no likelier; so a
 * restore is not refused, either. */
static bool may_power_off(
	const struct state *s, const struct limit *l, const struct jm_knob_value *value)
{
	return l->power_off && !s->takes_power_off && !*value->word &&
	       !(jm_knob_value_number(value) >= fmin(jm_knob_value_number(&l->now), s->at_open));
}

/* What is to be sent now. */
static int plan(struct state *s, const struct jm_knob_value *value, struct limit *l, json_t **ret,
	struct jm_err *err)
{
	int rc = jm_knob_check_kind(&s->knob, value, err);

	if (!rc)
		rc = read_limit(s, l, err);
	if (!rc && may_power_off(s, l, value))
		rc = jm_err_set(err, JM_EIO,
			"The management controller %s says that it powers the node off above its "
			"limit (LimitException HardPowerOff), so nothing was set. Change that "
			"there, or accept it by the line accept-power-off=yes of the control's "
			"file.",
			s->https.host);
	if (rc)
		return rc;
	*ret = change(s, l, value);
	return *ret ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for Redfish.");
}

/* seen: the limit that the last try read, unknown before the first. */
static int send_once(struct state *s, const struct jm_knob_value *value, struct jm_knob_value *seen,
	struct jm_err *err)
{
	json_t *members = NULL;
	struct limit l;
	int rc = plan(s, value, &l, &members, err);

	if (rc)
		return rc;
	rc = jm_https_patch(
		&s->https, s->path, members, jm_knob_value_same(seen, &l.now) ? "*" : l.etag, err);
	if (!rc || rc == JM_ENOENT)
		s->unsure = rc;
	*seen = l.now;
	json_decref(members);
	return rc;
}

static int redfish_set(void *state, int i, const struct jm_knob_value *value, struct jm_err *err)
{
	struct jm_knob_value seen = jm_knob_value_of(NAN);
	struct jm_err why = JM_ERR_INIT;
	struct state *s = state;
	int rc;

	(void)i;
	jm_https_limit(&s->https);
	rc = send_once(s, value, &seen, &why);
	if (rc == JM_EBUSY) {
		why = (struct jm_err)JM_ERR_INIT;
		rc = send_once(s, value, &seen, &why);
	}
	return rc ? jm_err_set(err, rc == JM_EPERM ? rc : JM_EIO, "%s", why.text) : 0;
}

static int redfish_writes(void *state, int i, const struct jm_knob_value *value, jm_write_fn *fn,
	void *arg, struct jm_err *err)
{
	struct state *s = state;
	json_t *members = NULL;
	struct limit l;
	char call[600];
	char *body;
	int rc;

	(void)i;
	jm_https_limit(&s->https);
	rc = plan(s, value, &l, &members, err);
	if (rc)
		return rc;
	body = json_dumps(members, JSON_COMPACT);
	snprintf(call, sizeof(call), "PATCH https://%.100s:%d%s %.150s", s->https.host,
		s->https.port, s->path, body ? body : "");
	free(body);
	json_decref(members);
	return fn(arg, call, NULL, err);
}

static void redfish_doctor(struct jm_ctx *ctx, jm_finding_fn *say, void *arg)
{
	const struct jm_finding f = {.what = "node.power",
		.why = "needs its file: --control redfish:/etc/joulemark/redfish.conf",
		.mend = "",
		.needs_argument = true};

	(void)ctx;
	say(arg, &f);
}

const struct jm_control jm_control_redfish = {
	.name = "redfish",
	.summary = "the node's power limit in its management controller, over Redfish",
	.knobs = "node.power",
	.argument = "FILE",
	.origin = JM_MEASURED,
	.open = redfish_open,
	.get = redfish_get,
	.set = redfish_set,
	.writes = redfish_writes,
	.close = redfish_close,
	.doctor = redfish_doctor,
};
