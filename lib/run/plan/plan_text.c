/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a plan file at one point: {names} replaced, expressions computed. */
#include "plan_text.h"
#include "plan_lookup.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH   32 /* of values within values, and of parentheses */
#define MAX_NAMES   256
#define MAX_EXPRESS 1024
#define MAX_TEXT    (128 << 10) /* Linux takes no longer word of a command */

/* The names that are being resolved: a name must not depend on itself. */
struct resolver {
	const struct jm_plan_run *run;
	const struct jm_plan_point *point;
	const char *open[MAX_DEPTH];
	int depth;
	struct jm_err *err;
};

static int no_memory(struct resolver *r)
{
	return jm_err_set(r->err, JM_ENOMEM, "Out of memory for the values of the plan.");
}

/* ---- {names} ---- */

/* Length of "{name}" at s; 0 = it is none. */
static size_t placeholder(const char *s)
{
	size_t n = 1;

	if (*s != '{' || !isalpha((unsigned char)s[1]))
		return 0;
	while (isalnum((unsigned char)s[n]) || s[n] == '-' || s[n] == '_')
		n++;
	return s[n] == '}' && n < JM_PLAN_NAME ? n + 1 : 0;
}

/* Length of "{{name}}" at s, which stands for the text "{name}"; 0 = it is none. */
static size_t escaped(const char *s)
{
	size_t n = *s == '{' ? placeholder(s + 1) : 0;

	return n && s[n + 1] == '}' ? n + 2 : 0;
}

static bool text_mentions(const char *text, const char *name)
{
	while (*text) {
		size_t n = placeholder(text);

		if (n && strlen(name) == n - 2 && !strncmp(text + 1, name, n - 2))
			return true;
		text += escaped(text) ? escaped(text) : 1;
	}
	return false;
}

bool jm__plan_mentions(const struct jm_yaml *node, const char *name)
{
	if (node->kind == JM_YAML_SCALAR)
		return text_mentions(node->text, name);
	for (int i = 0; i < node->n; i++)
		if (jm__plan_mentions(node->item[i], name))
			return true;
	return false;
}

static int unknown_name(struct resolver *r, const struct jm_yaml *where, const char *name)
{
	const char *names[MAX_NAMES], *near;
	size_t n = 0;

	for (int i = 0; i < r->run->n_keys && n < MAX_NAMES; i++)
		names[n++] = r->run->key[i].name;
	near = jm_did_you_mean(name, names, n);
	if (near)
		return jm_yaml_fail(where, JM_EUSAGE, r->err,
			"This run has no value with the name '%s'; did you mean {%s}?", name, near);
	return jm_yaml_fail(where, JM_EUSAGE, r->err,
		"This run has no value with the name '%s'; add it to 'variables', or write {{%s}} "
		"for the text in braces.",
		name, name);
}

static int fail_of_cycle(struct resolver *r, const struct jm_yaml *where, const char *name)
{
	char text[300] = "";
	size_t used = 0;
	int i = 0;

	while (i < r->depth && strcmp(r->open[i], name) != 0)
		i++;
	if (i == r->depth)
		return jm_yaml_fail(
			where, JM_ERANGE, r->err, "Values refer to one another too deeply.");
	for (; i < r->depth && used < sizeof(text); i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s needs ", r->open[i]);
	return jm_yaml_fail(where, JM_EUSAGE, r->err,
		"These values depend on one another: %s%s; give one of them a value.", text, name);
}

static int resolve(struct resolver *r, const struct jm_plan_key *key, char **ret);

static int resolve_name(
	struct resolver *r, const struct jm_yaml *where, const char *s, size_t n, char **ret)
{
	const struct jm_plan_key *key;
	char name[JM_PLAN_NAME];
	bool open = r->depth == MAX_DEPTH;
	int rc;

	snprintf(name, sizeof(name), "%.*s", (int)n - 2, s + 1);
	key = jm_plan_key(r->run, name);
	if (!key || !strcmp(name, "command"))
		return unknown_name(r, where, name);
	for (int i = 0; i < r->depth; i++)
		open = open || !strcmp(r->open[i], name);
	if (open)
		return fail_of_cycle(r, where, name);
	r->open[r->depth++] = key->name;
	rc = resolve(r, key, ret);
	r->depth--;
	return rc;
}

static int put(
	struct resolver *r, const struct jm_yaml *where, FILE *out, const char *text, size_t n)
{
	fwrite(text, 1, n, out);
	if (ftell(out) > MAX_TEXT)
		return jm_yaml_fail(
			where, JM_ERANGE, r->err, "A value is longer than %d kB.", MAX_TEXT >> 10);
	return 0;
}

/* The text with its {names} replaced. */
static int fill_in(struct resolver *r, const struct jm_yaml *where, const char *text, FILE *out)
{
	int rc = 0;

	while (*text && !rc) {
		size_t n = placeholder(text), plain = 1 + strcspn(text + 1, "{");
		char *value = NULL;

		if (n) {
			rc = resolve_name(r, where, text, n, &value);
			if (!rc && value)
				rc = put(r, where, out, value, strlen(value));
			free(value);
		} else if (escaped(text)) {
			n = escaped(text);
			rc = put(r, where, out, text + 1, n - 2);
		} else {
			n = plain;
			rc = put(r, where, out, text, n);
		}
		text += n;
	}
	return rc;
}

static int filled(struct resolver *r, const struct jm_yaml *where, const char *text, char **ret)
{
	char *made = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&made, &size);
	int rc;

	if (!out)
		return no_memory(r);
	rc = fill_in(r, where, text, out);
	if (fclose(out) && !rc)
		rc = no_memory(r);
	if (rc)
		free(made);
	else
		*ret = made;
	return rc;
}

