/* SPDX-License-Identifier: Apache-2.0 */
/* The text of root's policy. */
#include "policy.h"

#include "base/option.h"
#include "base/text/number.h"

#include <grp.h>
#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RULES 1000
#define LINE	   1000
#define WEEKS	   (53 * 7 * 86400.0) /* a lease is no setting for ever */

/* The words of one line that are left. */
struct words {
	char *save;
	int line;
	struct jm_err *err;
};

static char *next(struct words *w)
{
	return strtok_r(NULL, " \t\r", &w->save);
}

static int wrong(const struct words *w, const char *what, const char *word)
{
	return jm_err_set(w->err, JM_EFORMAT, "Line %d of the policy: %s%s%.80s%s.", w->line, what,
		word ? " '" : "", word ? word : "", word ? "'" : "");
}

static unsigned int user_of(const char *name)
{
	uint64_t number;
	struct passwd *user;

	if (jm_number_whole(name, JM_RULE_NOBODY - 1, &number))
		return (unsigned int)number;
	user = getpwnam(name);
	return user ? user->pw_uid : JM_RULE_NOBODY;
}

static unsigned int group_of(const char *name)
{
	uint64_t number;
	struct group *group;

	if (jm_number_whole(name, JM_RULE_NOBODY - 1, &number))
		return (unsigned int)number;
	group = getgrnam(name);
	return group ? group->gr_gid : JM_RULE_NOBODY;
}

static int parse_who(struct words *w, const char *first, struct jm_rule *r)
{
	const char *name;

	if (!strcmp(first, "everyone")) {
		r->who = JM_RULE_EVERYONE;
		return 0;
	}
	if (strcmp(first, "user") != 0 && strcmp(first, "group") != 0)
		return wrong(w,
			"a rule begins with 'user NAME', 'group NAME' or 'everyone', not with",
			first);
	name = next(w);
	if (!name || strlen(name) >= sizeof(r->name))
		return wrong(w, "no name, or a name that is too long, follows", first);
	snprintf(r->name, sizeof(r->name), "%s", name);
	r->who = *first == 'u' ? JM_RULE_USER : JM_RULE_GROUP;
	r->id = r->who == JM_RULE_USER ? user_of(name) : group_of(name);
	return 0;
}

/* "1200MHz" in the unit of the rule, or of the first number with one. */
static bool quantity(struct jm_rule *r, const char *text, double *ret)
{
	static const char *const units[] = {"W", "Hz"};

	for (size_t i = 0; i < 2; i++)
		if ((!*r->unit || !strcmp(r->unit, units[i])) &&
			!jm_parse_quantity(text, units[i], true, ret, NULL) && isfinite(*ret)) {
			snprintf(r->unit, sizeof(r->unit), "%s", units[i]);
			return true;
		}
	return false;
}

/* "200:700W", "300W": the unit of the second number holds for the first. */
static bool parse_numbers(struct jm_rule *r, const char *text, struct jm_knob_value *ret)
{
	const char *colon = strchr(text, ':'), *unit;
	char low[40];
	size_t n = colon ? (size_t)(colon - text) : 0;

	if (!quantity(r, colon ? colon + 1 : text, &ret->high))
		return false;
	*ret->word = '\0';
	ret->low = ret->high;
	if (!colon)
		return ret->high >= 0;
	unit = colon + 1 + strcspn(colon + 1, "mkMGWH");
	if (!n || n + strlen(unit) >= sizeof(low))
		return false;
	snprintf(low, sizeof(low), "%.*s%s", (int)n, text, strcspn(text, "mkMGWH") < n ? "" : unit);
	return quantity(r, low, &ret->low) && ret->low >= 0 && ret->low <= ret->high;
}

static bool is_word(const char *text)
{
	return *text && strlen(text) < JM_KNOB_WORD &&
	       strspn(text, "abcdefghijklmnopqrstuvwxyz_0123456789") == strlen(text) &&
	       !strchr("0123456789", *text);
}

static int parse_values(struct words *w, struct jm_rule *r, char *text)
{
	char *save = NULL;

	r->range = jm_knob_value_of(NAN);
	for (char *v = strtok_r(text, ",", &save); v; v = strtok_r(NULL, ",", &save)) {
		size_t used = strlen(r->words);

		if (is_word(v) && used + strlen(v) + 2 < sizeof(r->words))
			snprintf(r->words + used, sizeof(r->words) - used, "%s%s", used ? " " : "",
				v);
		else if (is_word(v) || jm_knob_value_known(&r->range) ||
			 !parse_numbers(r, v, &r->range))
			return wrong(w,
				"a knob has one range such as 200:700W or 0.9:1.8GHz, whose lower "
				"end "
				"comes first, or words such as powersave,performance, not",
				v);
	}
	return *r->words || jm_knob_value_known(&r->range) ? 0
							   : wrong(w, "no value follows '='", NULL);
}

