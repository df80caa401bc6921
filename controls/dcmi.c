/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power limit of the node in its management controller by IPMI: Get, Set and Activate Power
 * Limit of DCMI (DCMI 1.5, 6.6.2 to 6.6.4: commands 03h, 04h, 05h). The controller keeps the limit
 * through a reboot of the node. A limit that is not active is "unlocked". What the controller does
 * when the node exceeds the limit for longer than the correction time, the correction time itself
 * and the sampling period are written as they were read; where the controller does not report them
 * for a limit that is not active, nothing is set. There is no command for the range: the controller
 * judges. Each limit is activated after it was written (6.6.3).
 *
 * A controller that powers the node off then, or takes an action of its vendor that may do so, is
 * not given a limit below the active one, unless the argument accepts it; OpenBMC's always
 * reports that it powers the node off.
 */
#include "guard/control.h"
#include "base/clock.h"
#include "base/ctx.h"
#include "vendor/ipmi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GET_LIMIT      0x03
#define SET_LIMIT      0x04
#define ACTIVATE_LIMIT 0x05

#define NOT_ACTIVE	 0x80 /* completion codes of these commands */
#define LIMIT_RANGE	 0x84
#define CORRECTION_RANGE 0x85
#define SAMPLING_RANGE	 0x89

#define NO_ACTION	0x00 /* exception actions; 02h to 10h are the vendor's */
#define POWER_OFF	0x01
#define LOG_ONLY	0x11
#define POWER_OFF_TAKEN "power-off"

#define MOST_WATTS 65534
#define LONGEST	   10.0 /* s to wait for a limit; the warm-up is for longer ones */

struct state {
	struct jm_ipmi ipmi;
	bool takes_power_off;
	double at_open; /* W, the active limit when the control was opened; NAN = none */
	struct jm_knob knob;
};

struct limit {
	bool active, whole; /* whole: the controller tells the rest */
	uint8_t action;
	uint16_t watts, sampling_s;
	uint32_t correction_ms;
};

/* One command of a setting, and its text for a dry run. */
struct command {
	uint8_t number, data[15];
	size_t n;
	char text[160];
};

static const char *complaint(const uint8_t *answer, size_t n)
{
	switch (n ? answer[0] : 0) {
	case JM_DCMI_UNKNOWN:
		return "it does not know DCMI's power limit (completion code c1h)";
	case JM_DCMI_NO_RIGHT:
		return "this user may not ask for it (completion code d4h)";
	case LIMIT_RANGE:
		return "the limit is out of its range (completion code 84h)";
	case CORRECTION_RANGE:
		return "the correction time is out of its range (completion code 85h)";
	case SAMPLING_RANGE:
		return "the sampling period is out of its range (completion code 89h)";
	}
	return n ? "it refuses the command" : "it does not answer in time";
}

static uint32_t number(const uint8_t *bytes, int n)
{
	uint32_t value = 0;

	while (n--)
		value = value << 8 | bytes[n];
	return value;
}

static void put_number(uint8_t *bytes, int n, uint32_t value)
{
	for (int i = 0; i < n; i++, value >>= 8)
		bytes[i] = (uint8_t)value;
}

/* A controller whose limit is not active may answer with the completion code alone. */
static int read_limit(struct state *s, struct limit *ret, struct jm_err *err)
{
	static const uint8_t question[] = {JM_DCMI_GROUP, 0, 0};
	uint8_t a[JM_IPMI_MAX];
	size_t n = jm_dcmi_ask(&s->ipmi, GET_LIMIT, question, sizeof(question), a);
	bool whole = n >= 15 && a[1] == JM_DCMI_GROUP, active = n && !a[0];

	if (!n || (active && !whole) || (!active && a[0] != NOT_ACTIVE))
		return jm_err_set(err, n && a[0] == JM_DCMI_UNKNOWN ? JM_ENOSUP : JM_EIO,
			"The management controller at %s does not report its power limit: %s; "
			"'ipmitool dcmi power get_limit' asks the same.",
			s->ipmi.path, complaint(a, n));
	*ret = (struct limit){.active = active, .whole = whole};
	if (!whole)
		return 0;
	ret->action = a[4];
	ret->watts = (uint16_t)number(a + 5, 2);
	ret->correction_ms = number(a + 7, 4);
	ret->sampling_s = (uint16_t)number(a + 13, 2);
	return 0;
}

static double active_watts(const struct limit *limit)
{
	return limit->active && limit->watts ? limit->watts : NAN;
}

