/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of JSON by tables of keys. */
#include "keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DEEPEST 16 /* objects within objects of any keys */

/* Where in the object a value is, as a chain on the stack: built into text for a refusal only. */
struct place {
	const struct place *above;
	const char *name; /* NULL = an element of a list */
	size_t index;
};

struct check {
	const char *what;
	struct jm_err *err;
};

static size_t put_place(const struct place *p, char *out, size_t size)
{
	size_t used = p->above ? put_place(p->above, out, size) : 0;

	if (used >= size)
		return used;
	if (p->name)
		return used + (size_t)snprintf(
				      out + used, size - used, "%s%.64s", used ? "." : "", p->name);
	return used + (size_t)snprintf(out + used, size - used, "[%zu]", p->index);
}

static const char *kind_of(const json_t *value)
{
	switch (json_typeof(value)) {
	case JSON_OBJECT:
		return "an object";
	case JSON_ARRAY:
		return "a list";
	case JSON_STRING:
		return "text";
	case JSON_INTEGER:
		return "an integer";
	case JSON_REAL:
		return "a number";
	case JSON_TRUE:
	case JSON_FALSE:
		return "true or false";
	default:
		return "null";
	}
}

static const char *wanted(const struct jm_key *key)
{
	static const char *const names[] = {
		[JM_KEY_TEXT] = "text",
		[JM_KEY_WORD] = "one of the words of that key",
		[JM_KEY_ID] = "an id of 32 hexadecimal digits",
		[JM_KEY_INTEGER] = "an integer",
		[JM_KEY_NUMBER] = "a number",
		[JM_KEY_FLAG] = "true or false",
		[JM_KEY_OBJECT] = "an object",
		[JM_KEY_TEXTS] = "a list of texts",
		[JM_KEY_NUMBERS] = "a list of numbers",
		[JM_KEY_LIST] = "a list of objects",
		[JM_KEY_LISTS] = "an object of lists of texts",
		[JM_KEY_SCALAR] = "a text, a number, true or false",
	};

	return names[key->type];
}

/* has: what is there in its place. */
static int refuse(
	const struct check *c, const struct place *p, const char *has, const struct jm_key *key)
{
	char place[256];

	put_place(p, place, sizeof(place));
	return jm_err_set(c->err, JM_EFORMAT,
		"The content of %s is damaged, or is not joulemark's: %s is %s, but %s%s is "
		"expected there.",
		c->what, place, has, wanted(key), key->flags & JM_KEY_NULL ? " or null" : "");
}

static bool in_range(const struct jm_key *key, double value)
{
	return isfinite(value) &&
	       ((key->min == 0 && key->max == 0) || (value >= key->min && value <= key->max));
}

static int check_number(
	const struct check *c, const struct place *p, const json_t *value, const struct jm_key *key)
{
	char has[64];

	if (!json_is_number(value) || (key->type == JM_KEY_INTEGER && !json_is_integer(value)))
		return refuse(c, p, kind_of(value), key);
	if (in_range(key, json_number_value(value)))
		return 0;
	snprintf(has, sizeof(has), "%.6g, which is out of range", json_number_value(value));
	return refuse(c, p, has, key);
}

static bool is_word(const struct jm_key *key, const char *text)
{
	for (const char *const *word = key->words; *word; word++)
		if (!strcmp(*word, text))
			return true;
	return false;
}

static int check_text(
	const struct check *c, const struct place *p, const json_t *value, const struct jm_key *key)
{
	const char *text = json_string_value(value);
	size_t n = json_string_length(value), most = JM_KEY_TEXT_MAX;

	if (!text)
		return refuse(c, p, kind_of(value), key);
	if (key->type == JM_KEY_TEXT && key->max > 0)
		most = (size_t)key->max;
	if (n > most)
		return refuse(c, p, "text that is too long", key);
	if (!n && key->flags & JM_KEY_NOT_EMPTY)
		return refuse(c, p, "empty", key);
	if ((key->type == JM_KEY_WORD && !is_word(key, text)) ||
		(key->type == JM_KEY_ID && (n != 32 || strspn(text, "0123456789abcdef") != n)))
		return refuse(c, p, "other text", key);
	return 0;
}