static int parse_knob(struct words *w, struct jm_rule *r)
{
	char *text = next(w), *equals = text ? strchr(text, '=') : NULL, *at;
	const struct jm_control *control;

	if (!equals)
		return wrong(
			w, "KNOB=VALUES is expected, as gpu.power=200:700W, not", text ? text : "");
	*equals = '\0';
	at = strchr(text, '@');
	if (at)
		*at++ = '\0';
	if (strlen(text) >= sizeof(r->target.knob) ||
		(at && (!*at || strlen(at) >= sizeof(r->target.selector))))
		return wrong(w, "this is neither a knob nor KNOB@ID:", text);
	control = jm_control_of_knob(text);
	if (!control)
		return wrong(w, "there is no knob", text);
	if (control->device_is_argument)
		return wrong(w, "joulemarkd does not set", text);
	snprintf(r->target.knob, sizeof(r->target.knob), "%s", text);
	snprintf(r->target.selector, sizeof(r->target.selector), "%s", at ? at : "");
	return parse_values(w, r, equals + 1);
}

static int parse_option(struct words *w, struct jm_rule *r, const char *name)
{
	const char *value = next(w);
	uint64_t number;

	if (!value)
		return wrong(w, "no value follows", name);
	if (!strcmp(name, "for")) {
		if (jm_parse_quantity(value, "s", true, &r->seconds, NULL) || !(r->seconds > 0) ||
			r->seconds > WEEKS)
			return wrong(w,
				"'for' takes a time such as 30min or 4h, at most a year, not",
				value);
	} else if (!strcmp(name, "leases")) {
		if (!jm_number_whole(value, JM_LEASES_MOST, &number) || !number)
			return wrong(w, "'leases' takes a whole number from 1, not", value);
		r->leases = (int)number;
	} else if (!strcmp(name, "found")) {
		if (is_word(value))
			r->found = jm_knob_value_word(value);
		else if (!parse_numbers(r, value, &r->found))
			return wrong(w, "'found' takes one value or range of the knob, not", value);
	} else {
		return wrong(w,
			"a rule ends with 'for TIME', 'leases N' or 'found VALUE', not with", name);
	}
	return 0;
}

/* line: without its end, changed. A line without a rule adds none. */
static int parse_line(struct jm_policy *policy, char *line, int number, struct jm_err *err)
{
	struct words w = {.line = number, .err = err};
	struct jm_rule r = {.id = JM_RULE_NOBODY,
		.found = jm_knob_value_of(NAN),
		.seconds = JM_RULE_SECONDS,
		.leases = JM_RULE_LEASES};
	struct jm_rule *grown;
	char *first;
	int rc;

	line[strcspn(line, "#")] = '\0';
	first = strtok_r(line, " \t\r", &w.save);
	if (!first)
		return 0;
	rc = parse_who(&w, first, &r);
	if (!rc)
		rc = parse_knob(&w, &r);
	for (char *name = rc ? NULL : next(&w); name && !rc; name = rc ? NULL : next(&w))
		rc = parse_option(&w, &r, name);
	if (rc)
		return rc;
	if (policy->n == MOST_RULES)
		return wrong(&w, "there are more rules than 1000", NULL);
	grown = reallocarray(policy->rule, (size_t)policy->n + 1, sizeof(*grown));
	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the policy.");
	policy->rule = grown;
	grown[policy->n++] = r;
	return 0;
}

int jm_policy_parse(const char *text, size_t n, struct jm_policy *ret, struct jm_err *err)
{
	struct jm_policy policy = {0};
	char line[LINE + 1];
	int number = 0, rc = 0;

	for (size_t length; n && !rc; n -= length, text += length) {
		const char *end = memchr(text, '\n', n);

		length = end ? (size_t)(end - text) : n;
		number++;
		if (length > LINE || memchr(text, '\0', length)) {
			rc = jm_err_set(err, JM_EFORMAT,
				"Line %d of the policy is longer than %d bytes, or no text.",
				number, LINE);
			break;
		}
		memcpy(line, text, length);
		line[length] = '\0';
		rc = parse_line(&policy, line, number, err);
		length += end != NULL;
	}
	if (rc)
		jm_policy_done(&policy);
	else
		*ret = policy;
	return rc;
}

