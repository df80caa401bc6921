/* SPDX-License-Identifier: Apache-2.0 */
#include "weights_load.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text/json.h"
#include "engine/graph/tensor.h"
#include "engine/run/start_values.h"
#include "engine/run/write_values.h"
#include "weights_stream.h"
#include "whole_tensor.h"

#define CHUNK	     ((size_t)1 << 20)	/* bytes that are read and converted at once */
#define BATCHES_MOST ((int64_t)1 << 53) /* no norm has counted more */

struct load {
	struct jm_program *p;
	struct jm_network network;
	const struct jm_safetensors *s;
	struct jm_weights_loaded *ret;
	struct jm_err *err;
	struct jm_weight_part *part;
	int n;
	bool *used;    /* [tensor of the file] */
	bool anew;     /* the top has start values */
	uint64_t seed; /* of these */
	struct jm_value_stream stream;
	size_t bytes;
};

/* ---- names ----------------------------------------------------------------------------------- */

const struct jm_safetensor *jm_weights_part_in(const struct jm_safetensors *s,
	const struct jm_weights_loaded *found, const struct jm_weight_part *part)
{
	size_t n = strlen(found->prefix);

	return strncmp(part->name, found->prefix, n) != 0 ? NULL
							  : jm_safetensors_find(s, part->name + n);
}

bool jm_weights_counter(const char *name, char ret[JM_WEIGHT_NAME])
{
	static const char var[] = ".running_var";
	size_t n = strlen(name), m = sizeof(var) - 1;

	if (n < m || strcmp(name + n - m, var) != 0)
		return false;
	return snprintf(ret, JM_WEIGHT_NAME, "%.*s.num_batches_tracked", (int)(n - m), name) <
	       JM_WEIGHT_NAME;
}

static int count_found(const struct load *l, const struct jm_weights_loaded *found)
{
	int n = 0;

	for (int i = 0; i < l->n; i++)
		n += !!jm_weights_part_in(l->s, found, &l->part[i]);
	return n;
}

/* Takes these names if the file has more of them than `*most`. */
static int try_names(struct load *l, const struct jm_weight_names *names, int *most)
{
	struct load now = *l;
	int code = jm_weight_parts(l->p->graph, names, l->network.dims, &now.part, &now.n, l->err);
	bool better = false;

	if (code)
		return code;
	for (int i = 0; i < 1 + !!(names && names->prefix); i++) {
		struct jm_weights_loaded found = {.names = names, .prefix = i ? names->prefix : ""};
		int n = count_found(&now, &found);

		if (n <= *most)
			continue;
		*most = n;
		*l->ret = found;
		better = true;
	}
	if (better) {
		free(l->part);
		l->part = now.part;
		l->n = now.n;
	} else {
		free(now.part);
	}
	return 0;
}

