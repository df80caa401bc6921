/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sets/caption_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"

void jm_caption_table_done(struct jm_caption_table *t)
{
	free(t->bytes.at);
	free(t->at);
	*t = (struct jm_caption_table){0};
}

const char *jm_caption_name(const struct jm_caption_table *t, int64_t i)
{
	return t->bytes.at + t->at[i].name;
}

/* ---- adding ---------------------------------------------------------------------------------- */

static bool make_room(struct jm_caption_table *t)
{
	int64_t room = t->room ? 2 * t->room : 1024;
	struct jm_caption *at;

	if (t->n < t->room)
		return true;
	at = realloc(t->at, (size_t)room * sizeof(*at));
	if (!at)
		return false;
	t->at = at;
	t->room = room;
	return true;
}

int jm_caption_add(struct jm_caption_table *t, const char *file, const char *name, const char *text,
	size_t n, struct jm_err *err)
{
	size_t at = t->bytes.n, before = strlen(name) + 1;

	if (!make_room(t) || !jm__bytes_add(&t->bytes, name, before) ||
		!jm__bytes_add(&t->bytes, text, n))
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the captions of %s.", file);
	t->at[t->n] =
		(struct jm_caption){.name = at, .text = at + before, .n_text = n, .number = t->n};
	t->n++;
	return 0;
}

static int by_name(const void *a, const void *b, void *arg)
{
	const struct jm_caption *x = a, *y = b;
	const struct jm_caption_table *t = arg;
	int order = strcmp(t->bytes.at + x->name, t->bytes.at + y->name);

	return order ? order : (x->number > y->number) - (x->number < y->number);
}

void jm_caption_sort(struct jm_caption_table *t)
{
	if (t->n)
		qsort_r(t->at, (size_t)t->n, sizeof(*t->at), by_name, t);
}

/* A text, or a list of at least one. False: it is neither. */
static bool is_caption(const json_t *json)
{
	size_t i;
	const json_t *one;

	if (!json_is_array(json))
		return json_is_string(json);
	json_array_foreach(json, i, one) if (!json_is_string(one)) return false;
	return json_array_size(json) > 0;
}

static int add_json(struct jm_caption_table *t, const char *file, const char *name,
	const json_t *caption, struct jm_err *err)
{
	const json_t *one;
	int code = 0;
	size_t i;

	if (json_is_string(caption))
		return jm_caption_add(t, file, name, json_string_value(caption),
			json_string_length(caption), err);
	json_array_foreach(caption, i, one) if (!code) code =
		jm_caption_add(t, file, name, json_string_value(one), json_string_length(one), err);
	return code;
}

/* ---- metadata.jsonl -------------------------------------------------------------------------- */

static int add_line(struct jm_caption_table *t, const char *file, int64_t number,
	const json_t *line, struct jm_err *err)
{
	const json_t *caption = json_object_get(line, "text");
	const char *name = jm_json_text(line, "file_name");

	if (!caption)
		caption = json_object_get(line, "caption");
	if (!*name || !is_caption(caption))
		return jm_err_set(err, JM_EFORMAT,
			"Line %lld of %s is no object with \"file_name\" and \"text\" (or "
			"\"caption\"), a text or a list of texts; correct it.",
			(long long)number, file);
	return add_json(t, file, name, caption, err);
}

static int read_line(struct jm_caption_table *t, const char *file, int64_t number,
	const char *bytes, size_t n, struct jm_err *err)
{
	json_error_t why;
	json_t *line;
	int code;

	if (strspn(bytes, " \t\r\n") >= n)
		return 0;
	line = json_loadb(bytes, n, 0, &why);
	if (!line)
		return jm_err_set(err, JM_EFORMAT, "Line %lld of %s is no JSON: %s; correct it.",
			(long long)number, file, why.text);
	code = add_line(t, file, number, line, err);
	json_decref(line);
	return code;
}

int jm_caption_read_lines(struct jm_caption_table *t, const char *file, const char *bytes, size_t n,
	struct jm_err *err)
{
	const char *end = bytes + n;
	int code = 0;