/* Single values, lists of them, and objects of these. */
static int check_free(const struct check *c, const struct place *p, const json_t *value, int depth,
	const struct jm_key *key)
{
	static const struct jm_key free_text = {.type = JM_KEY_TEXT};
	const json_t *one;
	const char *name;
	size_t i;
	int rc = 0;

	if (depth > DEEPEST)
		return refuse(c, p, "too deep", key);
	if (json_is_string(value))
		return check_text(c, p, value, &free_text);
	json_array_foreach(value, i, one)
	{
		const struct place at = {p, NULL, i};

		rc = rc ? rc : check_free(c, &at, one, depth + 1, key);
	}
	json_object_foreach((json_t *)value, name, one)
	{
		const struct place at = {p, name, 0};

		rc = rc ? rc : check_free(c, &at, one, depth + 1, key);
	}
	return rc;
}

static int check_keys(const struct check *c, const struct place *above, const json_t *object,
	const struct jm_key *keys);

static int check_element(
	const struct check *c, const struct place *p, const json_t *value, const struct jm_key *key)
{
	static const struct jm_key text = {.type = JM_KEY_TEXT}, object = {.type = JM_KEY_OBJECT},
				   number = {.type = JM_KEY_NUMBER};

	if (json_is_null(value) && key->flags & JM_KEY_NULLS)
		return 0;
	if (key->type == JM_KEY_TEXTS)
		return check_text(c, p, value, &text);
	if (key->type == JM_KEY_NUMBERS)
		return check_number(c, p, value, &number);
	return json_is_object(value) ? check_keys(c, p, value, key->keys)
				     : refuse(c, p, kind_of(value), &object);
}

static int check_list(
	const struct check *c, const struct place *p, const json_t *value, const struct jm_key *key)
{
	size_t most = key->max > 0 ? (size_t)key->max : JM_KEY_LIST_MAX, i;
	const json_t *one;
	int rc = 0;

	if (!json_is_array(value))
		return refuse(c, p, kind_of(value), key);
	if (json_array_size(value) > most)
		return refuse(c, p, "too long", key);
	if (!json_array_size(value) && key->flags & JM_KEY_NOT_EMPTY)
		return refuse(c, p, "empty", key);
	json_array_foreach(value, i, one)
	{
		const struct place at = {p, NULL, i};

		rc = check_element(c, &at, one, key);
		if (rc)
			break;
	}
	return rc;
}

static int check_lists(
	const struct check *c, const struct place *p, const json_t *value, const struct jm_key *key)
{
	static const struct jm_key texts = {.type = JM_KEY_TEXTS};
	const json_t *one;
	const char *name;
	int rc = 0;

	if (!json_is_object(value))
		return refuse(c, p, kind_of(value), key);
	json_object_foreach((json_t *)value, name, one)
	{
		const struct place at = {p, name, 0};

		rc = rc ? rc : check_list(c, &at, one, &texts);
	}
	return rc;
}

static int check_object(
	const struct check *c, const struct place *p, const json_t *value, const struct jm_key *key)
{
	if (!json_is_object(value))
		return refuse(c, p, kind_of(value), key);
	return key->keys ? check_keys(c, p, value, key->keys) : check_free(c, p, value, 0, key);
}

static int check_value(
	const struct check *c, const struct place *p, const json_t *value, const struct jm_key *key)
{
	if (json_is_null(value) && key->flags & JM_KEY_NULL)
		return 0;
	switch (key->type) {
	case JM_KEY_TEXT:
	case JM_KEY_WORD:
	case JM_KEY_ID:
		return check_text(c, p, value, key);
	case JM_KEY_INTEGER:
	case JM_KEY_NUMBER:
		return check_number(c, p, value, key);
	case JM_KEY_FLAG:
		return json_is_boolean(value) ? 0 : refuse(c, p, kind_of(value), key);
	case JM_KEY_OBJECT:
		return check_object(c, p, value, key);
	case JM_KEY_TEXTS:
	case JM_KEY_NUMBERS:
	case JM_KEY_LIST:
		return check_list(c, p, value, key);
	case JM_KEY_LISTS:
		return check_lists(c, p, value, key);
	case JM_KEY_SCALAR:
		if (json_is_string(value))
			return check_text(c, p, value, key);
		return json_is_number(value) || json_is_boolean(value)
			       ? 0
			       : refuse(c, p, kind_of(value), key);
	}
	return jm_err_set(c->err, JM_EBUG, "There is no type %d of a key.", (int)key->type);
}

