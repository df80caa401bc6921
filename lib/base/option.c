/* SPDX-License-Identifier: Apache-2.0 */
/* Options: rows, values, quantities with units, and 'did you mean'. */
#include "base/option.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *base, *text;
	double factor;
} units[] = {
	{"s", "ns", 1e-9},
	{"s", "us", 1e-6},
	{"s", "ms", 1e-3},
	{"s", "s", 1},
	{"s", "min", 60},
	{"s", "h", 3600},
	{"W", "mW", 1e-3},
	{"W", "W", 1},
	{"W", "kW", 1e3},
	{"Hz", "Hz", 1},
	{"Hz", "kHz", 1e3},
	{"Hz", "MHz", 1e6},
	{"Hz", "GHz", 1e9},
	{"%", "%", 1},
};

/* The spellings of a base unit, for an error: "ns, us, ms". */
static void list_units(const char *base, char *out, size_t size)
{
	size_t used = 0;

	out[0] = '\0';
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(units[i].base, base) && used < size)
			used += (size_t)snprintf(
				out + used, size - used, "%s%s", used ? ", " : "", units[i].text);
}

int jm_parse_quantity(
	const char *text, const char *unit, bool require, double *ret, struct jm_err *err)
{
	char known[64];
	char *end;
	double value;

	errno = 0;
	value = strtod(text, &end);
	/* strtod also takes spaces, hexadecimals and words */
	if (end == text || strspn(text, "+-.0123456789eE") < (size_t)(end - text) ||
		errno == ERANGE)
		return jm_err_set(err, JM_EUSAGE, "'%s' is not a number%s%s.", text,
			*unit ? " in " : "", unit);
	if (!*end) {
		if (require)
			return jm_err_set(err, JM_EUSAGE, "'%s' has no unit; write '%s%s'%s.", text,
				text, unit, !strcmp(unit, "s") ? ", or with ms, min or h" : "");
		*ret = value;
		return 0;
	}
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (!strcmp(units[i].base, unit) && !strcmp(units[i].text, end)) {
			if (!isfinite(value * units[i].factor))
				return jm_err_set(
					err, JM_EUSAGE, "'%s' is too large a number.", text);
			*ret = value * units[i].factor;
			return 0;
		}
	}
	if (*end == ':')
		return jm_err_set(err, JM_EUSAGE,
			"'%s' is not one number; a range, where one may be given, has a step, as "
			"in 16:64+16 or 16:4096*2.",
			text);
	list_units(unit, known, sizeof(known));
	if (!*known)
		return jm_err_set(err, JM_EUSAGE, "'%s' ends in '%s', but this number has no unit.",
			text, end);
	return jm_err_set(err, JM_EUSAGE,
		"'%s' ends in '%s', which is not a unit here; use one of %s.", text, end, known);
}

static size_t smallest(size_t a, size_t b, size_t c)
{
	size_t m = a < b ? a : b;

	return m < c ? m : c;
}

static bool same_letter(char a, char b)
{
	return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/*
 * Edit distance in which two swapped neighbours are one mistake (optimal string alignment); words
 * over 63 letters are never near. row[i % 3][j]: distance of the first i letters of a and j of b.
 */
static size_t distance(const char *a, const char *b)
{
	size_t row[3][64], m = strlen(a), n = strlen(b);

	if (m > 63 || n > 63)
		return SIZE_MAX;
	for (size_t i = 0; i <= m; i++) {
		size_t *now = row[i % 3], *before = row[(i + 2) % 3], *earlier = row[(i + 1) % 3];

		now[0] = i;
		for (size_t j = 1; j <= n; j++) {
			if (!i) {
				now[j] = j;
				continue;
			}
			now[j] = smallest(before[j] + 1, now[j - 1] + 1,
				before[j - 1] + !same_letter(a[i - 1], b[j - 1]));
			if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
				same_letter(a[i - 2], b[j - 1]) && earlier[j - 2] + 1 < now[j])
				now[j] = earlier[j - 2] + 1;
		}
	}
	return row[m % 3][n];
}

const char *jm_did_you_mean(const char *word, const char *const *words, size_t n)
{
	const char *best = NULL;
	size_t length = strlen(word), best_distance = length < 2   ? 1
						      : length < 6 ? 2
								   : length / 3 + 1;

	for (size_t i = 0; i < n; i++) {
		size_t d = distance(word, words[i]);

		if (d < best_distance) {
			best_distance = d;
			best = words[i];
		}
	}
	return best;
}

static int check_range(
	const struct jm_option *o, const char *text, double value, struct jm_err *err)
{
	if (o->min > o->max || (o->min == 0 && o->max == 0))
		return 0;
	if (value >= o->min && value <= o->max)
		return 0;
	return jm_err_set(err, JM_ERANGE, "--%s %s is outside its range %.10g%s to %.10g%s.",
		o->name, text, o->min, o->unit ? o->unit : "", o->max, o->unit ? o->unit : "");
}

