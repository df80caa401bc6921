/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of the parts of tokenizer.json share: errors, values, lists of steps. */
#include "data/tokenizer/tokenizer_reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/printable.h"

/* ---- errors ---------------------------------------------------------------------------------- */

int jm__refuse(const struct jm__reader *r, int code, const char *fmt, ...)
{
	char what[380];
	va_list args;

	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	jm_text_tame(what);
	return jm_err_set(r->err, code, "Tokenizer %.100s cannot be used: %s.", r->t->name, what);
}

int jm__reader_no_memory(const struct jm__reader *r)
{
	return jm_err_set(r->err, JM_ENOMEM, "Out of memory for tokenizer %s.", r->t->name);
}

/* ---- values ---------------------------------------------------------------------------------- */

int jm__take_text(const struct jm__reader *r, const char *text, struct jm_bytes *to)
{
	size_t n = strlen(text), kept = 0;

	to->n = 0;
	if (!jm__bytes_reserve(to, n + 1))
		return jm__reader_no_memory(r);
	for (size_t i = 0; i < n; i++) {
		bool nul = r->nul && !strncmp(text + i, r->nul, 3);

		to->at[kept++] = (char)(nul ? '\0' : text[i]);
		i += nul ? 2 : 0;
	}
	to->n = kept;
	return 0;
}

int jm__take_member(const struct jm__reader *r, const json_t *object, const char *key,
	const char *part, struct jm_bytes *to)
{
	const char *text = json_string_value(json_object_get(object, key));

	if (!text)
		return jm__refuse(
			r, JM_EFORMAT, "'%s' in its '%s' is missing or no text", key, part);
	return jm__take_text(r, text, to);
}

int jm__take_flag(const struct jm__reader *r, const json_t *object, const char *key,
	const char *part, bool fallback, bool *ret)
{
	const json_t *value = json_object_get(object, key);

	if (value && !json_is_boolean(value) && !json_is_null(value))
		return jm__refuse(
			r, JM_EFORMAT, "'%s' in its '%s' is neither true nor false", key, part);
	*ret = json_is_boolean(value) ? json_is_true(value) : fallback;
	return 0;
}

int jm__take_pattern(const struct jm__reader *r, const json_t *object, const char *part,
	struct jm__regex **ret_regex, struct jm_bytes *ret_find)
{
	const json_t *pattern = json_object_get(object, "pattern");
	const char *regex = json_string_value(json_object_get(pattern, "Regex"));
	char why[300] = "";
	int code;

	if (!regex) {
		code = jm__take_member(r, pattern, "String", part, ret_find);
		if (!code && !ret_find->n)
			code = jm__refuse(r, JM_EFORMAT, "the pattern in its '%s' is empty", part);
		return code;
	}
	code = jm__take_text(r, regex, ret_find);
	if (!code)
		code = jm__regex_new(ret_find->at, ret_find->n, ret_regex, why, sizeof(why));
	ret_find->n = 0;
	if (code == JM_ENOMEM)
		return jm__reader_no_memory(r);
	return code ? jm__refuse(r, code, "in its '%s' %s", part, why) : 0;
}

/* ---- lists of steps -------------------------------------------------------------------------- */

static int each(struct jm__reader *r, const json_t *value, const char *part, const char *key,
	int depth, jm__step_fn *take)
{
	const char *type = json_string_value(json_object_get(value, "type"));
	const json_t *list = json_object_get(value, key), *one;
	size_t i;
	int code = 0;

	if (!type)
		return jm__refuse(r, JM_EFORMAT, "a step of its '%s' has no type", part);
	if (strcmp(type, "Sequence") != 0)
		return take(r, value, type);
	if (!json_is_array(list) || depth > 4)
		return jm__refuse(r, JM_EFORMAT, "'%s' in its '%s' is %s", key, part,
			depth > 4 ? "nested too deeply" : "missing or no list");
	json_array_foreach(list, i, one)
	{
		code = code ? code : each(r, one, part, key, depth + 1, take);
	}
	return code;
}

int jm__each_step(struct jm__reader *r, const char *part, const char *key, jm__step_fn *take)
{
	const json_t *value = json_object_get(r->root, part);

	return !value || json_is_null(value) ? 0 : each(r, value, part, key, 0, take);
}
