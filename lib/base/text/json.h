/* SPDX-License-Identifier: Apache-2.0 */
/* Records as JSON: unknown is null, and a key that is missing or of another kind is unknown. */
#ifndef JM_JSON_H
#define JM_JSON_H

#include <jansson.h>
#include <math.h>
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