static int check_choice(const struct jm_option *o, const char *text, struct jm_err *err)
{
	char all[256] = "";
	size_t n = 0, used = 0;
	const char *near;

	for (; o->choices[n]; n++) {
		if (!strcmp(o->choices[n], text))
			return 0;
		if (used < sizeof(all))
			used += (size_t)snprintf(all + used, sizeof(all) - used, "%s%s",
				n ? ", " : "", o->choices[n]);
	}
	near = jm_did_you_mean(text, o->choices, n);
	return jm_err_set(err, JM_EUSAGE, "--%s does not know '%s'%s%s%s one of %s.", o->name, text,
		near ? "; did you mean '" : "", near ? near : "",
		near ? "'? It takes" : "; it takes", all);
}

static int parse_flag(
	const struct jm_option *o, const char *text, double *number, struct jm_err *err)
{
	static const char *const words[] = {"0", "1", "false", "true", "no", "yes"};

	for (int i = 0; i < 6; i++) {
		if (!strcmp(words[i], text)) {
			*number = i & 1;
			return 0;
		}
	}
	return jm_err_set(err, JM_EUSAGE, "--%s takes yes or no, not '%s'.", o->name, text);
}

static int parse(const struct jm_option *o, const char *text, double *number, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	int rc;

	switch (o->type) {
	case JM_TEXT:
		if (!*text)
			return jm_err_set(err, JM_EUSAGE, "--%s needs a value.", o->name);
		return o->check ? o->check(text, err) : 0;
	case JM_FLAG:
		return parse_flag(o, text, number, err);
	case JM_CHOICE:
		return check_choice(o, text, err);
	case JM_INT:
	case JM_REAL:
	case JM_DURATION:
		break;
	}
	for (int i = 0; o->choices && o->choices[i]; i++) {
		if (!strcmp(text, o->choices[i])) {
			*number = NAN;
			return 0;
		}
	}
	rc = jm_parse_quantity(text, o->unit ? o->unit : "", false, number, &why);
	if (rc && o->choices)
		return jm_err_set(err, rc, "--%s: %s It may also be the word %s.", o->name,
			why.text, o->choices[0]);
	if (rc)
		return jm_err_set(err, rc, "--%s: %s", o->name, why.text);
	if (o->type == JM_INT && *number != floor(*number))
		return jm_err_set(
			err, JM_EUSAGE, "--%s takes a whole number, not '%s'.", o->name, text);
	return check_range(o, text, *number, err);
}

static struct jm_value *lookup(const struct jm_values *v, const char *name)
{
	for (int i = 0; i < v->n; i++)
		if (!strcmp(v->value[i].option->name, name))
			return &v->value[i];
	return NULL;
}

static int append_text(struct jm_value *value, const char *text)
{
	char **grown = reallocarray(value->texts, (size_t)value->n_texts + 2, sizeof(*grown));

	if (!grown)
		return JM_ENOMEM;
	value->texts = grown;
	grown[value->n_texts] = strdup(text);
	grown[value->n_texts + 1] = NULL;
	return grown[value->n_texts++] ? 0 : JM_ENOMEM;
}

static int store(struct jm_value *value, const char *text, struct jm_err *err)
{
	const struct jm_option *o = value->option;
	double number = 0;
	char *copy;
	int rc = parse(o, text, &number, err);

	if (rc)
		return rc;
	copy = strdup(text);
	if (!copy || (o->repeat && append_text(value, text))) {
		free(copy);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for --%s.", o->name);
	}
	free(value->text);
	value->text = copy;
	value->number = number;
	return 0;
}

const struct jm_option *jm_option_find(const struct jm_option *rows, const char *name)
{
	for (; rows && rows->name; rows++)
		if (!strcmp(rows->name, name))
			return rows;
	return NULL;
}

static int start(struct jm_value *value, const struct jm_option *row, struct jm_err *err)
{
	*value = (struct jm_value){.option = row, .number = row->type == JM_FLAG ? 0 : (double)NAN};
	return row->fallback ? store(value, row->fallback, err) : 0;
}

static void end(struct jm_value *value)
{
	free(value->text);
	for (int k = 0; k < value->n_texts; k++)
		free(value->texts[k]);
	free(value->texts);
}

int jm_values_add(struct jm_values *v, const struct jm_option *rows, struct jm_err *err)
{
	struct jm_value *grown;
	int n = 0, rc = 0;

	while (rows && rows[n].name)
		n++;
	grown = reallocarray(v->value, (size_t)v->n + (size_t)n + 1, sizeof(*grown));
	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d options.", n);
	v->value = grown;
	for (int i = 0; i < n && !rc; i++) {
		rc = start(&grown[v->n + i], &rows[i], err);
		for (int k = i; rc && k >= 0; k--)
			end(&grown[v->n + k]);
	}
	v->n += rc ? 0 : n;
	return rc;
}