/* The names of which the file has most. */
static int choose_names(struct load *l)
{
	const struct jm_weight_names *names = l->network.model->weights;
	int most = -1, code = 0;

	if (!names)
		code = try_names(l, NULL, &most);
	for (; names && names->of && !code; names++)
		code = try_names(l, names, &most);
	if (code || most > 0)
		return code;
	return jm_err_set(l->err, JM_EFORMAT,
		"Weights %s are of another network than %s: none of its tensors is in them, such "
		"as '%.100s'; name the model that they are of.",
		l->s->path, l->network.model->name, l->part[0].name);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static bool is_top(const struct load *l, const struct jm_weight_part *part)
{
	const char *top = l->network.model->top;

	return top && !fnmatch(top, part->tensor->name, 0);
}

static bool has_shape(const struct jm_safetensor *t, const struct jm_weight_part *part)
{
	return t->rank == part->rank &&
	       !memcmp(t->dim, part->dim, (size_t)t->rank * sizeof(*t->dim));
}

/* The same but for the first dim, the number of classes. */
static bool has_other_classes(const struct jm_safetensor *t, const struct jm_weight_part *part)
{
	return t->rank == part->rank && t->rank && t->dim[0] != part->dim[0] &&
	       !memcmp(t->dim + 1, part->dim + 1, (size_t)(t->rank - 1) * sizeof(*t->dim));
}

static bool is_number(enum jm_safetensor_type type)
{
	return type == JM_SAFETENSOR_F32 || type == JM_SAFETENSOR_BF16 ||
	       type == JM_SAFETENSOR_F16 || type == JM_SAFETENSOR_F64;
}

static int wrong_shape(
	const struct load *l, const struct jm_safetensor *t, const struct jm_weight_part *part)
{
	struct jm_safetensor own = {.rank = part->rank};
	char theirs[160], ours[160];

	memcpy(own.dim, part->dim, sizeof(own.dim));
	return jm_err_set(l->err, JM_EFORMAT,
		"Tensor '%.100s' of weights %s is %s, but in the network it is %s; give the "
		"options with which it was trained.",
		t->name, l->s->path, jm_safetensor_shape(t, theirs, sizeof(theirs)),
		jm_safetensor_shape(&own, ours, sizeof(ours)));
}

static int check_part(struct load *l, const struct jm_weight_part *part)
{
	const struct jm_safetensor *t = jm_weights_part_in(l->s, l->ret, part);

	if (!t)
		return jm_err_set(l->err, JM_EFORMAT,
			"Weights %s lack tensor '%.100s' of the network, and have %d of its %d; "
			"they are of another network, or of other options: give those with which "
			"they were trained.",
			l->s->path, part->name + strlen(l->ret->prefix), count_found(l, l->ret),
			l->n);
	if (!is_number(t->type))
		return jm_err_set(l->err, JM_EFORMAT,
			"Tensor '%.100s' of weights %s is of type %s, and weights are F32, BF16, "
			"F16 or F64; convert it.",
			t->name, l->s->path, jm_safetensor_type_name(t->type));
	l->used[t - l->s->tensor] = true;
	if (has_shape(t, part))
		return 0;
	if (!is_top(l, part) || !has_other_classes(t, part))
		return wrong_shape(l, t, part);
	l->anew = true;
	snprintf(l->ret->anew, sizeof(l->ret->anew),
		"The last layer is new: the weights have %lld classes, the network %lld.",
		(long long)t->dim[0], (long long)part->dim[0]);
	return 0;
}

/* Counters of batches are taken where there are some. */
static int take_counter(struct load *l, const struct jm_weight_part *part)
{
	char name[JM_WEIGHT_NAME];
	const struct jm_safetensor *t;
	int64_t value;
	int code;

	if (!jm_weights_counter(part->name + strlen(l->ret->prefix), name))
		return 0;
	t = jm_safetensors_find(l->s, name);
	if (!t || t->type != JM_SAFETENSOR_I64 || jm_safetensor_count(t) != 1)
		return 0;
	code = jm_safetensors_read(l->s, t, 0, &value, sizeof(value), l->err);
	if (code)
		return code;
	l->used[t - l->s->tensor] = true;
	if (value > l->ret->batches && value <= BATCHES_MOST)
		l->ret->batches = value;
	return 0;
}

/* A second name of the same values, where the file has it. */
static int check_tied(struct load *l, const struct jm_weight_part *part)
{
	const struct jm_safetensor *t = part->tied ? jm_safetensors_find(l->s, part->tied) : NULL;
	const struct jm_safetensor *first = jm_weights_part_in(l->s, l->ret, part);
	char a[4096], b[4096];
	int code = 0;

	if (!t)
		return 0;
	l->used[t - l->s->tensor] = true;
	if (t->type != first->type || !has_shape(t, part))
		return wrong_shape(l, t, part);
	for (uint64_t at = 0, n; at < t->bytes && !code; at += n) {
		n = t->bytes - at < sizeof(a) ? t->bytes - at : sizeof(a);
		code = jm_safetensors_read(l->s, t, at, a, n, l->err);
		if (!code)
			code = jm_safetensors_read(l->s, first, at, b, n, l->err);
		if (!code && memcmp(a, b, n) != 0)
			code = jm_err_set(l->err, JM_EFORMAT,
				"Tensors '%.100s' and '%.100s' of weights %s differ, but the "
				"network has one of both.",
				t->name, first->name, l->s->path);
	}
	return code;
}

static bool is_ignored(const struct load *l, const char *name)
{
	const char *const *pattern = l->ret->names ? l->ret->names->ignored : NULL;

	while (pattern && *pattern && fnmatch(*pattern, name, 0))
		pattern++;
	return pattern && *pattern;
}

static int check_rest(const struct load *l)
{
	for (int i = 0; i < l->s->n; i++)
		if (!l->used[i] && !is_ignored(l, l->s->tensor[i].name))
			return jm_err_set(l->err, JM_EFORMAT,
				"Weights %s have a tensor '%.100s', which the network does not "
				"have; they are of another network, or of other options: give "
				"those "
				"with which they were trained.",
				l->s->path, l->s->tensor[i].name);
	return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The first element of the part in the whole tensor. */
static int64_t first_of(const struct jm_weight_part *part)
{
	return part->row * part->width;
}

/* Elements i .. i + n - 1 of the part to where they are in the tensor; false: one is not finite. */
static bool convert(const struct jm_weight_part *part, enum jm_dtype from, const void *chunk,
	int64_t i, int64_t n, enum jm_dtype to, void *data)
{
	size_t size = jm_dtype_bytes(to), width = jm_dtype_bytes(from);
	int64_t first = first_of(part);
	bool good = true;

	if (!part->transposed)
		return jm_weights_convert(
			from, chunk, n, to, (char *)data + (size_t)(first + i) * size);
	for (int64_t k = 0; k < n && good; k++, i++) {
		int64_t at = first + i % part->rows * part->width + i / part->rows;

		good = jm_weights_convert(from, (const char *)chunk + (size_t)k * width, 1, to,
			(char *)data + (size_t)at * size);
	}
	return good;
}

static int read_part(const struct load *l, const struct jm_weight_part *part, void *data)
{
	const struct jm_safetensor *t = jm_weights_part_in(l->s, l->ret, part);
	size_t width = jm_safetensor_type_bytes(t->type), most = CHUNK / width;
	enum jm_dtype to = jm_program_value_type(l->p, part->tensor);
	int64_t count = jm_safetensor_count(t);
	void *chunk = malloc(CHUNK);
	int code = chunk ? 0 : jm_err_set(l->err, JM_ENOMEM, "Out of memory for weights.");

	for (int64_t i = 0; i < count && !code; i += (int64_t)most) {
		size_t n = (size_t)(count - i) < most ? (size_t)(count - i) : most;

		code = jm_safetensors_read(l->s, t, (uint64_t)i * width, chunk, n * width, l->err);
		if (!code &&
			!convert(part, jm_weights_dtype(t->type), chunk, i, (int64_t)n, to, data))
			code = jm_weights_not_finite(l->s, t, to, l->err);
	}
	free(chunk);
	return code;
}

/* Copies of the parameter that persist have its values, rounded (start_values.c). */
static int write_tensor(const struct load *l, struct jm_tensor *t, const void *data)
{
	struct jm_tensor *copy = jm_graph_cell(l->p->graph, t)->copy;
	int64_t n = jm_tensor_count(t);
	void *rounded;
	int code = jm_program_write_values(l->p, t, data, l->err);

	if (code || !copy || copy->class != JM_CLASS_PARAM)
		return code;
	rounded = malloc((size_t)n * jm_dtype_bytes(copy->type));
	if (!rounded)
		return jm_err_set(l->err, JM_ENOMEM, "Out of memory for weights.");
	for (int64_t i = 0; i < n; i++)
		jm_element_set(copy->type, rounded, i, jm_element_get(t->type, data, i));
	code = jm_program_write(l->p, copy, rounded, l->err);
	free(rounded);
	return code;
}

/* Writes what this rank has of the tensor. */
static int write_own(const struct load *l, struct jm_tensor *t, const void *whole)
{
	const struct jm_cell *c = jm_graph_cell(l->p->graph, t);
	size_t size = jm_dtype_bytes(jm_program_value_type(l->p, t));
	void *own;
	int code;

	if (!c->cut.n)
		return write_tensor(l, t, whole);
	own = malloc((size_t)jm_tensor_count(t) * size);
	if (!own)
		return jm_err_set(l->err, JM_ENOMEM, "Out of memory for weights.");
	jm_whole_part(l->p->graph, c, size, whole, own);
	code = write_tensor(l, t, own);
	free(own);
	return code;
}

/* By way of the whole tensor on the host: what is turned, or lies otherwise on the device, or is
 * cut. */
static int load_whole(struct load *l, const struct jm_weight_part *part, int n)
{
	struct jm_tensor *t = part->tensor;
	void *data;
	int code = 0;

	data = calloc((size_t)part->count, jm_dtype_bytes(jm_program_value_type(l->p, t)));
	if (!data)
		return jm_err_set(l->err, JM_ENOMEM, "Out of memory for weights.");
	for (int k = 0; k < n && !code; k++)
		code = read_part(l, &part[k], data);
	if (!code)
		code = write_own(l, t, data);
	free(data);
	return code;
}

static bool is_streamed(const struct load *l, const struct jm_weight_part *part, int n)
{
	const struct jm_cell *c = jm_graph_cell(l->p->graph, part->tensor);
	bool turned = false;

	for (int k = 0; k < n; k++)
		turned = turned || part[k].transposed;
	return !turned && !c->cut.n && jm_value_stream_takes(&c->t) &&
	       (!c->copy || c->copy->class != JM_CLASS_PARAM);
}

static int load_streamed(struct load *l, const struct jm_weight_part *part, int n)
{
	int code = 0;

	for (int k = 0; k < n && !code; k++)
		code = jm_weights_send(&l->stream, l->s, jm_weights_part_in(l->s, l->ret, &part[k]),
			part->tensor, first_of(&part[k]), l->err);
	return code;
}

/* The tensor of part i, and of the parts behind it that are of the same one; ret_n: how many they
 * are. */
static int load_tensor(struct load *l, int i, int *ret_n)
{
	const struct jm_weight_part *part = &l->part[i];
	struct jm_tensor *t = part->tensor;

	for (*ret_n = 1; i + *ret_n < l->n && part[*ret_n].tensor == t;)
		++*ret_n;
	if (!t->data || (l->anew && is_top(l, part))) /* another stage has it, or no file */
		return 0;
	l->bytes += (size_t)jm_tensor_count(t) * jm_dtype_bytes(t->type);
	return is_streamed(l, part, *ret_n) ? load_streamed(l, part, *ret_n)
					    : load_whole(l, part, *ret_n);
}

/* Only what no file gives starts with random values, which take long for large networks. */
static bool starts(const void *arg, const struct jm_cell *c)
{
	const struct load *l = arg;
	const struct jm_weight_part part = {.tensor = (struct jm_tensor *)&c->t};

	return !jm_weight_is_kept(c) || (l->anew && is_top(l, &part));
}

static int load_all(struct load *l)
{
	int code = 0;

	for (int i = 0; i < l->n && !code; i++)
		code = check_part(l, &l->part[i]);
	for (int i = 0; i < l->n && !code; i++)
		code = take_counter(l, &l->part[i]);
	for (int i = 0; i < l->n && !code; i++)
		code = check_tied(l, &l->part[i]);
	if (!code)
		code = check_rest(l);
	if (!code)
		code = jm_program_init_some(l->p, l->seed, starts, l, l->err);
	if (!code)
		code = jm_value_stream_open(&l->stream, l->p, l->err);
	for (int i = 0, n; i < l->n && !code; i += n)
		code = load_tensor(l, i, &n);
	return code ? code : jm_value_stream_end(&l->stream, l->err);
}

static void describe(const struct load *l, int64_t start)
{
	struct jm_weights_loaded *ret = l->ret;

	ret->bytes = l->bytes;
	ret->seconds = (double)(jm_clock_now(jm_clock_real()) - start) / 1e9;
	snprintf(ret->what, sizeof(ret->what), "%d tensors of %s, %.1f MB in %.2f s", l->n,
		ret->names ? ret->names->of : l->network.model->name, (double)l->bytes / 1e6,
		ret->seconds);
}

int jm_weights_load(struct jm_program *p, struct jm_network network, const struct jm_safetensors *s,
	uint64_t seed, struct jm_weights_loaded *ret, struct jm_err *err)
{
	struct jm_err own = JM_ERR_INIT;
	struct load l = {.p = p,
		.network = network,
		.s = s,
		.seed = seed,
		.ret = ret,
		.err = err ? err : &own};
	int64_t start = jm_clock_now(jm_clock_real());
	int code;

	*ret = (struct jm_weights_loaded){.prefix = ""};
	l.used = calloc((size_t)s->n + 1, sizeof(*l.used));
	code = l.used ? choose_names(&l)
		      : jm_err_set(l.err, JM_ENOMEM, "Out of memory for weights.");
	if (!code)
		code = load_all(&l);
	if (!code)
		describe(&l, start);
	jm_value_stream_close(&l.stream);
	free(l.used);
	free(l.part);
	return code;
}

json_t *jm_weights_json(
	const char *from, const struct jm_weights_loaded *found, const char *checkpoint, long first)
{
	json_t *json = json_object();

	jm_json_set_text(&json, "from", from);
	jm_json_set_int(&json, "bytes", (json_int_t)found->bytes);
	jm_json_set_number(&json, "load_s", found->seconds);
	jm_json_set_bool(&json, "new_top", *found->anew);
	jm_json_set_text(&json, "continued", checkpoint);
	jm_json_set_int(&json, "first_step", first);
	return json;
}
