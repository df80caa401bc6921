/* SPDX-License-Identifier: Apache-2.0 */
#include "weights_save.h"
#include "data/safetensors_write.h"
#include "data/safetensors_folder.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/files/output.h"

#include "engine/graph/optimizer.h"
#include "engine/graph/tensor.h"
#include "whole_tensor.h"

#define CHUNK ((size_t)1 << 20)

struct save {
	struct jm_program *p;
	struct jm_whole whole; /* its items are the cells of the graph */
	const struct jm_weights_source *source;
	struct jm_weight_part *part;
	int n_parts;
	struct jm_safetensor *tensor;	 /* n_parts, then the counters of batches */
	char (*counter)[JM_WEIGHT_NAME]; /* their names */
	int64_t *batches;		 /* their values */
	int n_counters;
	int n;
	void *data; /* values of `of` */
	const struct jm_tensor *of;
};

/* The tensor of the file that a frozen part is copied from; NULL = it is none. */
static const struct jm_safetensor *origin_of(
	const struct save *s, const struct jm_weight_part *part)
{
	const struct jm_weights_source *source = s->source;

	if (!source->from || !jm_graph_cell(s->p->graph, part->tensor)->frozen)
		return NULL;
	return jm_weights_part_in(source->from, source->found, part);
}

static enum jm_safetensor_type type_of(enum jm_dtype type)
{
	return type == JM_F32	 ? JM_SAFETENSOR_F32
	       : type == JM_BF16 ? JM_SAFETENSOR_BF16
	       : type == JM_F16	 ? JM_SAFETENSOR_F16
				 : JM_SAFETENSOR_F64;
}

/* ---- the list -------------------------------------------------------------------------------- */

static void list_part(struct save *s, const struct jm_weight_part *part)
{
	const struct jm_safetensor *origin = origin_of(s, part);
	struct jm_safetensor *t = &s->tensor[s->n++];

	t->name = part->name;
	t->type = origin ? origin->type : type_of(s->whole.item[part->tensor->id].t.type);
	t->rank = part->rank;
	memcpy(t->dim, part->dim, sizeof(part->dim));
}

/* A frozen norm has counted what it had in the file of its values. */
static int count_batches(const struct save *s, const struct jm_weight_part *part, const char *name,
	int64_t *ret, struct jm_err *err)
{
	const struct jm_weights_source *source = s->source;
	const struct jm_safetensor *t;

	*ret = source->batches;
	if (!jm_graph_cell(s->p->graph, part->tensor)->frozen)
		return 0;
	*ret = 0;
	t = source->from ? jm_safetensors_find(source->from, name) : NULL;
	if (!t || t->type != JM_SAFETENSOR_I64 || jm_safetensor_count(t) != 1)
		return 0;
	return jm_safetensors_read(source->from, t, 0, ret, sizeof(*ret), err);
}

/* Each batch norm counts its batches. */
static int list_counters(struct save *s, struct jm_err *err)
{
	int code = 0;

	for (int i = 0; i < s->n_parts && !code; i++) {
		char *name = s->counter[s->n_counters];

		if (!jm_weights_counter(s->part[i].name, name))
			continue;
		s->tensor[s->n++] = (struct jm_safetensor){.name = name, .type = JM_SAFETENSOR_I64};
		code = count_batches(s, &s->part[i], name, &s->batches[s->n_counters++], err);
	}
	return code;
}

static int list_all(struct save *s, struct jm_network network, struct jm_err *err)
{
	int code = jm_weight_parts(
		s->p->graph, network.model->weights, network.dims, &s->part, &s->n_parts, err);

	if (code)
		return code;
	s->tensor = calloc(2 * (size_t)s->n_parts + 1, sizeof(*s->tensor));
	s->counter = calloc((size_t)s->n_parts + 1, sizeof(*s->counter));
	s->batches = calloc((size_t)s->n_parts + 1, sizeof(*s->batches));
	if (!s->tensor || !s->counter || !s->batches)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the names of weights.");
	for (int i = 0; i < s->n_parts; i++)
		list_part(s, &s->part[i]);
	return list_counters(s, err);
}

/* ---- values ---------------------------------------------------------------------------------- */

static int copy_origin(const struct save *s, const struct jm_safetensor *t,
	struct jm_safetensors_sink *sink, struct jm_err *err)
{
	void *chunk = malloc(CHUNK);
	int code = chunk ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for weights.");

	for (uint64_t at = 0, n; at < t->bytes && !code; at += n) {
		n = t->bytes - at < CHUNK ? t->bytes - at : CHUNK;
		code = jm_safetensors_read(s->source->from, t, at, chunk, n, err);
		if (!code)
			code = jm_safetensors_put(sink, chunk, n, err);
	}
	free(chunk);
	return code;
}

/* The values of the whole tensor; parts of one follow each other, so it is read once. */
static int fetch(struct save *s, const struct jm_tensor *t, struct jm_err *err)
{
	if (s->of == t)
		return 0;
	free(s->data);
	s->of = NULL;
	s->data = malloc(jm_whole_bytes(&s->whole, t->id));
	if (!s->data)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for weights.");
	s->of = t;
	return jm_whole_read(&s->whole, t->id, 0, jm_whole_count(&s->whole, t->id), s->data, err);
}

/* [rows, width] -> [width, rows] */
static int put_transposed(const struct jm_weight_part *part, const char *from, size_t size,
	struct jm_safetensors_sink *sink, struct jm_err *err)
{
	size_t rows = (size_t)part->rows, width = (size_t)part->width;
	char *column = malloc(rows * size + 1);
	int code = column ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for weights.");

