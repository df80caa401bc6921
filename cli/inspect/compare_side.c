/* SPDX-License-Identifier: Apache-2.0 */
/* FILE:NAME=VALUE,... of a command line, and the records that it selects. */
#include "compare_side.h"
#include "base/text/json.h"
#include "base/text/number.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int parse_filter(char *text, struct jm_filter *f, struct jm_err *err)
{
	char *rest = text, *one;

	while ((one = strsep(&rest, ","))) {
		char *equals = strchr(one, '=');

		if (!equals || equals == one || !equals[1])
			return jm_err_set(err, JM_EUSAGE,
				"A filter is NAME=VALUE, such as gpu.power=300W or id=4f2a; '%s' "
				"is not one.",
				one);
		if (f->n == JM_FILTERS_MAX)
			return jm_err_set(
				err, JM_EUSAGE, "A filter takes at most %d names.", JM_FILTERS_MAX);
		*equals = '\0';
		f->name[f->n] = one;
		f->value[f->n++] = equals + 1;
	}
	return 0;
}

/* If a file with the whole name exists, there is no filter. Otherwise the filter begins after the
 * last colon before the first '='. */
static int parse_side(const char *text, struct jm_given *g, struct jm_err *err)
{
	char *equals, *colon;

	g->text = strdup(text);
	if (!g->text)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the name of a file.");
	equals = strchr(g->text, '=');
	colon = equals ? memrchr(g->text, ':', (size_t)(equals - g->text)) : NULL;
	if (!colon || !access(text, F_OK))
		return 0;
	*colon = '\0';
	return parse_filter(colon + 1, &g->filter, err);
}

/* The first value of that name at any depth; NULL = there is none. */
static const json_t *find(const json_t *object, const char *name)
{
	const json_t *value, *found;
	size_t n = strlen(name);
	const char *key;

	json_object_foreach((json_t *)object, key, value)
	{
		if (!json_is_object(value) && !strncmp(key, name, n) && (!key[n] || key[n] == '@'))
			return value;
		found = json_is_object(value) ? find(value, name) : NULL;
		if (found)
			return found;
	}
	return NULL;
}

static bool has_value(const json_t *is, const char *wanted)
{
	double number;

	const json_t *one;
	size_t i;

	json_array_foreach(is, i, one)
	{
		if (has_value(one, wanted))
			return true;
	}
	if (json_is_string(is))
		return !strcmp(json_string_value(is), wanted);
	if (json_is_number(is))
		return jm_number_real(wanted, &number) && number == json_number_value(is);
	return json_is_boolean(is) && !strcmp(json_is_true(is) ? "yes" : "no", wanted);
}

static bool passes(const json_t *record, const struct jm_filter *f)
{
	const json_t *of_case = json_object_get(record, "case");

	for (int i = 0; i < f->n; i++) {
		const char *id = jm_json_text(record, "id");
		const json_t *value = json_object_get(of_case, f->name[i]);

		if (!strcmp(f->name[i], "id")) {
			if (!*id || strncmp(id, f->value[i], strlen(f->value[i])) != 0)
				return false;
			continue;
		}
		if (!value)
			value = find(json_object_get(of_case, "parameters"), f->name[i]);
		if (!value)
			value = json_object_get(record, f->name[i]);
		if (!value)
			value = find(json_object_get(record, "provenance"), f->name[i]);
		if (!has_value(value, f->value[i]))
			return false;
	}
	return true;
}

int jm_given_read(const char *text, struct jm_given *g, struct jm_err *err)
{
	const json_t *record;
	size_t i;
	int rc = parse_side(text, g, err);

	if (!rc)
		rc = jm_record_input_init(&g->in, false, err);
	if (!rc)
		rc = jm_record_input_add(&g->in, g->text, err);
	if (!rc)
		rc = jm_record_input_join(&g->in, NULL, err);
	if (rc)
		return rc;
	jm_record_input_warn(&g->in, "4, or 1 where a condition is met");
	g->kept = json_array();
	json_array_foreach(g->in.records, i, record) if (passes(record, &g->filter))
		json_array_append(g->kept, (json_t *)record);
	if (!json_array_size(g->kept))
		return jm_err_set(err, JM_ENOENT,
			"%s selects no record of %zu; the values of a filter must be written as in "
			"the record, which 'joulemark query' shows.",
			text, json_array_size(g->in.records));
	return 0;
}

void jm_given_done(struct jm_given *g)
{
	json_decref(g->kept);
	if (g->in.records)
		jm_record_input_done(&g->in);
	free(g->text);
}
