/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of settings: knob[@device]=value[,value...], ranges with a step, units, limits. */
#include "guard/setting.h"
#include "base/option.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_VALUES 10000
#define MAX_NAMES  64

/* While one axis is parsed. */
struct parser {
	const char *text;	 /* as the user wrote it */
	char suffix[16];	 /* the unit at the very end, for numbers without one */
	const struct jm_knob *k; /* the first knob that is meant; its unit applies to all of them */
	const struct jm_knobs *knobs;
	struct jm_axis axis;
	struct jm_err *err;
};

/* Do the n characters end within the number of a word, as "policy1" in "policy10"? A hexadecimal id
 * has no such words. */
static bool cuts_number(const char *id, size_t n)
{
	if (!n || !isdigit((unsigned char)id[n]))
		return false;
	while (n && isdigit((unsigned char)id[n - 1]))
		n--;
	for (; n && isalpha((unsigned char)id[n - 1]); n--)
		if (!isxdigit((unsigned char)id[n - 1]))
			return true;
	return false;
}

bool jm_selector_means(const char *selector, const char *device)
{
	size_t n = strlen(selector);

	if (n && selector[n - 1] == '=')
		return strlen(device) == n - 1 && !strncmp(selector, device, n - 1);
	return !strncmp(selector, device, n) && !cuts_number(device, n);
}

bool jm_setting_matches(const struct jm_setting *setting, const struct jm_knob *knob)
{
	return !strcmp(setting->knob, knob->name) &&
	       jm_selector_means(setting->selector, knob->device);
}

void jm_setting_exactly(struct jm_setting *setting, const struct jm_knob *knob)
{
	size_t n = strlen(knob->device);

	memcpy(setting->selector, knob->device, n + 1);
	if (n + 1 < sizeof(setting->selector))
		memcpy(setting->selector + n, "=", 2);
}

static struct jm_setting with_value(const struct jm_axis *axis, const struct jm_knob_value *value)
{
	struct jm_setting s = {.value = *value};

	memcpy(s.knob, axis->knob, sizeof(s.knob));
	memcpy(s.selector, axis->selector, sizeof(s.selector));
	return s;
}

struct jm_setting jm_axis_setting(const struct jm_axis *axis, int i)
{
	return with_value(axis, &axis->value[i]);
}

/* The names of the knobs, each once. */
static size_t knob_names(const struct jm_knobs *knobs, const char **names)
{
	size_t n = 0;

	for (int i = 0; i < knobs->n && n < MAX_NAMES; i++) {
		bool known = false;

		for (size_t k = 0; k < n; k++)
			known = known || !strcmp(names[k], knobs->knob[i].name);
		if (!known)
			names[n++] = knobs->knob[i].name;
	}
	return n;
}

/* The knob is one of a control that offers none here; "" = no control has such a knob, or it is
 * open. */
static const char *why_absent(const struct parser *p)
{
	const struct jm_control *control = jm_control_of_knob(p->axis.knob);
	size_t n = control ? strlen(control->name) : 0;
	const char *at = n ? p->knobs->absent : "";

	for (; *at; at += strcspn(at, "\n"), at += *at == '\n')
		if (!strncmp(at, control->name, n) && at[n] == ':')
			return at + n + 2;
	return "";
}

static int unknown_knob(struct parser *p)
{
	const char *names[MAX_NAMES], *near, *why = why_absent(p);
	size_t n = knob_names(p->knobs, names), used = 0;
	char all[200] = "";

	if (*why)
		return jm_err_set(p->err, JM_ENOENT, "%s cannot be set here: %.*s", p->axis.knob,
			(int)strcspn(why, "\n"), why);
	if (!n)
		return jm_err_set(p->err, JM_ENOENT,
			"Nothing can be set here, so %s cannot either; 'joulemark doctor' shows "
			"the reason.",
			p->axis.knob);
	near = jm_control_of_knob(p->axis.knob) ? NULL : jm_did_you_mean(p->axis.knob, names, n);
	if (near)
		return jm_err_set(p->err, JM_EUSAGE, "There is no knob '%s'; did you mean '%s'?",
			p->axis.knob, near);
	for (size_t i = 0; i < n && used < sizeof(all); i++)
		used += (size_t)snprintf(
			all + used, sizeof(all) - used, "%s%s", i ? ", " : "", names[i]);
	return jm_err_set(
		p->err, JM_EUSAGE, "There is no knob '%s' here; available: %s.", p->axis.knob, all);
}