void jm_policy_done(struct jm_policy *policy)
{
	free(policy->rule);
	*policy = (struct jm_policy){0};
}

/* ---- what it says ---------------------------------------------------------------------------- */

static bool is_for(const struct jm_rule *r, const struct jm_caller *caller)
{
	if (r->who == JM_RULE_EVERYONE)
		return true;
	if (r->id == JM_RULE_NOBODY)
		return false;
	if (r->who == JM_RULE_USER)
		return r->id == caller->uid;
	for (int i = 0; i < caller->n_groups; i++)
		if (caller->group[i] == r->id)
			return true;
	return false;
}

int jm_policy_leases(const struct jm_policy *policy, const struct jm_caller *caller)
{
	int most = 0;

	for (int i = 0; i < policy->n; i++)
		if (is_for(&policy->rule[i], caller) && policy->rule[i].leases > most)
			most = policy->rule[i].leases;
	return most;
}

bool jm_policy_names(
	const struct jm_policy *policy, const struct jm_caller *caller, const char *knob)
{
	for (int i = 0; i < policy->n; i++)
		if (is_for(&policy->rule[i], caller) && !strcmp(policy->rule[i].target.knob, knob))
			return true;
	return false;
}

double jm_policy_seconds(const struct jm_policy *policy, const struct jm_caller *caller)
{
	double most = 0;

	for (int i = 0; i < policy->n; i++)
		if (is_for(&policy->rule[i], caller))
			most = fmax(most, policy->rule[i].seconds);
	return most;
}

static bool has_word(const struct jm_rule *r, const char *word)
{
	size_t n = strlen(word), length;

	for (const char *at = r->words; *at; at += length + (at[length] == ' ')) {
		length = strcspn(at, " ");
		if (length == n && !strncmp(at, word, n))
			return true;
	}
	return false;
}

static bool has_value(
	const struct jm_rule *r, const struct jm_knob *knob, const struct jm_knob_value *v)
{
	if (*v->word)
		return has_word(r, v->word);
	return jm_knob_value_known(&r->range) && !strcmp(r->unit, knob->unit) &&
	       v->low >= r->range.low && v->high <= r->range.high && v->low <= v->high;
}

/* Appends what the rule allows. */
static void append(const struct jm_rule *r, const struct jm_knob *knob, char *out, size_t size)
{
	char range[JM_KNOB_TEXT] = "";
	size_t used = strlen(out);

	if (jm_knob_value_known(&r->range))
		jm_knob_value_text(&r->range, knob->unit, range, sizeof(range));
	snprintf(out + used, size - used, "%s%s%s%s", used ? ", or " : "", range,
		*range && *r->words ? " or " : "", r->words);
}

int jm_policy_allow(const struct jm_policy *policy, const struct jm_caller *caller,
	const struct jm_knob *knob, const struct jm_knob_value *value, double *ret_seconds,
	struct jm_err *err)
{
	char allowed[200] = "", text[JM_KNOB_TEXT];
	double most = 0;

	for (int i = 0; i < policy->n; i++) {
		const struct jm_rule *r = &policy->rule[i];

		if (!is_for(r, caller) || !jm_setting_matches(&r->target, knob))
			continue;
		if (has_value(r, knob, value))
			most = fmax(most, r->seconds);
		append(r, knob, allowed, sizeof(allowed));
	}
	if (most > 0) {
		*ret_seconds = most;
		return 0;
	}
	jm_knob_value_text(value, knob->unit, text, sizeof(text));
	if (!*allowed)
		return jm_err_set(err, JM_EPERM,
			"Root's policy of joulemarkd does not let user %u set %s of %s.",
			(unsigned int)caller->uid, knob->name, knob->label);
	return jm_err_set(err, JM_EPERM,
		"Root's policy of joulemarkd lets user %u set %s of %s to %s, not to %s.",
		(unsigned int)caller->uid, knob->name, knob->label, allowed, text);
}

struct jm_knob_value jm_policy_found(const struct jm_policy *policy, const struct jm_knob *knob)
{
	for (int i = 0; i < policy->n; i++)
		if (jm_setting_matches(&policy->rule[i].target, knob) &&
			jm_knob_value_known(&policy->rule[i].found))
			return policy->rule[i].found;
	return jm_knob_value_of(NAN);
}
