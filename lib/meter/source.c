/* SPDX-License-Identifier: Apache-2.0 */
/* What the user writes of a source: a list of them, and the options of each. */
#include "meter/source.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/member.h"

JM_DEFINE_FIND(source)

/* The '=' of "key=value"; NULL = the part has no key. */
static const char *equals_of(const char *part)
{
	size_t n = strspn(part, "abcdefghijklmnopqrstuvwxyz-");

	return n && part[n] == '=' ? part + n : NULL;
}

/* Is this part of a list an option of the source before it? */
static bool is_option(const char *part)
{
	return isdigit((unsigned char)*part) || equals_of(part);
}

size_t jm_source_length(const char *list)
{
	size_t n = strcspn(list, ",");

	while (list[n] && is_option(list + n + 1))
		n += 1 + strcspn(list + n + 1, ",");
	return n;
}

/* The rows of the options as "KEY=VALUE,..."; a yes-or-no row is its name. */
static void options_text(const struct jm_source *source, char *ret, size_t size)
{
	size_t used = 0;

	ret[0] = '\0';
	for (const struct jm_option *o = source->options; o && o->name && used < size; o++)
		used += (size_t)snprintf(ret + used, size - used, "%s%s%s%s", used ? "," : "",
			o->name, o->type == JM_FLAG ? "" : "=",
			o->type == JM_FLAG ? "" : (o->argument ? o->argument : "VALUE"));
}

/* The row that a value without a key belongs to; NULL = all have a value. */
static const struct jm_option *next_row(const struct jm_values *v)
{
	for (int i = 0; i < v->n; i++)
		if (!v->value[i].given && v->value[i].option->type != JM_FLAG)
			return v->value[i].option;
	return NULL;
}

static int set_option(
	const struct jm_source *source, struct jm_values *v, char *part, struct jm_err *err)
{
	char *equals = (char *)equals_of(part), known[256];
	const struct jm_value *named = jm_values_get(v, part);
	const struct jm_option *row = next_row(v);

	options_text(source, known, sizeof(known));
	if (equals) {
		*equals = '\0';
		if (jm_values_get(v, part))
			return jm_values_set(v, part, equals + 1, err);
		return jm_err_set(err, JM_EUSAGE,
			"The source %s has no option '%s'; it takes %s:%s.", source->name, part,
			source->name, known);
	}
	if (named && named->option->type == JM_FLAG)
		return jm_values_set(v, part, "yes", err);
	if (row)
		return jm_values_set(v, row->name, part, err);
	return jm_err_set(err, JM_EUSAGE, "The source %s does not take '%s'; it takes %s:%s.",
		source->name, part, source->name, known);
}

static int set_options(
	const struct jm_source *source, struct jm_values *v, char *text, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	int rc = 0, dashes;

	for (char *next; !rc && text; text = next) {
		next = strchr(text, ',');
		if (next)
			*next++ = '\0';
		rc = set_option(source, v, text, &why);
	}
	if (!rc)
		return 0;
	/* "--core: 'x' is not a number": an option of a source is written without dashes */
	dashes = strncmp(why.text, "--", 2) ? 0 : 2;
	return jm_err_set(
		err, rc, "--source %s%s%s", source->name, dashes ? ":" : ": ", why.text + dashes);
}

int jm_source_open(const struct jm_source *source, struct jm_ctx *ctx, const char *options,
	struct jm_meters *set, void **ret_state, struct jm_err *err)
{
	struct jm_values values;
	char *copy;
	int rc;

	if (*options && !source->options)
		return jm_err_set(err, JM_EUSAGE, "The source %s takes no options ('%s').",
			source->name, options);
	copy = strdup(options);
	if (!copy)
		return jm_err_set(
			err, JM_ENOMEM, "Out of memory for the options of %s.", source->name);
	rc = jm_values_init(&values, source->options, err);
	if (!rc && *copy)
		rc = set_options(source, &values, copy, err);
	if (!rc)
		rc = source->open(ctx, &values, set, ret_state, err);
	jm_values_done(&values);
	free(copy);
	return rc;
}