/* Reads "knob" or "knob@device" of n characters. */
static int parse_target(struct parser *p, size_t n)
{
	const char *at = memchr(p->text, '@', n);
	size_t knob_len = at ? (size_t)(at - p->text) : n;
	size_t selector_len = at ? n - knob_len - 1 : 0;

	if (!knob_len || knob_len >= sizeof(p->axis.knob) || (at && !selector_len) ||
		selector_len >= sizeof(p->axis.selector))
		return jm_err_set(p->err, JM_EUSAGE,
			"'%s' does not begin with a knob, as in gpu.power=300W or "
			"gpu.power@GPU-8f=300W.",
			p->text);
	memcpy(p->axis.knob, p->text, knob_len);
	if (at)
		memcpy(p->axis.selector, at + 1, selector_len);
	return 0;
}

static void take_knob(struct parser *p, const struct jm_knob *k)
{
	p->k = k;
	memcpy(p->axis.unit, k->unit, sizeof(k->unit));
}

/* "gpu.power@0": the device of that number among those with the knob, which the selector then names
 * by its id, since numbers change. False when there is none. */
static bool find_by_number(struct parser *p)
{
	const char *text = p->axis.selector;
	size_t digits = strspn(text, "0123456789");
	long number = strtol(text, NULL, 10);

	if (!digits || text[digits] || digits > 4)
		return false;
	for (int i = 0; i < p->knobs->n; i++) {
		const struct jm_knob *k = &p->knobs->knob[i];

		if (strcmp(k->name, p->axis.knob) || number-- ||
			strlen(k->device) >= sizeof(p->axis.selector))
			continue;
		memcpy(p->axis.selector, k->device, strlen(k->device) + 1);
		take_knob(p, k);
		return true;
	}
	return false;
}

/* Finds the first knob that is meant; its unit holds for all of that name. */
static int find_knob(struct parser *p)
{
	const struct jm_knob_value none = jm_knob_value_of(NAN);
	struct jm_setting s = with_value(&p->axis, &none);
	bool named = false;
	const char *example = "";

	for (int i = 0; i < p->knobs->n; i++) {
		const struct jm_knob *k = &p->knobs->knob[i];

		if (strcmp(k->name, s.knob))
			continue;
		named = true;
		example = k->device;
		if (!jm_setting_matches(&s, k))
			continue;
		take_knob(p, k);
		return 0;
	}
	if (!named)
		return unknown_knob(p);
	if (find_by_number(p))
		return 0;
	return jm_err_set(p->err, JM_EUSAGE,
		"No device with %s has an id that begins with '%s'; an id here is '%s'.", s.knob,
		s.selector, example);
}

/* Every device that is meant must be able to take the value. */
static int check_devices(struct parser *p, const struct jm_knob_value *value)
{
	struct jm_setting s = with_value(&p->axis, value);
	int rc = 0;

	for (int i = 0; i < p->knobs->n && !rc; i++)
		if (jm_setting_matches(&s, &p->knobs->knob[i]))
			rc = jm_knob_check(&p->knobs->knob[i], value, p->err);
	return rc;
}

static int add_value(struct parser *p, const struct jm_knob_value *value)
{
	struct jm_axis *a = &p->axis;
	struct jm_knob_value *grown;
	int rc = check_devices(p, value);

	if (rc)
		return rc;
	for (int i = 0; i < a->n; i++)
		if (jm_knob_value_same(&a->value[i], value))
			return 0;
	if (a->n == MAX_VALUES)
		return jm_err_set(p->err, JM_EUSAGE,
			"'%s' is more than %d values; take a larger step.", p->text, MAX_VALUES);
	grown = reallocarray(a->value, (size_t)a->n + 1, sizeof(*grown));
	if (!grown)
		return jm_err_set(
			p->err, JM_ENOMEM, "Out of memory for the values of %s.", a->knob);
	a->value = grown;
	grown[a->n++] = *value;
	return 0;
}