static int check_keys(const struct check *c, const struct place *above, const json_t *object,
	const struct jm_key *keys)
{
	int rc = 0;

	for (const struct jm_key *key = keys; key->name && !rc; key++) {
		const json_t *value = json_object_get(object, key->name);
		const struct place at = {above, key->name, 0};

		if (value)
			rc = check_value(c, &at, value, key);
		else if (key->flags & JM_KEY_REQUIRED)
			rc = refuse(c, &at, "missing", key);
	}
	return rc;
}

int jm_keys_check(
	const struct jm_key *keys, const json_t *object, const char *what, struct jm_err *err)
{
	const struct check c = {what, err};

	if (!json_is_object(object))
		return jm_err_set(err, JM_EFORMAT,
			"The content of %s is damaged, or is not joulemark's: it is %s, but an "
			"object belongs there.",
			what, object ? kind_of(object) : "no JSON");
	return check_keys(&c, NULL, object, keys);
}

void jm_keys_drop_details(const struct jm_key *keys, json_t *object)
{
	for (const struct jm_key *key = keys; key->name; key++) {
		json_t *value = json_object_get(object, key->name), *one;
		size_t i;

		if (value && key->flags & JM_KEY_DETAIL)
			json_object_del(object, key->name);
		else if (value && key->type == JM_KEY_OBJECT && key->keys)
			jm_keys_drop_details(key->keys, value);
		else if (value && key->type == JM_KEY_LIST)
			json_array_foreach(value, i, one) jm_keys_drop_details(key->keys, one);
	}
}

static json_t *blank_value(const struct jm_key *key, unsigned int flags)
{
	if (key->flags & JM_KEY_NULL)
		return json_null();
	if (key->type == JM_KEY_LIST || key->type == JM_KEY_TEXTS || key->type == JM_KEY_NUMBERS)
		return json_array();
	if (key->type == JM_KEY_OBJECT)
		return key->keys ? jm_keys_blank(key->keys, flags) : json_object();
	return json_null();
}

json_t *jm_keys_blank(const struct jm_key *keys, unsigned int flags)
{
	json_t *blank = json_object();
	int rc = blank ? 0 : -1;

	for (const struct jm_key *key = keys; key->name; key++)
		if (!(key->flags & (JM_KEY_OPTIONAL | JM_KEY_OF_CASE)) || key->flags & flags)
			rc |= json_object_set_new(blank, key->name, blank_value(key, flags));
	if (!rc)
		return blank;
	json_decref(blank);
	return NULL;
}

static void each_below(const struct jm_key *keys, const char *above, jm_keys_fn *fn, void *arg)
{
	char path[256], inner[sizeof(path) + 4];

	for (const struct jm_key *key = keys; key->name; key++) {
		snprintf(path, sizeof(path), "%s%s", above, key->name);
		fn(arg, path, key);
		snprintf(inner, sizeof(inner), "%s%s.", path, key->type == JM_KEY_LIST ? "[]" : "");
		if (key->keys)
			each_below(key->keys, inner, fn, arg);
	}
}

void jm_keys_each(const struct jm_key *keys, jm_keys_fn *fn, void *arg)
{
	each_below(keys, "", fn, arg);
}

struct columns {
	jm_keys_fn *fn;
	void *arg;
};

static void tell_column(void *arg, const char *path, const struct jm_key *key)
{
	const struct columns *c = arg;

	if (key->column && !strstr(path, "[]"))
		c->fn(c->arg, path, key);
}

void jm_keys_columns(const struct jm_key *keys, jm_keys_fn *fn, void *arg)
{
	struct columns c = {fn, arg};

	jm_keys_each(keys, tell_column, &c);
}

const json_t *jm_keys_column(const struct jm_key *keys, const json_t *object, const char *column)
{
	for (const struct jm_key *key = keys; key->name; key++) {
		const json_t *value = json_object_get(object, key->name);

		if (key->column && !strcmp(key->column, column))
			return value;
		if (key->type == JM_KEY_OBJECT && key->keys)
			value = jm_keys_column(key->keys, value, column);
		else
			value = NULL;
		if (value)
			return value;
	}
	return NULL;
}