static bool copy_value(const struct jm_value *from, struct jm_value *to)
{
	*to = *from;
	to->text = from->text ? strdup(from->text) : NULL;
	to->texts = from->texts ? calloc((size_t)from->n_texts + 1, sizeof(*to->texts)) : NULL;
	to->n_texts = 0;
	if (!to->text != !from->text || !to->texts != !from->texts)
		return false;
	for (int k = 0; to->texts && k < from->n_texts; k++) {
		to->texts[k] = strdup(from->texts[k]);
		if (!to->texts[k])
			return false;
		to->n_texts++;
	}
	return true;
}

int jm_values_copy(const struct jm_values *from, struct jm_values *ret, struct jm_err *err)
{
	struct jm_values v = {.value = calloc((size_t)from->n + 1, sizeof(*v.value))};
	bool good = v.value;

	while (good && v.n < from->n) {
		good = copy_value(&from->value[v.n], &v.value[v.n]);
		v.n++;
	}
	if (!good) {
		jm_values_done(&v);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d options.", from->n);
	}
	*ret = v;
	return 0;
}

int jm_values_init(struct jm_values *v, const struct jm_option *rows, struct jm_err *err)
{
	int rc;

	*v = (struct jm_values){0};
	rc = jm_values_add(v, rows, err);
	if (rc)
		jm_values_done(v);
	return rc;
}

int jm_values_set(struct jm_values *v, const char *name, const char *text, struct jm_err *err)
{
	struct jm_value *value = lookup(v, name);
	const char *names[128], *near;
	int n = 0, rc;

	if (value) {
		rc = store(value, text, err);
		value->given = value->given || !rc;
		return rc;
	}
	for (; n < v->n && n < 128; n++)
		names[n] = v->value[n].option->name;
	near = jm_did_you_mean(name, names, (size_t)n);
	if (near)
		return jm_err_set(
			err, JM_EUSAGE, "There is no option --%s; did you mean --%s?", name, near);
	return jm_err_set(
		err, JM_EUSAGE, "There is no option --%s; --help lists the options.", name);
}

const struct jm_value *jm_values_get(const struct jm_values *v, const char *name)
{
	return lookup(v, name);
}

double jm_values_number(const struct jm_values *v, const char *name)
{
	const struct jm_value *value = lookup(v, name);

	return value ? value->number : NAN;
}

const char *jm_values_text(const struct jm_values *v, const char *name)
{
	const struct jm_value *value = lookup(v, name);

	return value ? value->text : NULL;
}

bool jm_values_given(const struct jm_values *v, const char *name)
{
	const struct jm_value *value = lookup(v, name);

	return value && value->given;
}

bool jm_values_is_default(const struct jm_values *v, const char *name)
{
	const struct jm_value *value = lookup(v, name);
	const struct jm_option *row = value ? value->option : NULL;
	const char *fallback = row ? row->fallback : NULL;
	double number;

	if (!value || !value->text)
		return true;
	/* "1e-08" is "1e-8" */
	return fallback && (!strcmp(value->text, fallback) ||
				   (!isnan(value->number) &&
					   !jm_parse_quantity(fallback, row->unit ? row->unit : "",
						   false, &number, NULL) &&
					   number == value->number));
}

/* As an integer field has it: the index of a choice, a duration in nanoseconds. False: no value. */
static bool whole(const struct jm_value *value, long *ret)
{
	const struct jm_option *row = value->option;

	if (row->type == JM_CHOICE) {
		*ret = 0;
		while (value->text && strcmp(row->choices[*ret], value->text) != 0)
			++*ret;
		return value->text;
	}
	if (isnan(value->number))
		return false;
	*ret = (long)(row->type == JM_DURATION ? value->number * 1e9 : value->number);
	return true;
}

static void fill(const struct jm_value *value, void *field)
{
	long number;

	switch (value->option->field) {
	case JM_FIELD_NONE:
		break;
	case JM_FIELD_TEXT:
		*(const char **)field = value->text;
		break;
	case JM_FIELD_TEXTS:
		*(char *const **)field = value->texts;
		break;
	case JM_FIELD_BOOL:
		*(bool *)field = value->number > 0;
		break;
	case JM_FIELD_INT:
		if (whole(value, &number))
			*(int *)field = (int)number;
		break;
	case JM_FIELD_LONG:
		if (whole(value, &number))
			*(long *)field = number;
		break;
	case JM_FIELD_REAL:
		*(double *)field = value->number;
		break;
	}
}

/* Rows that were added stand behind the end of the first ones. */
void jm_values_fill(const struct jm_values *v, void *ret, size_t size)
{
	for (int i = 0; i < v->n && v->value[i].option == v->value[0].option + i; i++) {
		const struct jm_option *row = v->value[i].option;

		if (row->size != size)
			continue;
		fill(&v->value[i], (char *)ret + row->offset);
		if (row->has_given)
			*(bool *)((char *)ret + row->given) = v->value[i].given;
	}
}

void jm_values_done(struct jm_values *v)
{
	for (int i = 0; i < v->n; i++)
		end(&v->value[i]);
	free(v->value);
	*v = (struct jm_values){0};
}