static int add_number(struct parser *p, double number)
{
	const struct jm_knob_value value = jm_knob_value_of(number);

	return add_value(p, &value);
}

/* The length of the number at s, and of the letters after it. */
static size_t number_length(const char *s, size_t *ret_unit)
{
	char *end;

	strtod(s, &end);
	*ret_unit = 0;
	if (end > s)
		while (isalpha((unsigned char)end[*ret_unit]) || end[*ret_unit] == '%')
			++*ret_unit;
	return (size_t)(end - s);
}

/* One number with its unit, or with the one at the end of the text; moves *s after it. */
static int parse_number(struct parser *p, const char **s, double *ret)
{
	char word[80];
	size_t unit, n = number_length(*s, &unit);

	if (!n || n + unit + sizeof(p->suffix) > sizeof(word))
		return jm_err_set(p->err, JM_EUSAGE,
			"'%s' has '%.40s' where a number is expected; write %s=300%s, a list "
			"300,400%s or a range 200:700+100%s.",
			p->text, *s, p->axis.knob, p->k->unit, p->k->unit, p->k->unit);
	snprintf(word, sizeof(word), "%.*s%s", (int)(n + unit), *s, unit ? "" : p->suffix);
	*s += n + unit;
	return jm_parse_quantity(word, p->k->unit, *p->k->unit != '\0', ret, p->err);
}

/* "200:700+100W" after its first number and colon: values in steps. */
static int parse_steps(struct parser *p, const char **s, double first, double last)
{
	double step, count;
	int rc;

	++*s;
	rc = parse_number(p, s, &step);
	if (rc)
		return rc;
	if (!(step > 0) || last < first)
		return jm_err_set(p->err, JM_EUSAGE,
			"The range in '%s' must go up in steps above 0, as 200:700+100%s.", p->text,
			p->k->unit);
	count = floor((last - first) / step + 1e-9);
	if (count >= MAX_VALUES)
		return jm_err_set(p->err, JM_EUSAGE,
			"'%s' is more than %d values; take a larger step.", p->text, MAX_VALUES);
	for (double i = 0; !rc && i <= count; i++)
		rc = add_number(p, first + i * step);
	return rc;
}

/* After the first number: a range in steps, or as one value where the knob takes ranges. */
static int parse_range(struct parser *p, const char **s, double first)
{
	struct jm_knob_value range;
	double last;
	int rc;

	++*s;
	rc = parse_number(p, s, &last);
	if (rc)
		return rc;
	if (**s == '+')
		return parse_steps(p, s, first, last);
	if (p->k->kind != JM_KNOB_RANGE)
		return jm_err_set(p->err, JM_EUSAGE,
			"The range in '%s' has no step; write it as 200:700+100%s.", p->text,
			p->k->unit);
	if (last < first)
		return jm_err_set(p->err, JM_EUSAGE,
			"The range in '%s' is reversed; its lower end comes first.", p->text);
	range = jm_knob_value_between(first, last);
	return add_value(p, &range);
}

/* "200:700:100", as other programs write a range. */
static int check_colons(struct parser *p, const char *s)
{
	double part[3];
	size_t unit;

	for (int i = 0; i < 3; i++) {
		size_t n = number_length(s, &unit);

		if (!n || (i < 2 && s[n + unit] != ':'))
			return 0;
		part[i] = strtod(s, NULL);
		s += n + unit + 1;
	}
	return jm_err_set(p->err, JM_EUSAGE,
		"'%s' has two colons; did you mean '%.10g:%.10g+%.10g%s', from %.10g to %.10g in "
		"steps of %.10g?",
		p->text, part[0], part[1], part[2], p->k->unit, part[0], part[1], part[2]);
}

/* "200:700" and "200W:700W" of a knob that takes one number: the whole form, with a fifth of the
 * range as the step. */