	for (int64_t number = 1; bytes < end && !code; number++) {
		const char *stop = memchr(bytes, '\n', (size_t)(end - bytes));

		stop = stop ? stop : end;
		code = read_line(t, file, number, bytes, (size_t)(stop - bytes), err);
		bytes = stop + 1;
	}
	return code;
}

/* ---- captions.json --------------------------------------------------------------------------- */

/* Pictures by their id. */
struct ids {
	struct id {
		json_int_t id;
		const char *name;
	} * at;
	size_t n;
};

static int by_id(const void *a, const void *b)
{
	const struct id *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

static int damaged(
	const char *file, const char *list, size_t i, const char *what, struct jm_err *err)
{
	return jm_err_set(
		err, JM_EFORMAT, "Entry %zu of \"%s\" in %s %s; correct it.", i, list, file, what);
}

/* An entry may be there twice, but an id names one file. */
static int check_ids(const struct ids *ids, const char *file, struct jm_err *err)
{
	for (size_t i = 1; i < ids->n; i++) {
		const struct id *a = &ids->at[i - 1], *b = &ids->at[i];

		if (a->id == b->id && strcmp(a->name, b->name) != 0)
			return jm_err_set(err, JM_EFORMAT,
				"%s gives the \"id\" %lld to two pictures, %s and %s; correct it.",
				file, (long long)a->id, a->name, b->name);
	}
	return 0;
}

static int take_ids(struct ids *ids, const char *file, const json_t *images, struct jm_err *err)
{
	const json_t *one;
	size_t i;

	ids->at = calloc(json_array_size(images) + 1, sizeof(*ids->at));
	if (!ids->at)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the captions of %s.", file);
	json_array_foreach(images, i, one)
	{
		const json_t *id = json_object_get(one, "id");
		const char *name = jm_json_text(one, "file_name");

		if (!json_is_integer(id) || !*name)
			return damaged(file, "images", i, "has no \"id\" or no \"file_name\"", err);
		ids->at[ids->n++] = (struct id){json_integer_value(id), name};
	}
	qsort(ids->at, ids->n, sizeof(*ids->at), by_id);
	return check_ids(ids, file, err);
}

static int take_captions(struct jm_caption_table *t, const struct ids *ids, const char *file,
	const json_t *annotations, struct jm_err *err)
{
	const json_t *one;
	int code = 0;
	size_t i;

	json_array_foreach(annotations, i, one)
	{
		struct id key = {.id = json_integer_value(json_object_get(one, "image_id"))};
		const json_t *caption = json_object_get(one, "caption");
		const struct id *found = bsearch(&key, ids->at, ids->n, sizeof(*ids->at), by_id);

		if (!json_is_integer(json_object_get(one, "image_id")) || !found ||
			!json_is_string(caption))
			return damaged(file, "annotations", i,
				"has no \"caption\", or no \"image_id\" that \"images\" has", err);
		code = code ? code : add_json(t, file, found->name, caption, err);
	}
	return code;
}

int jm_caption_read_coco(struct jm_caption_table *t, const char *file, const char *bytes, size_t n,
	struct jm_err *err)
{
	json_error_t why;
	json_t *root = json_loadb(bytes, n, 0, &why);
	const json_t *images = json_object_get(root, "images");
	const json_t *annotations = json_object_get(root, "annotations");
	struct ids ids = {0};
	int code = 0;

	if (!root)
		code = jm_err_set(
			err, JM_EFORMAT, "%s is no JSON: %s; correct it.", file, why.text);
	else if (!json_is_array(images) || !json_is_array(annotations))
		code = jm_err_set(err, JM_EFORMAT,
			"%s has no lists \"images\" and \"annotations\", as the captions of COCO "
			"have; correct it, or write metadata.jsonl.",
			file);
	if (!code)
		code = take_ids(&ids, file, images, err);
	if (!code)
		code = take_captions(t, &ids, file, annotations, err);
	free(ids.at);
	json_decref(root);
	return code;
}
