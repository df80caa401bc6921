/* SPDX-License-Identifier: Apache-2.0 */
#include "weights_stream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/process/parallel_for.h"
#include "engine/graph/tensor.h"
#include "engine/run/write_values.h"

#define CHUNK	     ((size_t)1 << 20) /* bytes that a thread reads and converts at once */
#define THREADS_MOST 8		       /* more do not read the page cache faster */

enum jm_dtype jm_weights_dtype(enum jm_safetensor_type type)
{
	return type == JM_SAFETENSOR_F32    ? JM_F32
	       : type == JM_SAFETENSOR_BF16 ? JM_BF16
	       : type == JM_SAFETENSOR_F16  ? JM_F16
					    : JM_F64;
}

/* ---- conversion ------------------------------------------------------------------------------ */

static bool copy_f32(const uint32_t *from, int64_t n, uint32_t *to)
{
	uint32_t bad = 0;

	for (int64_t i = 0; i < n; i++) {
		bad |= (from[i] & 0x7f800000) == 0x7f800000;
		to[i] = from[i];
	}
	return !bad;
}

static bool copy_bf16(const uint16_t *from, int64_t n, uint16_t *to)
{
	uint32_t bad = 0;

	for (int64_t i = 0; i < n; i++) {
		bad |= (from[i] & 0x7f80) == 0x7f80;
		to[i] = from[i];
	}
	return !bad;
}

static bool widen_bf16(const uint16_t *from, int64_t n, uint32_t *to)
{
	uint32_t bad = 0;

	for (int64_t i = 0; i < n; i++) {
		bad |= (from[i] & 0x7f80) == 0x7f80;
		to[i] = (uint32_t)from[i] << 16;
	}
	return !bad;
}

static bool round_f32(const float *from, int64_t n, uint16_t *to)
{
	uint32_t bad = 0;

	for (int64_t i = 0; i < n; i++) {
		to[i] = jm_bf16_set(from[i]);
		bad |= (to[i] & 0x7f80) == 0x7f80;
	}
	return !bad;
}

bool jm_weights_convert(
	enum jm_dtype from, const void *source, int64_t n, enum jm_dtype to, void *target)
{
	bool good = true, shrinks = from == JM_F64 || to == JM_F16;

	if (from == JM_F32 && to == JM_F32)
		return copy_f32(source, n, target);
	if (from == JM_BF16 && to == JM_BF16)
		return copy_bf16(source, n, target);
	if (from == JM_BF16 && to == JM_F32)
		return widen_bf16(source, n, target);
	if (from == JM_F32 && to == JM_BF16)
		return round_f32(source, n, target);
	for (int64_t i = 0; i < n; i++) {
		double x = jm_element_get(from, source, i);

		good = good && isfinite(x);
		jm_element_set(to, target, i, x);
		if (shrinks)
			good = good && isfinite(jm_element_get(to, target, i));
	}
	return good;
}

int jm_weights_not_finite(const struct jm_safetensors *file, const struct jm_safetensor *t,
	enum jm_dtype to, struct jm_err *err)
{
	return jm_err_set(err, JM_EFORMAT,
		"Tensor '%.100s' of weights %s has a value that is not a number or infinite as %s, "
		"the type in the network; give weights of an earlier step, or another --precision.",
		t->name, file->path, jm_dtype_name(to));
}

/* ---- a range of a tensor --------------------------------------------------------------------- */

/* Elements of a tensor from the file to `target`. */
struct range {
	const struct jm_safetensors *file;
	const struct jm_safetensor *from;
	enum jm_dtype to;
	int64_t first, n;
	char *target;
	struct jm_err err[THREADS_MOST]; /* of each share */
};

static void fill_share(void *arg, int share, int64_t first, int64_t count)
{
	struct range *r = arg;
	size_t width = jm_safetensor_type_bytes(r->from->type), size = jm_dtype_bytes(r->to);
	int64_t most = (int64_t)(CHUNK / width);
	struct jm_err *err = &r->err[share];
	void *chunk = malloc(CHUNK);

	*err = (struct jm_err)JM_ERR_INIT;
	if (!chunk) {
		jm_err_set(err, JM_ENOMEM, "Out of memory for weights.");
		return;
	}
	for (int64_t i = first, n; i < first + count && !err->code; i += n) {
		n = MIN(first + count - i, most);
		if (!jm_safetensors_read(r->file, r->from, (uint64_t)(r->first + i) * width, chunk,
			    (size_t)n * width, err) &&
			!jm_weights_convert(jm_weights_dtype(r->from->type), chunk, n, r->to,
				r->target + (size_t)i * size))
			jm_weights_not_finite(r->file, r->from, r->to, err);
	}
	free(chunk);
}

static int fill(struct range *r, struct jm_err *err)
{
	int n = jm_shares_run(&(struct jm_shares){.count = r->n,
		.weight = 1,
		.unit = 1,
		.most = THREADS_MOST,
		.fn = fill_share,
		.arg = r});

	for (int i = 0; i < n; i++)
		if (r->err[i].code)
			return jm_err_set(err, r->err[i].code, "%s", r->err[i].text);
	return 0;
}

static int make(void *arg, int64_t first, int64_t n, void *to, struct jm_err *err)
{
	struct range *r = arg;

	r->first = first;
	r->n = n;
	r->target = to;
	return fill(r, err);
}

int jm_weights_send(struct jm_value_stream *s, const struct jm_safetensors *file,
	const struct jm_safetensor *from, struct jm_tensor *t, int64_t at, struct jm_err *err)
{
	struct range r = {.file = file, .from = from, .to = jm_program_value_type(s->p, t)};

	return jm_value_stream_send(s, t, at, jm_safetensor_count(from), make, &r, err);
}