static int check_argument(const char *arg, struct jm_err *err)
{
	if (!*arg || !strcmp(arg, POWER_OFF_TAKEN))
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"The control dcmi takes 'dcmi' or 'dcmi:" POWER_OFF_TAKEN "', not 'dcmi:%s'.", arg);
}

static int add_limit(struct state *s, struct jm_knobs *set, struct jm_err *err)
{
	struct limit limit;
	int rc = read_limit(s, &limit, err);

	if (rc)
		return rc;
	s->at_open = active_watts(&limit);
	s->knob = (struct jm_knob){.name = "node.power",
		.unit = "W",
		.device = "ipmi0",
		.label = "node (IPMI DCMI)",
		.min = 1,
		.max = MOST_WATTS,
		.step = 1,
		.fallback = jm_knob_value_of(NAN),
		.ends = JM_ENDS_NEVER,
		.unlockable = true,
		.settle_s = fmin(limit.correction_ms * 1e-3, LONGEST)};
	rc = jm_knobs_add(set, &s->knob, err);
	return rc < 0 ? rc : 0;
}

static void dcmi_close(void *state)
{
	struct state *s = state;

	if (s)
		jm_ipmi_close(&s->ipmi);
	free(s);
}

static int dcmi_open(struct jm_ctx *ctx, const char *arg, struct jm_knobs *set, void **ret_state,
	struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for IPMI.");
	s->ipmi.fd = -1;
	s->ipmi.timeout_ns = 2 * JM_SECOND;
	s->takes_power_off = *arg != '\0';
	rc = check_argument(arg, err);
	if (!rc)
		rc = jm_ipmi_open(&s->ipmi, ctx->root, 0, err);
	if (!rc)
		rc = add_limit(s, set, err);
	if (rc)
		dcmi_close(s);
	else
		*ret_state = s;
	return rc;
}

static int dcmi_get(void *state, int i, struct jm_knob_value *ret_accepted,
	struct jm_knob_value *ret_enforced, struct jm_err *err)
{
	struct limit limit;
	int rc = read_limit(state, &limit, err);

	(void)i;
	if (rc)
		return rc;
	*ret_accepted = limit.active ? jm_knob_value_of(active_watts(&limit))
				     : jm_knob_value_word(JM_UNLOCKED);
	*ret_enforced = *ret_accepted;
	return 0;
}

/* ---- setting --------------------------------------------------------------------------------- */

static void command_activate(const struct state *s, bool active, struct command *c)
{
	*c = (struct command){
		.number = ACTIVATE_LIMIT, .n = 4, .data = {JM_DCMI_GROUP, active ? 1 : 0}};
	snprintf(c->text, sizeof(c->text), "DCMI Activate Power Limit(%s) to %.100s",
		active ? "activate" : "deactivate", s->ipmi.path);
}

static void command_limit(const struct state *s, const struct limit *limit, struct command *c)
{
	*c = (struct command){.number = SET_LIMIT, .n = 15, .data = {JM_DCMI_GROUP}};
	c->data[4] = limit->action;
	put_number(c->data + 5, 2, limit->watts);
	put_number(c->data + 7, 4, limit->correction_ms);
	put_number(c->data + 13, 2, limit->sampling_s);
	snprintf(c->text, sizeof(c->text),
		"DCMI Set Power Limit(%u W, exception action %02xh, correction time %u ms) to "
		"%.60s",
		limit->watts, limit->action, limit->correction_ms, s->ipmi.path);
}

/* A limit that is not below the active one, or the one that was active before, makes a power-off no
 * likelier; so a restore is not refused, either. */
static bool may_power_off(const struct state *s, const struct limit *now, double watts)
{
	return now->action != NO_ACTION && now->action != LOG_ONLY && !s->takes_power_off &&
	       !(watts >= fmin(active_watts(now), s->at_open));
}

static void action_text(const struct limit *limit, char *out, size_t size)
{
	snprintf(out, size, "the exception action %02xh (%s)", limit->action,
		limit->action == POWER_OFF ? "it powers the node off"
					   : "the vendor's, which may power the node off");
}

