/* SPDX-License-Identifier: Apache-2.0 */
#include "value_stream.h"
#include "write_values.h"
#include "engine/graph/tensor.h"

#include <stdlib.h>
#include <sys/param.h>

#define PIECE ((size_t)64 << 20)

int jm_value_stream_open(struct jm_value_stream *s, struct jm_program *p, struct jm_err *err)
{
	int code;

	*s = (struct jm_value_stream){.p = p, .piece_bytes = PIECE};
	code = jm_event_new(p->device, &s->piece[0].taken, err);
	return code ? code : jm_event_new(p->device, &s->piece[1].taken, err);
}

bool jm_value_stream_takes(const struct jm_tensor *t)
{
	return !t->layout.rank;
}

/* What is sent of one tensor. */
struct sending {
	struct jm_value_stream *s;
	struct jm_tensor *t, *scale; /* scale: the factors of its rows; NULL = values are its own */
	jm_values_fn *fn;
	void *arg;
	int64_t width;	  /* of a row; without factors 1 */
	char *values;	  /* of a piece, before they are rounded; NULL without factors */
	int64_t at, most; /* the first element, and how many a piece has */
	bool is_direct;
};

/* The next piece that the device no longer reads. */
static int next_piece(struct jm_value_stream *s, struct jm_value_piece **ret, struct jm_err *err)
{
	struct jm_value_piece *piece = &s->piece[s->now ^= 1];

	if (!piece->host)
		piece->host = jm_device_pinned_alloc(s->p->device, s->piece_bytes);
	if (!piece->host)
		return jm_err_set(err, JM_ENOMEM, "Out of pinned memory for values of tensors.");
	*ret = piece;
	return jm_event_wait(&piece->taken, err);
}

/* Values to `to` and, where rows have them, factors to `factors`. */
static int make(const struct sending *a, int64_t first, int64_t n, char *to, float *factors,
	struct jm_err *err)
{
	int code = a->fn(a->arg, first, n, a->scale ? a->values : to, err);

	if (!code && a->scale)
		jm_quantize_rows(a->s->p->graph->compute, a->values, n / a->width, a->width,
			(uint8_t *)to, factors);
	return code;
}

static int send_piece(const struct sending *a, int64_t first, int64_t n, struct jm_err *err)
{
	struct jm_device *d = a->s->p->device;
	size_t size = jm_dtype_bytes(a->t->type), bytes = (size_t)n * size;
	size_t rows = (size_t)(n / a->width) * sizeof(float);
	char *to = (char *)a->t->data + (size_t)(a->at + first) * size;
	char *factors = a->scale ? (char *)a->scale->data +
					   (size_t)((a->at + first) / a->width) * sizeof(float)
				 : NULL;
	struct jm_value_piece *piece = NULL;
	int code;

	if (a->is_direct)
		return make(a, first, n, to, (float *)factors, err);
	code = next_piece(a->s, &piece, err);
	if (!code)
		code = make(a, first, n, piece->host + (a->scale ? rows : 0), (float *)piece->host,
			err);
	if (!code && a->scale)
		code = jm_device_copy(
			d, JM_QUEUE_COPY, factors, piece->host, rows, JM_TO_DEVICE, err);
	if (!code)
		code = jm_device_copy(d, JM_QUEUE_COPY, to, piece->host + (a->scale ? rows : 0),
			bytes, JM_TO_DEVICE, err);
	return code ? code : jm_event_record(&piece->taken, JM_QUEUE_COPY, err);
}

static int send_all(const struct sending *a, int64_t count, struct jm_err *err)
{
	int code = 0;

	for (int64_t i = 0; i < count && !code; i += a->most)
		code = send_piece(a, i, MIN(a->most, count - i), err);
	return code;
}

int jm_value_stream_send(struct jm_value_stream *s, struct jm_tensor *t, int64_t at, int64_t count,
	jm_values_fn *fn, void *arg, struct jm_err *err)
{
	struct sending a = {.s = s,
		.t = t,
		.scale = jm_graph_cell(s->p->graph, t)->scale,
		.fn = fn,
		.arg = arg,
		.width = 1,
		.at = at,
		.most = (int64_t)(s->piece_bytes / jm_dtype_bytes(t->type)),
		.is_direct = s->p->device->props.host_memory && !jm_device_is_async(s->p->device)};
	int code = 0;

	s->p->weights->written += t->class == JM_CLASS_PARAM;
	if (a.scale) {
		a.width = jm_tensor_count(t) / t->dim[0];
		a.most = (int64_t)(s->piece_bytes / ((size_t)a.width + sizeof(float))) * a.width;
		a.values =
			malloc((size_t)MIN(a.most, count) * jm_dtype_bytes(s->p->graph->compute));
		if (!a.values || !a.most)
			code = jm_err_set(
				err, JM_ENOMEM, "Out of memory for the values of %s.", t->name);
	} else if (a.is_direct) {
		a.most = MAX(count, 1);
	}
	if (!code)
		code = send_all(&a, count, err);
	free(a.values);
	return code;
}

int jm_value_stream_end(struct jm_value_stream *s, struct jm_err *err)
{
	return jm_device_sync(s->p->device, err);
}

void jm_value_stream_close(struct jm_value_stream *s)
{
	if (s->p)
		jm_device_sync(s->p->device, NULL); /* after an error it may still take a piece */
	for (int i = 0; i < 2 && s->p; i++) {
		jm_event_drop(&s->piece[i].taken);
		jm_device_pinned_release(s->p->device, s->piece[i].host);
	}
	*s = (struct jm_value_stream){0};
}