/* ---- expressions ---- */

/* sum = product {+ product}, product = atom {* atom}, atom = number, {name}, -atom, (sum) */

struct expression {
	struct resolver *r;
	const struct jm_yaml *where;
	const char *s;
	int depth;
};

static int bad_expression(struct expression *x)
{
	if (!*x->s)
		return jm_yaml_fail(x->where, JM_EUSAGE, x->r->err,
			"The expression '%.120s' ends where a number or a parenthesis is missing.",
			x->where->text);
	return jm_yaml_fail(x->where, JM_EUSAGE, x->r->err,
		"The expression '%.120s' is not valid from '%.40s' on; write numbers and {names} "
		"with + - * / %% and parentheses.",
		x->where->text, x->s);
}

static void skip_space(struct expression *x)
{
	x->s += strspn(x->s, " \t\n");
}

static int read_number(
	struct expression *x, const char *text, bool whole, double *ret, size_t *ret_n)
{
	char *end;

	*ret = strtod(text, &end);
	*ret_n = (size_t)(end - text);
	if (end == text || strspn(text, "+-.0123456789eE") < *ret_n || (whole && *end) ||
		!isfinite(*ret))
		return jm_yaml_fail(x->where, JM_EUSAGE, x->r->err,
			"The expression '%.120s' needs a number, and '%.60s' is not one.",
			x->where->text, text);
	return 0;
}

static int read_name(struct expression *x, size_t n, double *ret)
{
	char *value = NULL;
	size_t used;
	int rc = resolve_name(x->r, x->where, x->s, n, &value);

	if (!rc && value)
		rc = read_number(x, value, true, ret, &used);
	free(value);
	x->s += n;
	return rc;
}

static int read_sum(struct expression *x, double *ret);

static int read_atom(struct expression *x, double *ret)
{
	size_t n;
	int rc;

	skip_space(x);
	n = placeholder(x->s);
	if (n)
		return read_name(x, n, ret);
	if (++x->depth > MAX_DEPTH)
		return bad_expression(x);
	if (*x->s == '-') {
		x->s++;
		rc = read_atom(x, ret);
		*ret = -*ret;
	} else if (*x->s == '(') {
		x->s++;
		rc = read_sum(x, ret);
		skip_space(x);
		if (!rc && *x->s != ')')
			rc = bad_expression(x);
		else if (!rc)
			x->s++;
	} else if (isdigit((unsigned char)*x->s) || *x->s == '.') {
		rc = read_number(x, x->s, false, ret, &n);
		x->s += n;
	} else {
		rc = bad_expression(x);
	}
	x->depth--;
	return rc;
}

static int read_product(struct expression *x, double *ret)
{
	int rc = read_atom(x, ret);

	while (!rc) {
		double right = NAN;
		char sign;

		skip_space(x);
		sign = *x->s;
		if (!sign || !strchr("*/%", sign))
			break;
		x->s++;
		rc = read_atom(x, &right);
		if (!rc && sign != '*' && right == 0)
			rc = jm_yaml_fail(x->where, JM_EUSAGE, x->r->err,
				"The expression '%.120s' divides by 0.", x->where->text);
		if (!rc)
			*ret = sign == '*'   ? *ret * right
			       : sign == '/' ? *ret / right
					     : fmod(*ret, right);
	}
	return rc;
}