static int check_step(struct parser *p, const char *s)
{
	size_t unit, n = number_length(s, &unit), second;
	double first = strtod(s, NULL), last;
	const char *to = s + n + unit + 1, *end, *named;

	if (!n || s[n + unit] != ':' || p->k->kind == JM_KNOB_RANGE)
		return 0;
	last = strtod(to, NULL);
	n = number_length(to, &second);
	end = to + n + second;
	if (!n || !isfinite(first + last) || (*end && *end != ','))
		return 0;
	named = *p->suffix ? p->suffix : strcmp(p->k->unit, "Hz") ? p->k->unit : "MHz";
	return jm_err_set(p->err, JM_EUSAGE,
		"The range in '%s' has no step%s; write %s=%.10g:%.10g+%.10g%s.", p->text,
		unit || second || *p->suffix || !*p->k->unit ? "" : " and no unit", p->axis.knob,
		first, last, (last - first) / 5, named);
}

/* A word to the next comma or the end: "default", or one that the knob has. */
static size_t word_length(const struct parser *p, const char *s, struct jm_knob_value *ret)
{
	size_t n = strcspn(s, ",");

	if (n >= sizeof(ret->word))
		return 0;
	*ret = jm_knob_value_word("");
	memcpy(ret->word, s, n);
	return jm_knob_value_is(ret, JM_DEFAULT) || jm_knob_takes_word(p->k, ret->word) ? n : 0;
}

static int no_choice(struct parser *p, const char *s)
{
	return jm_err_set(p->err, JM_EUSAGE, "%s has no choice '%.*s'; it has %s.", p->k->name,
		(int)strcspn(s, ","), s, p->k->choices);
}

static int parse_item(struct parser *p, const char **s)
{
	struct jm_knob_value word;
	size_t n = word_length(p, *s, &word);
	double value;
	int rc;

	if (n) {
		*s += n;
		return add_value(p, &word);
	}
	if (p->k->kind == JM_KNOB_CHOICE)
		return no_choice(p, *s);
	rc = check_colons(p, *s);
	if (!rc)
		rc = check_step(p, *s);
	if (!rc)
		rc = parse_number(p, s, &value);
	if (rc)
		return rc;
	return **s == ':' ? parse_range(p, s, value) : add_number(p, value);
}

/* The letters at the end, unless they are a word: the unit of all numbers without one. */
static void find_suffix(struct parser *p, const char *s)
{
	size_t n = strlen(s), letters = 0;
	const char *item = strrchr(s, ',');
	struct jm_knob_value word;

	while (letters < n &&
		(isalpha((unsigned char)s[n - 1 - letters]) || s[n - 1 - letters] == '%'))
		letters++;
	if (!word_length(p, item ? item + 1 : s, &word) && letters < n &&
		letters < sizeof(p->suffix))
		memcpy(p->suffix, s + n - letters, letters + 1);
}

static int parse_values(struct parser *p, const char *s)
{
	find_suffix(p, s);
	for (;;) {
		int rc = parse_item(p, &s);

		if (rc || !*s)
			return rc;
		if (*s++ != ',')
			return jm_err_set(p->err, JM_EUSAGE,
				"'%s' continues with '%s' where a comma or the end is expected.",
				p->text, s - 1);
	}
}

int jm_axis_parse(
	const char *text, const struct jm_knobs *knobs, struct jm_axis *ret, struct jm_err *err)
{
	struct parser p = {.text = text, .knobs = knobs, .err = err};
	const char *equals = strchr(text, '=');
	int rc;

	if (!equals || !equals[1])
		return jm_err_set(err, JM_EUSAGE,
			"'%s' is not a setting; write it as knob=value, like gpu.power=300W.",
			text);
	rc = parse_target(&p, (size_t)(equals - text));
	if (!rc)
		rc = find_knob(&p);
	if (!rc)
		rc = parse_values(&p, equals + 1);
	if (rc) {
		jm_axis_done(&p.axis);
		return rc;
	}
	*ret = p.axis;
	return 0;
}

int jm_target_parse(
	const char *text, const struct jm_knobs *knobs, struct jm_setting *ret, struct jm_err *err)
{
	const struct jm_knob_value none = jm_knob_value_of(NAN);
	struct parser p = {.text = text, .knobs = knobs, .err = err};
	int rc = parse_target(&p, strlen(text));

	if (!rc)
		rc = find_knob(&p);
	if (!rc)
		*ret = with_value(&p.axis, &none);
	return rc;
}

void jm_axis_done(struct jm_axis *axis)
{
	free(axis->value);
	*axis = (struct jm_axis){0};
}