/* Is there a reason not to write these watts? */
static int check_limit(
	const struct state *s, const struct limit *now, uint16_t watts, struct jm_err *err)
{
	char action[120];

	if (!now->whole)
		return jm_err_set(err, JM_ENOSUP,
			"The management controller at %s does not report the exception action of a "
			"limit that is not active, so that action could not be kept, and nothing "
			"was set; "
			"activate a limit once with 'ipmitool dcmi power activate'.",
			s->ipmi.path);
	if (!may_power_off(s, now, watts))
		return 0;
	action_text(now, action, sizeof(action));
	return jm_err_set(err, JM_EIO,
		"The management controller at %s takes %s when the limit is exceeded for longer "
		"than %u ms, so nothing was set. Give it another action ('ipmitool dcmi "
		"power set_limit action no_action'), or accept this one with --control "
		"dcmi:" POWER_OFF_TAKEN " (OpenBMC always reports 01h).",
		s->ipmi.path, action, now->correction_ms);
}

/* The commands that set the value now, in their order. */
static int plan(struct state *s, const struct jm_knob_value *value, struct command c[2], int *ret_n,
	struct jm_err *err)
{
	struct limit limit;
	uint16_t watts;
	int rc = jm_knob_check_kind(&s->knob, value, err);

	if (!rc)
		rc = read_limit(s, &limit, err);
	if (rc)
		return rc;
	*ret_n = 1;
	if (jm_knob_value_is(value, JM_UNLOCKED)) {
		command_activate(s, false, c);
		return 0;
	}
	watts = (uint16_t)fmin(fmax(round(jm_knob_value_number(value)), 1), MOST_WATTS);
	rc = check_limit(s, &limit, watts, err);
	if (rc)
		return rc;
	limit.watts = watts;
	command_limit(s, &limit, &c[0]);
	command_activate(s, true, &c[1]);
	*ret_n = 2;
	return 0;
}

static int dcmi_set(void *state, int i, const struct jm_knob_value *value, struct jm_err *err)
{
	struct state *s = state;
	struct command c[2];
	int n = 0, rc = plan(s, value, c, &n, err);

	(void)i;
	for (int k = 0; k < n && !rc; k++) {
		uint8_t a[JM_IPMI_MAX];
		size_t got = jm_dcmi_ask(&s->ipmi, c[k].number, c[k].data, c[k].n, a);

		if (!got || a[0])
			rc = jm_err_set(err, got && a[0] == JM_DCMI_NO_RIGHT ? JM_EPERM : JM_EIO,
				"%s failed: %s.", c[k].text, complaint(a, got));
	}
	return rc;
}

static int dcmi_writes(void *state, int i, const struct jm_knob_value *value, jm_write_fn *fn,
	void *arg, struct jm_err *err)
{
	struct command c[2];
	int n = 0, rc = plan(state, value, c, &n, err);

	(void)i;
	for (int k = 0; k < n && !rc; k++)
		rc = fn(arg, c[k].text, NULL, err);
	return rc;
}

/* ---- doctor ---------------------------------------------------------------------------------- */

static void dcmi_say_knob(
	void *state, int i, const struct jm_knob *knob, jm_finding_fn *say, void *arg)
{
	struct state *s = state;
	struct limit limit;
	struct jm_err err = JM_ERR_INIT;
	char why[300], action[120];
	struct jm_finding f = {.what = knob->label, .mend = "", .why = why};

	(void)i;
	if (read_limit(s, &limit, &err)) {
		f.why = err.text;
	} else if (!limit.whole) {
		f.why = "node.power: the controller does not report the exception action of a "
			"limit "
			"that is not active";
		f.mend = "activate a limit once with 'ipmitool dcmi power activate'";
	} else if (may_power_off(s, &limit, 0)) {
		action_text(&limit, action, sizeof(action));
		snprintf(why, sizeof(why),
			"node.power: the controller takes %s above the limit, which is %s", action,
			limit.active ? "active" : "not active");
		f.mend = "change that action, or accept it with --control dcmi:" POWER_OFF_TAKEN;
	} else {
		f.ok = true;
		snprintf(why, sizeof(why),
			"node.power %u W, %s; correction time %u ms; this user may set it",
			limit.watts, limit.active ? "active" : "not active", limit.correction_ms);
	}
	say(arg, &f);
}

const struct jm_control jm_control_dcmi = {
	.name = "dcmi",
	.summary = "the node's power limit in its management controller (IPMI DCMI)",
	.knobs = "node.power",
	.argument = POWER_OFF_TAKEN,
	.origin = JM_MEASURED,
	.open = dcmi_open,
	.get = dcmi_get,
	.set = dcmi_set,
	.writes = dcmi_writes,
	.close = dcmi_close,
	.say_knob = dcmi_say_knob,
};