static int read_sum(struct expression *x, double *ret)
{
	int rc = read_product(x, ret);

	while (!rc) {
		double right = NAN;
		char sign;

		skip_space(x);
		sign = *x->s;
		if (sign != '+' && sign != '-')
			break;
		x->s++;
		rc = read_product(x, &right);
		*ret += sign == '+' ? right : -right;
	}
	return rc;
}

static int compute(struct resolver *r, const struct jm_yaml *where, char **ret)
{
	struct expression x = {.r = r, .where = where, .s = where->text};
	double value = NAN;
	char text[40];
	int rc;

	if (strlen(where->text) > MAX_EXPRESS)
		return jm_yaml_fail(where, JM_ERANGE, r->err,
			"An expression is longer than %d characters.", MAX_EXPRESS);
	rc = read_sum(&x, &value);
	if (!rc && *x.s)
		rc = bad_expression(&x);
	if (!rc && !isfinite(value))
		rc = jm_yaml_fail(where, JM_ERANGE, r->err,
			"The result of the expression '%.120s' is too large.", where->text);
	if (rc)
		return rc;
	snprintf(text, sizeof(text), fabs(value) < 1e15 && value == floor(value) ? "%.0f" : "%.12g",
		value == 0 ? 0 : value);
	*ret = strdup(text);
	return *ret ? 0 : no_memory(r);
}

/* ---- values ---- */

static int resolve_free(struct resolver *r, const struct jm_plan_axis *axis, char **ret)
{
	size_t size = 1;

	for (int i = 0; i < axis->n; i++)
		size += strlen(axis->value[i]) + 1;
	*ret = calloc(size, 1);
	if (!*ret)
		return no_memory(r);
	for (int i = 0, used = 0; i < axis->n; i++)
		used += snprintf(
			*ret + used, size - (size_t)used, "%s%s", i ? "," : "", axis->value[i]);
	return 0;
}

static int resolve(struct resolver *r, const struct jm_plan_key *key, char **ret)
{
	int rc;

	if (key->axis >= 0) {
		const struct jm_plan_axis *axis = &r->run->axis[key->axis];

		if (axis->free)
			return resolve_free(r, axis, ret);
		return filled(
			r, axis->where, axis->value[jm__plan_at(r->run, r->point, key->axis)], ret);
	}
	rc = jm__plan_scalar(key->value, key->name, r->err);
	if (rc)
		return rc;
	if (key->kind == JM_PLAN_DERIVED)
		return compute(r, key->value, ret);
	return filled(r, key->value, key->value->text, ret);
}

int jm__plan_value(const struct jm_plan_run *run, const struct jm_plan_point *point,
	const struct jm_plan_key *key, char **ret, struct jm_err *err)
{
	struct resolver r = {
		.run = run, .point = point, .err = err, .open = {key->name}, .depth = 1};

	return resolve(&r, key, ret);
}

static int add_text(struct resolver *r, const char *text, json_t *texts)
{
	return json_array_append_new(texts, json_string(text)) ? no_memory(r) : 0;
}

static int add_filled(
	struct resolver *r, const struct jm_yaml *node, const char *what, json_t *texts)
{
	char *text = NULL;
	int rc = jm__plan_scalar(node, what, r->err);

	if (!rc)
		rc = filled(r, node, node->text, &text);
	if (!rc)
		rc = add_text(r, text, texts);
	free(text);
	return rc;
}

/* "gpu.power=300W,400W" of {gpu.power: [300W, 400W]} */
static int add_pair(
	struct resolver *r, const struct jm_yaml *name, const struct jm_yaml *value, json_t *texts)
{
	json_t *values = json_array(), *one;
	char *made = NULL;
	size_t size = 0, i;
	FILE *out = open_memstream(&made, &size);
	int rc = out && values ? 0 : no_memory(r);