	for (size_t c = 0; c < width && !code; c++) {
		for (size_t r = 0; r < rows; r++)
			memcpy(column + r * size, from + (r * width + c) * size, size);
		code = jm_safetensors_put(sink, column, rows * size, err);
	}
	free(column);
	return code;
}

static int put_part(struct save *s, const struct jm_weight_part *part,
	struct jm_safetensors_sink *sink, struct jm_err *err)
{
	const struct jm_tensor *t = part->tensor;
	size_t size = jm_dtype_bytes(s->whole.item[t->id].t.type);
	size_t row = (size_t)part->width * size;
	int code = fetch(s, t, err);
	const char *from;

	if (code)
		return code;
	from = (const char *)s->data + (size_t)part->row * row;
	if (part->transposed)
		return put_transposed(part, from, size, sink, err);
	return jm_safetensors_put(sink, from, (size_t)part->rows * row, err);
}

static int give(void *arg, int i, struct jm_safetensors_sink *sink, struct jm_err *err)
{
	struct save *s = arg;
	const struct jm_safetensor *origin;

	if (i >= s->n_parts)
		return jm_safetensors_put(
			sink, &s->batches[i - s->n_parts], sizeof(*s->batches), err);
	origin = origin_of(s, &s->part[i]);
	return origin ? copy_origin(s, origin, sink, err) : put_part(s, &s->part[i], sink, err);
}

/* ---- folders --------------------------------------------------------------------------------- */

static bool is_folder(const char *path)
{
	size_t n = strlen(path);
	struct stat st;

	return (n && path[n - 1] == '/') || (!stat(path, &st) && S_ISDIR(st.st_mode));
}

/* FOLDER/name */
static int name_file(const char *folder, const char *name, char ret[PATH_MAX], struct jm_err *err)
{
	size_t n = strlen(folder);
	const char *slash = n && folder[n - 1] == '/' ? "" : "/";

	if (snprintf(ret, PATH_MAX, "%s%s%s", folder, slash, name) < PATH_MAX)
		return 0;
	return jm_err_set(err, JM_EUSAGE, "The name %.60s... is too long.", folder);
}

int jm_weights_try(const char *path, struct jm_err *err)
{
	char file[PATH_MAX];
	int code;

	if (!is_folder(path))
		return jm_output_try(path, err);
	code = jm_output_folder(path, err);
	if (!code)
		code = name_file(path, "weights.part", file, err);
	return code ? code : jm_output_try(file, err);
}

static const char *torch_type(enum jm_safetensor_type type)
{
	return type == JM_SAFETENSOR_F32    ? "float32"
	       : type == JM_SAFETENSOR_BF16 ? "bfloat16"
	       : type == JM_SAFETENSOR_F16  ? "float16"
					    : "float64";
}

static int write_config(
	const struct save *s, struct jm_network network, const char *folder, struct jm_err *err)
{
	char file[PATH_MAX];
	json_t *config;
	int code;

	if (!network.model->make_config)
		return 0;
	config = network.model->make_config(network.dims);
	if (json_is_null(config))
		return 0;
	code = config ? name_file(folder, "config.json", file, err)
		      : jm_err_set(err, JM_ENOMEM, "Out of memory for a config.json.");
	if (!code) {
		json_object_set_new(
			config, "torch_dtype", json_string(torch_type(s->tensor[0].type)));
		code = jm_output_json(file, config, err);
	}
	json_decref(config);
	return code;
}

static int write_folder(struct save *s, struct jm_network network, const char *path,
	const json_t *notes, struct jm_err *err)
{
	int code = jm_weights_try(path, err);

	if (!code)
		code = jm_safetensors_write_folder(
			path, s->tensor, s->n, s->source->shard_bytes, notes, give, s, err);
	return code ? code : write_config(s, network, path, err);
}

static int write_file(
	struct save *s, struct jm_network network, const char *path, struct jm_err *err)
{
	json_t *notes = json_pack("{s:s}", "format", "pt"); /* transformers demands it */
	int code = list_all(s, network, err), ended;

	if (!code)
		code = is_folder(path)
			       ? write_folder(s, network, path, notes, err)
			       : jm_safetensors_write(path, s->tensor, s->n, notes, give, s, err);
	json_decref(notes);
	ended = jm_whole_end(&s->whole, err);
	return code ? code : ended;
}

/* The parameter, or its mean where the update keeps one. */
static struct jm_whole_item value_of(const struct jm_graph *g, const struct jm_cell *c)
{
	if (!jm_update_trains(c) || !jm_update_keeps(g, JM_KEPT_MEAN, NULL))
		return (struct jm_whole_item){.t = c->t, .cell = c};
	return (struct jm_whole_item){
		.t = jm_update_kept(g, c, JM_KEPT_MEAN), .cell = c, .kept = JM_KEPT_MEAN};
}

int jm_weights_save(struct jm_program *p, struct jm_network network,
	const struct jm_weights_source *source, const char *path, struct jm_err *err)
{
	const struct jm_graph *g = p->graph;
	struct jm_whole_item *item = calloc((size_t)g->n_cells + 1, sizeof(*item));
	struct save s = {.p = p, .source = source, .whole = {p, source->comm, item}};
	int code;

	if (!item)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for weights.");
	for (int i = 0; i < g->n_cells; i++)
		item[i] = value_of(g, g->cell[i]);
	code = source->comm && source->comm->rank ? jm_whole_answer(&s.whole, err)
						  : write_file(&s, network, path, err);
	free(item);
	free(s.data);
	free(s.part);
	free(s.tensor);
	free(s.counter);
	free(s.batches);
	return code;
}
