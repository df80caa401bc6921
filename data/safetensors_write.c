/* SPDX-License-Identifier: Apache-2.0 */
#include "data/safetensors_write.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/output.h"

struct jm_safetensors_sink {
	const char *path;
	FILE *f;
	uint64_t bytes; /* of the tensor so far */
	const struct jm_safetensor *tensor;
	int n;
	int *order; /* the tensors in the order of the file */
	char *header;
	uint64_t header_bytes; /* with the spaces that follow it */
	jm_safetensors_fn *give;
	void *arg;
	struct jm_err *err;
};

int jm_safetensors_put(
	struct jm_safetensors_sink *sink, const void *from, size_t bytes, struct jm_err *err)
{
	errno = 0;
	if (bytes && fwrite(from, bytes, 1, sink->f) != 1)
		return jm_err_set(err, JM_EIO,
			"Cannot write %s: %s; an older file stays as it was: make room, or name "
			"another file.",
			sink->path, strerror(errno ? errno : EIO));
	sink->bytes += bytes;
	return 0;
}

static uint64_t bytes_of(const struct jm_safetensor *t)
{
	return (uint64_t)jm_safetensor_count(t) * jm_safetensor_type_bytes(t->type);
}

/* Wide types first, each width in the given order. */
static int put_in_order(struct jm_safetensors_sink *s)
{
	int at = 0;

	s->order = calloc((size_t)s->n + 1, sizeof(*s->order));
	if (!s->order)
		return JM_ENOMEM;
	for (size_t width = 8; width; width--)
		for (int i = 0; i < s->n; i++)
			if (jm_safetensor_type_bytes(s->tensor[i].type) == width)
				s->order[at++] = i;
	return 0;
}

static json_t *row_of(const struct jm_safetensor *t, uint64_t at)
{
	json_t *shape = json_array();

	for (int i = 0; i < t->rank; i++)
		json_array_append_new(shape, json_integer(t->dim[i]));
	return json_pack("{s:s, s:o, s:[I, I]}", "dtype", jm_safetensor_type_name(t->type), "shape",
		shape, "data_offsets", (json_int_t)at, (json_int_t)at + (json_int_t)bytes_of(t));
}

/* NULL = out of memory, or a name is no UTF-8. */
static json_t *header_of(const struct jm_safetensors_sink *s, const json_t *notes)
{
	json_t *header = json_object();
	uint64_t at = 0;
	int bad = 0;

	if (notes)
		bad = json_object_set(header, "__metadata__", (json_t *)notes);
	for (int i = 0; i < s->n && !bad; i++) {
		const struct jm_safetensor *t = &s->tensor[s->order[i]];

		bad = json_object_set_new(header, t->name, row_of(t, at));
		at += bytes_of(t);
	}
	if (!bad)
		return header;
	json_decref(header);
	return NULL;
}

/* The header ends in spaces, so that the tensors are aligned. */
static int make_header(struct jm_safetensors_sink *s, const json_t *notes, struct jm_err *err)
{
	json_t *header = put_in_order(s) ? NULL : header_of(s, notes);
	size_t expected = (size_t)s->n + (notes ? 1 : 0), found = json_object_size(header);

	s->header = header ? json_dumps(header, JSON_COMPACT) : NULL;
	json_decref(header);
	if (!s->header)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the header of %s.", s->path);
	if (found != expected)
		return jm_err_set(err, JM_EUSAGE,
			"%s is not written: two of its tensors have the same name.", s->path);
	s->header_bytes = (strlen(s->header) + 7) / 8 * 8;
	return 0;
}

static int put_header(struct jm_safetensors_sink *s)
{
	const uint64_t length = htole64(s->header_bytes);
	size_t n = strlen(s->header);
	int code = jm_safetensors_put(s, &length, sizeof(length), s->err);

	if (!code)
		code = jm_safetensors_put(s, s->header, n, s->err);
	return code ? code : jm_safetensors_put(s, "       ", s->header_bytes - n, s->err);
}

static bool put_file(const void *what, FILE *f)
{
	struct jm_safetensors_sink *s = *(struct jm_safetensors_sink *const *)what;
	int code;

	s->f = f;
	code = put_header(s);
	for (int i = 0; i < s->n && !code; i++) {
		const struct jm_safetensor *t = &s->tensor[s->order[i]];

		s->bytes = 0;
		code = s->give(s->arg, s->order[i], s, s->err);
		if (!code && s->bytes != bytes_of(t))
			code = jm_err_set(s->err, JM_EBUG,
				"Tensor '%.100s' of %s has other bytes than its shape.", t->name,
				s->path);
	}
	return !code;
}

/* ret: NULL = the file gets its name */
static int write_file(const char *path, const struct jm_safetensor *tensor, int n,
	const json_t *notes, jm_safetensors_fn *give, void *arg, struct jm_output **ret,
	struct jm_err *err)
{
	struct jm_err own = JM_ERR_INIT;
	struct jm_safetensors_sink s = {.path = path,
		.tensor = tensor,
		.n = n,
		.give = give,
		.arg = arg,
		.err = err ? err : &own};
	const struct jm_safetensors_sink *sink = &s;
	int code;

	code = make_header(&s, notes, s.err);
	if (!code && !ret)
		code = jm_output_by(path, put_file, &sink, s.err);
	if (!code && ret)
		code = jm_output_begin(path, ret, s.err);
	if (!code && ret)
		code = jm_output_fill(*ret, put_file, &sink, s.err);
	free(s.order);
	free(s.header);
	return code && s.err->code ? s.err->code : code;
}

int jm_safetensors_write(const char *path, const struct jm_safetensor *tensor, int n,
	const json_t *notes, jm_safetensors_fn *give, void *arg, struct jm_err *err)
{
	return write_file(path, tensor, n, notes, give, arg, NULL, err);
}

int jm_safetensors_prepare(const char *path, const struct jm_safetensor *tensor, int n,
	const json_t *notes, jm_safetensors_fn *give, void *arg, struct jm_output **ret,
	struct jm_err *err)
{
	return write_file(path, tensor, n, notes, give, arg, ret, err);
}