	if (value->kind == JM_YAML_SCALAR && !rc)
		rc = add_filled(r, value, name->text, values);
	else if (value->kind == JM_YAML_MAP && !rc)
		rc = jm__plan_scalar(value, name->text, r->err);
	for (int k = 0; value->kind == JM_YAML_LIST && k < value->n && !rc; k++)
		rc = add_filled(r, value->item[k], name->text, values);
	if (!rc && !json_array_size(values))
		rc = jm_yaml_fail(
			value, JM_EUSAGE, r->err, "The list of '%s' is empty.", name->text);
	if (out)
		fprintf(out, "%s=", name->text);
	json_array_foreach(values, i, one)
	{
		if (out)
			fprintf(out, "%s%s", i ? "," : "", json_string_value(one));
	}
	if (out && fclose(out) && !rc)
		rc = no_memory(r);
	if (!rc)
		rc = add_text(r, made, texts);
	free(made);
	json_decref(values);
	return rc;
}

/* Was the name in a stronger mapping of that key? */
static bool in_stronger(
	const struct jm_plan_run *run, const struct jm_plan_key *key, const char *name)
{
	for (const struct jm_plan_key *k = run->key; k < key; k++)
		if (!strcmp(k->name, key->name) && jm_yaml_get(k->value, name))
			return true;
	return false;
}

static int add_mapping(struct resolver *r, const struct jm_plan_key *key, json_t *texts)
{
	const struct jm_yaml *map = key->value;
	int rc = 0;

	for (int i = 0; i < map->n && !rc; i++)
		if (!in_stronger(r->run, key, map->key[i]->text))
			rc = add_pair(r, map->key[i], map->item[i], texts);
	return rc;
}

int jm_plan_texts(const struct jm_plan_run *run, const struct jm_plan_point *point,
	const struct jm_plan_key *key, json_t *ret_texts, struct jm_err *err)
{
	struct resolver r = {
		.run = run, .point = point, .err = err, .open = {key->name}, .depth = 1};
	char *text = NULL;
	int rc = 0;

	if (key->axis < 0 && key->value->kind == JM_YAML_MAP)
		return add_mapping(&r, key, ret_texts);
	if (key->axis < 0 && key->value->kind == JM_YAML_LIST) {
		for (int i = 0; i < key->value->n && !rc; i++)
			rc = add_filled(&r, key->value->item[i], key->name, ret_texts);
		return rc;
	}
	rc = resolve(&r, key, &text);
	if (!rc)
		rc = add_text(&r, text, ret_texts);
	free(text);
	return rc;
}

/* ---- commands ---- */

static int add_word(
	struct resolver *r, const struct jm_yaml *where, const char *word, json_t *words)
{
	char *text = NULL;
	int rc;

	if (!r->point)
		return add_text(r, word, words);
	rc = filled(r, where, word, &text);
	if (!rc)
		rc = add_text(r, text, words);
	free(text);
	return rc;
}

/* The next word of a line, with quotes as in a shell but without its other syntax; false: a quote
 * is not closed. */
static bool next_word(const char **s, char *out, bool *ret_any)
{
	*s += strspn(*s, " \t\n");
	*ret_any = **s;
	while (**s && !strchr(" \t\n", **s)) {
		char quote = **s;

		if (quote != '\'' && quote != '"') {
			*out++ = *(*s)++;
			continue;
		}
		for (++*s; **s && **s != quote;)
			*out++ = *(*s)++;
		if (!**s)
			return false;
		++*s;
	}
	*out = '\0';
	return true;
}

static int split_command(struct resolver *r, const struct jm_yaml *line, json_t *words)
{
	char *word = malloc(strlen(line->text) + 1);
	const char *s = line->text;
	bool any = true;
	int rc = word ? 0 : no_memory(r);

	while (!rc && any) {
		if (!next_word(&s, word, &any))
			rc = jm_yaml_fail(line, JM_EUSAGE, r->err,
				"A quote is not closed in the command; write the command as a list "
				"of words if it needs one.");
		else if (any)
			rc = add_word(r, line, word, words);
	}
	free(word);
	return rc;
}

int jm_plan_command(const struct jm_plan_run *run, const struct jm_plan_point *point,
	json_t *ret_words, struct jm_err *err)
{
	struct resolver r = {.run = run, .point = point, .err = err};
	const struct jm_yaml *command = jm_plan_key(run, "command")->value;
	int rc = 0;

	if (command->kind == JM_YAML_SCALAR)
		return split_command(&r, command, ret_words);
	for (int i = 0; i < command->n && !rc; i++) {
		if (command->item[i]->kind != JM_YAML_SCALAR)
			return jm__plan_scalar(command->item[i], "command", err);
		rc = add_word(&r, command->item[i], command->item[i]->text, ret_words);
	}
	return rc;
}
