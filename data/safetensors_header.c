/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a safetensors file: JSON that says where each tensor is. */
#include "data/safetensors_header.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTES "__metadata__"

static const struct {
	const char *name;
	size_t bytes;
} types[] = {
#define X(name, bytes) {#name, bytes},
	JM_SAFETENSOR_TYPES(X)
#undef X
};

const char *jm_safetensor_type_name(enum jm_safetensor_type type)
{
	return types[type].name;
}

size_t jm_safetensor_type_bytes(enum jm_safetensor_type type)
{
	return types[type].bytes;
}

int64_t jm_safetensor_count(const struct jm_safetensor *t)
{
	int64_t n = 1;

	for (int i = 0; i < t->rank; i++)
		n *= t->dim[i];
	return n;
}

const char *jm_safetensor_shape(const struct jm_safetensor *t, char *ret, size_t size)
{
	size_t n = (size_t)snprintf(ret, size, "[");

	for (int i = 0; i < t->rank && n < size; i++)
		n += (size_t)snprintf(
			ret + n, size - n, "%s%lld", i ? ", " : "", (long long)t->dim[i]);
	if (n < size)
		snprintf(ret + n, size - n, "]");
	return ret;
}

/* ---- one tensor ------------------------------------------------------------------------------ */

static int broken(
	const char *file, const struct jm_safetensor *t, struct jm_err *err, const char *what)
{
	return jm_err_set(err, JM_EFORMAT,
		"%s is damaged: tensor '%.100s' %s; copy the file again.", file, t->name, what);
}

static int read_type(
	const char *file, const json_t *row, struct jm_safetensor *t, struct jm_err *err)
{
	const char *name = json_string_value(json_object_get(row, "dtype"));

	for (int i = 0; name && i < JM_SAFETENSOR_TYPE_COUNT; i++)
		if (!strcmp(name, types[i].name)) {
			t->type = (enum jm_safetensor_type)i;
			return 0;
		}
	if (!name)
		return broken(file, t, err, "has no 'dtype'");
	return jm_err_set(err, JM_EFORMAT,
		"Tensor '%.100s' of weights %s is of type '%.20s', which is unknown; convert it to "
		"F32 or BF16.",
		t->name, file, name);
}

/* t->bytes from the shape and the type. */
static int read_shape(
	const char *file, const json_t *row, struct jm_safetensor *t, struct jm_err *err)
{
	const json_t *shape = json_object_get(row, "shape");
	const size_t rank = json_array_size(shape);

	if (!json_is_array(shape) || rank > JM_SAFETENSOR_DIMS)
		return broken(file, t, err, "has no 'shape' of at most 8 numbers");
	t->rank = (int)rank;
	t->bytes = types[t->type].bytes;
	for (int i = 0; i < t->rank; i++) {
		const json_t *dim = json_array_get(shape, (size_t)i);

		t->dim[i] = json_integer_value(dim);
		if (!json_is_integer(dim) || t->dim[i] < 0 ||
			__builtin_mul_overflow(t->bytes, (uint64_t)t->dim[i], &t->bytes) ||
			t->bytes > INT64_MAX)
			return broken(file, t, err, "has an impossible shape");
	}
	return 0;
}

static int read_place(
	const char *file, const json_t *row, struct jm_safetensor *t, struct jm_err *err)
{
	const json_t *places = json_object_get(row, "data_offsets");
	const json_t *from = json_array_get(places, 0), *to = json_array_get(places, 1);

	if (json_array_size(places) != 2 || !json_is_integer(from) || !json_is_integer(to) ||
		json_integer_value(from) < 0 || json_integer_value(to) < json_integer_value(from))
		return broken(
			file, t, err, "has no 'data_offsets' of two numbers that do not fall");
	t->at = (uint64_t)json_integer_value(from);
	if ((uint64_t)json_integer_value(to) - t->at != t->bytes)
		return broken(file, t, err, "has other bytes than its type and shape need");
	return 0;
}

static int read_tensor(const char *file, const char *name, const json_t *row,
	struct jm_safetensor *t, struct jm_err *err)
{
	int code;

	t->name = name;
	if (!json_is_object(row))
		return broken(file, t, err, "is not described by an object");
	code = read_type(file, row, t, err);
	if (!code)
		code = read_shape(file, row, t, err);
	return code ? code : read_place(file, row, t, err);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
	const struct jm_safetensor *x = a, *y = b;

	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty ones lie before others */
}

/* The tensors fill the rest of the file; then t->at counts from the file's first byte. */
static int check_places(const char *file, struct jm_safetensor *t, int n, uint64_t data,
	uint64_t file_bytes, struct jm_err *err)
{
	uint64_t end = 0;

	qsort(t, (size_t)n, sizeof(*t), by_place);
	for (int i = 0; i < n; i++) {
		if (t[i].at != end)
			return broken(file, &t[i], err,
				t[i].at < end ? "overlaps another" : "lies behind a gap");
		if (t[i].bytes > file_bytes - data - end)
			return broken(file, &t[i], err,
				"extends beyond the end of the file, which was not copied "
				"completely");
		end += t[i].bytes;
		t[i].at += data;
	}
	if (end != file_bytes - data)
		return jm_err_set(err, JM_EFORMAT,
			"%s is damaged: %llu bytes follow the last tensor; copy the file "
			"again.",
			file, (unsigned long long)(file_bytes - data - end));
	return 0;
}

static int add_tensors(const char *file, json_t *header, size_t n_json, uint64_t file_bytes,
	struct jm_safetensors *s, struct jm_err *err)
{
	size_t most = (size_t)s->n + json_object_size(header);
	struct jm_safetensor *more = realloc(s->tensor, (most + 1) * sizeof(*more));
	const char *name;
	json_t *row;
	int n = s->n, code = 0;

	if (!more)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the tensors of %s.", file);
	s->tensor = more;
	json_object_foreach(header, name, row)
	{
		if (!strcmp(name, NOTES))
			continue;
		more[n] = (struct jm_safetensor){.file = s->n_files};
		code = read_tensor(file, name, row, &more[n++], err);
		if (code)
			return code;
	}
	code = check_places(file, more + s->n, n - s->n, 8 + n_json, file_bytes, err);
	if (!code)
		s->n = n;
	return code;
}

int jm_safetensors_header(const char *name, const char *json, size_t n, uint64_t file_bytes,
	struct jm_safetensors *s, json_t **ret_header, struct jm_err *err)
{
	json_error_t why;
	json_t *header = json_loadb(json, n, JSON_REJECT_DUPLICATES, &why);
	int code;

	if (!json_is_object(header)) {
		code = jm_err_set(err, JM_EFORMAT,
			"%s is damaged: its header is not an object of JSON (%.100s); "
			"copy the file again.",
			name, header ? "it has another type" : why.text);
		json_decref(header);
		return code;
	}
	code = add_tensors(name, header, n, file_bytes, s, err);
	if (code)
		json_decref(header);
	else
		*ret_header = header;
	return code;
}

const char *jm_safetensors_note(const struct jm_safetensors *s, const char *key)
{
	if (!s->n_files)
		return NULL;
	return json_string_value(json_object_get(json_object_get(s->file[0].header, NOTES), key));
}
