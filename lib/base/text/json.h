/* SPDX-License-Identifier: Apache-2.0 */
/* Records as JSON: unknown is null, and a key that is missing or of another kind is unknown. */
#ifndef JM_JSON_H
#define JM_JSON_H

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* null for NAN and infinities. */
static inline json_t *jm_json_number(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

/* NAN unless it is a number. */
static inline double jm_json_real(const json_t *json)
{
	return json_is_number(json) ? json_number_value(json) : NAN;
}

static inline double jm_json_real_of(const json_t *object, const char *key)
{
	return jm_json_real(json_object_get(object, key));
}

/* "" unless it is text. */
static inline const char *jm_json_text(const json_t *object, const char *key)
{
	const char *value = json_string_value(json_object_get(object, key));

	return value ? value : "";
}

/* Each sets a key of an object that is whole or NULL: when memory runs out, or a value is NULL, it
 * frees the object and makes it NULL, and the following calls only free their value. */
static inline void jm_json_set(json_t **object, const char *key, json_t *value)
{
	if (!json_object_set_new(*object, key, value))
		return;
	json_decref(*object);
	*object = NULL;
}

/* text: NULL = null */
static inline void jm_json_set_text(json_t **object, const char *key, const char *text)
{
	jm_json_set(object, key, text ? json_string(text) : json_null());
}

/* Text that is said; null where it is NULL or empty. */
static inline json_t *jm_json_said(const char *text)
{
	return text && *text ? json_string(text) : json_null();
}

static inline void jm_json_set_int(json_t **object, const char *key, json_int_t value)
{
	jm_json_set(object, key, json_integer(value));
}

static inline void jm_json_set_number(json_t **object, const char *key, double value)
{
	jm_json_set(object, key, jm_json_number(value));
}

static inline void jm_json_set_bool(json_t **object, const char *key, bool value)
{
	jm_json_set(object, key, json_boolean(value));
}

/* The first object of a list whose key has this text; NULL = there is none. */
static inline json_t *jm_json_find(const json_t *list, const char *key, const char *text)
{
	json_t *one;
	size_t i;

	json_array_foreach(list, i, one)
	{
		if (!strcmp(jm_json_text(one, key), text))
			return one;
	}
	return NULL;
}

#endif
