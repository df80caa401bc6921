/* SPDX-License-Identifier: Apache-2.0 */
/* A table of keys as people and other programs read it: JSON Schema, and one line per key. */
#include "keys_schema.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *schema, *text;
} types[] = {
	[JM_KEY_TEXT] = {"string", "text"},
	[JM_KEY_WORD] = {"string", "word"},
	[JM_KEY_ID] = {"string", "id"},
	[JM_KEY_INTEGER] = {"integer", "integer"},
	[JM_KEY_NUMBER] = {"number", "number"},
	[JM_KEY_FLAG] = {"boolean", "true or false"},
	[JM_KEY_OBJECT] = {"object", "object"},
	[JM_KEY_TEXTS] = {"array", "list of texts"},
	[JM_KEY_NUMBERS] = {"array", "list of numbers"},
	[JM_KEY_LIST] = {"array", "list of objects"},
	[JM_KEY_LISTS] = {"object", "object of lists of texts"},
	[JM_KEY_SCALAR] = {"string", "text, number, true or false"},
};

static json_t *with_null(json_t *type, bool null)
{
	return null ? json_pack("[o, s]", type, "null") : type;
}

static json_t *words_of(const struct jm_key *key)
{
	json_t *words = json_array();

	for (const char *const *word = key->words; *word; word++)
		json_array_append_new(words, json_string(*word));
	if (key->flags & JM_KEY_NULL)
		json_array_append_new(words, json_null());
	return words;
}

static void set(json_t *object, const char *name, json_t *value)
{
	json_object_set_new(object, name, value);
}

static json_t *limit(double value)
{
	return value == floor(value) && fabs(value) < 1e15 ? json_integer((json_int_t)value)
							   : json_real(value);
}

static void add_limits(json_t *node, const struct jm_key *key)
{
	bool number = key->type == JM_KEY_INTEGER || key->type == JM_KEY_NUMBER;
	bool limited = number && (key->min != 0 || key->max != 0);

	if (limited && key->min > -JM_KEY_HUGE)
		set(node, "minimum", limit(key->min));
	if (limited && key->max < INT_MAX)
		set(node, "maximum", limit(key->max));
	if (key->type == JM_KEY_TEXT && key->max > 0)
		set(node, "maxLength", json_integer((json_int_t)key->max));
}

static json_t *node_of(const struct jm_key *key)
{
	json_t *node = json_object();

	if (key->type == JM_KEY_WORD)
		set(node, "enum", words_of(key));
	else if (key->type == JM_KEY_SCALAR)
		set(node, "type", json_pack("[s, s, s]", "string", "number", "boolean"));
	else
		set(node, "type",
			with_null(json_string(types[key->type].schema), key->flags & JM_KEY_NULL));
	if (key->type == JM_KEY_ID)
		set(node, "pattern", json_string("^[0-9a-f]{32}$"));
	add_limits(node, key);
	if (key->type == JM_KEY_TEXTS || key->type == JM_KEY_NUMBERS)
		set(node, "items",
			json_pack("{s:o}", "type",
				with_null(json_string(
						  key->type == JM_KEY_TEXTS ? "string" : "number"),
					key->flags & JM_KEY_NULLS)));
	if (key->type == JM_KEY_LIST)
		set(node, "items", jm_keys_schema(key->keys));
	if (key->type == JM_KEY_OBJECT && key->keys)
		json_object_update_missing_new(node, jm_keys_schema(key->keys));
	if (key->meaning)
		set(node, "description", json_string(key->meaning));
	if (key->unit)
		set(node, "unit", json_string(key->unit));
	return node;
}

json_t *jm_keys_schema(const struct jm_key *keys)
{
	json_t *required = json_array(), *properties = json_object();

	for (const struct jm_key *key = keys; key->name; key++) {
		if (!(key->flags & (JM_KEY_OPTIONAL | JM_KEY_OF_CASE)))
			json_array_append_new(required, json_string(key->name));
		set(properties, key->name, node_of(key));
	}
	return json_pack("{s:s, s:o, s:o}", "type", "object", "required", required, "properties",
		properties);
}

void jm_keys_type_text(const struct jm_key *key, char *out, size_t size)
{
	const char *null = key->flags & JM_KEY_NULL ? " or null" : "";
	int used = 0;

	if (key->type != JM_KEY_WORD) {
		snprintf(out, size, "%s%s", types[key->type].text, null);
		return;
	}
	for (const char *const *word = key->words; *word && used < (int)size; word++)
		used += snprintf(out + used, size - (size_t)used, "%s%s",
			word == key->words ? "" : ", ", *word);
	if (used < (int)size)
		snprintf(out + used, size - (size_t)used, "%s", null);
}
