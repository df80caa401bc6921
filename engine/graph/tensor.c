/* SPDX-License-Identifier: Apache-2.0 */
/* Types, shapes and layouts. */
#include "tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const dtype_names[] = {
#define X(name, text, bytes) text,
	JM_DTYPES(X)
#undef X
};

static const size_t dtype_bytes[] = {
#define X(name, text, bytes) bytes,
	JM_DTYPES(X)
#undef X
};

static const char *const op_names[] = {
#define X(name, text) text,
	JM_OPS(X)
#undef X
};

static const char *const class_names[] = {
#define X(name, text) text,
	JM_CLASSES(X)
#undef X
};

const char *jm_dtype_name(enum jm_dtype type)
{
	return dtype_names[type];
}

size_t jm_dtype_bytes(enum jm_dtype type)
{
	return dtype_bytes[type];
}

int jm_dtype_find(const char *name, enum jm_dtype *ret, struct jm_err *err)
{
	for (int i = 0; i < JM_DTYPE_COUNT; i++)
		if (!strcmp(name, dtype_names[i]) && i != JM_I32 && i != JM_U8) {
			*ret = (enum jm_dtype)i;
			return 0;
		}
	return jm_err_set(err, JM_EUSAGE,
		"Precision '%s' is unknown; use f32, bf16 or, on device ref, f64.", name);
}

const char *jm_op_name(enum jm_op op)
{
	return op_names[op];
}

const char *jm_class_name(enum jm_class class)
{
	return class_names[class];
}

static struct jm_view packed_view(int64_t first, int64_t depth, int64_t width, int64_t seq)
{
	return (struct jm_view){first * depth, seq * width, width, depth};
}

void jm_attention_pack(struct jm_node *n, int heads, int kv_heads)
{
	const struct jm_tensor *qkv = n->in[n->op == JM_OP_ATTENTION_GRAD];
	int64_t seq = qkv->dim[1], width = qkv->dim[2], depth = width / (heads + 2 * kv_heads);

	n->attr.attention.heads = heads;
	n->attr.attention.kv_heads = kv_heads;
	n->attr.attention.depth = depth;
	n->attr.attention.keys = seq;
	n->attr.attention.q = packed_view(0, depth, width, seq);
	n->attr.attention.k = packed_view(heads, depth, width, seq);
	n->attr.attention.v = packed_view(heads + kv_heads, depth, width, seq);
}

bool jm_attention_is_packed(const struct jm_node *n)
{
	int first = n->op == JM_OP_ATTENTION_GRAD, lengths = first ? 6 : 3;
	const struct jm_tensor *const *in = (const struct jm_tensor *const *)n->in + first;
	int64_t heads = n->attr.attention.heads, groups = n->attr.attention.kv_heads;
	int64_t depth = n->attr.attention.depth, width = (heads + 2 * groups) * depth;
	int64_t seq = in[0]->rank == 3 ? in[0]->dim[1] : 0;
	struct jm_view q = packed_view(0, depth, width, seq);
	struct jm_view k = packed_view(heads, depth, width, seq);
	struct jm_view v = packed_view(heads + groups, depth, width, seq);

	return in[0] == in[1] && in[0] == in[2] && !n->in[lengths] && in[0]->rank == 3 &&
	       in[0]->dim[2] == width && n->attr.attention.keys == seq &&
	       !memcmp(&n->attr.attention.q, &q, sizeof(q)) &&
	       !memcmp(&n->attr.attention.k, &k, sizeof(k)) &&
	       !memcmp(&n->attr.attention.v, &v, sizeof(v));
}

bool jm_attention_grads_are_whole(const struct jm_node *n)
{
	const struct jm_tensor *dq = n->out[0], *dk = n->out[1], *dv = n->out[2];
	int64_t keys = n->in[0]->dim[0] * n->attr.attention.keys * n->attr.attention.kv_heads *
		       n->attr.attention.depth;

	if (!dq || !dk || !dv)
		return false;
	return jm_attention_is_packed(n) ||
	       (dq != dk && dq != dv && dk != dv &&
		       jm_tensor_count(dq) == jm_tensor_count(n->in[0]) &&
		       jm_tensor_count(dk) == keys && jm_tensor_count(dv) == keys);
}

int64_t jm_tensor_count(const struct jm_tensor *t)
{
	int64_t n = 1;

	for (int i = 0; i < t->rank; i++)
		n *= t->dim[i];
	return n;
}

int64_t jm_tensor_width(const struct jm_tensor *t)
{
	return t->rank ? t->dim[t->rank - 1] : 1;
}

int64_t jm_tensor_rows(const struct jm_tensor *t)
{
	int64_t n = 1;

	for (int i = 0; i + 1 < t->rank; i++)
		n *= t->dim[i];
	return n;
}

/* The block of a dim: product of its inner blocks. */
static int64_t block_of(const struct jm_layout *layout, int dim)
{
	int64_t n = 1;

	for (int i = 0; i < layout->n_blocks; i++)
		if (layout->block_dim[i] == dim)
			n *= layout->block[i];
	return n;
}

static int64_t padded(const struct jm_tensor *t, const struct jm_layout *layout, int dim)
{
	int64_t block = block_of(layout, dim);

	return (t->dim[dim] + block - 1) / block * block;
}

int64_t jm_tensor_pieces(const struct jm_tensor *t, int dim)
{
	int64_t n = 1;

	for (int i = 0; i < t->rank; i++) {
		int at = t->layout.rank ? t->layout.order[i] : i;

		if (at == dim)
			break;
		n *= t->dim[at];
	}
	return n;
}

size_t jm_layout_bytes(const struct jm_tensor *t, const struct jm_layout *layout)
{
	size_t bytes = jm_dtype_bytes(t->type);

	for (int i = 0; i < t->rank; i++)
		bytes *= (size_t)padded(t, layout, i);
	return bytes;
}

bool jm_layout_equal(const struct jm_layout *a, const struct jm_layout *b)
{
	return !memcmp(a, b, sizeof(*a));
}

const char *jm_layout_name(const struct jm_layout *layout, char *ret, size_t size)
{
	size_t n = 0;

	snprintf(ret, size, "%s", layout->rank ? "" : "plain");
	for (int i = 0; i < layout->rank && n < size; i++)
		n += (size_t)snprintf(ret + n, size - n, "%c",
			(block_of(layout, layout->order[i]) > 1 ? 'A' : 'a') + layout->order[i]);
	for (int i = 0; layout->rank && i < layout->n_blocks && n < size; i++)
		n += (size_t)snprintf(
			ret + n, size - n, "%d%c", layout->block[i], 'a' + layout->block_dim[i]);
	return ret;
}

/* Index within the inner blocks, and the outer index that is left, per dim. */
static int64_t offset_in_block(
	const struct jm_layout *layout, int64_t *index, int64_t *ret_block_size)
{
	int64_t offset = 0, stride = 1;

	for (int i = layout->n_blocks - 1; i >= 0; i--) {
		int d = layout->block_dim[i];

		offset += index[d] % layout->block[i] * stride;
		index[d] /= layout->block[i];
		stride *= layout->block[i];
	}
	*ret_block_size = stride;
	return offset;
}

int64_t jm_layout_offset(
	const struct jm_tensor *t, const struct jm_layout *layout, const int64_t *index)
{
	int64_t left[JM_DIMS], stride, offset;

	memcpy(left, index, (size_t)t->rank * sizeof(*left));
	offset = offset_in_block(layout, left, &stride);
	for (int i = t->rank - 1; i >= 0; i--) {
		int d = layout->rank ? layout->order[i] : i;

		offset += left[d] * stride;
		stride *= padded(t, layout, d) / block_of(layout, d);
	}
	return offset;
}

/* ---- elements -------------------------------------------------------------------------------- */

/*
 * A type with a sign, `exponent` bits and `mantissa` bits. infinite: the largest exponent means
 * infinity and NaN; else only all ones are NaN. saturates: larger values become the largest finite
 * one.
 */
struct narrow {
	int exponent, mantissa;
	bool infinite, saturates;
};

static const struct narrow f16 = {5, 10, true, false}, f8e4m3 = {4, 3, false, true},
			   f8e5m2 = {5, 2, true, true};

static int bias_of(const struct narrow *f)
{
	return (1 << (f->exponent - 1)) - 1;
}

/* 2^e, which is a normal number. */
static double two_to(int e)
{
	uint64_t bits = (uint64_t)(e + 1023) << 52;
	double x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static double narrow_get(const struct narrow *f, uint32_t bits)
{
	uint32_t top = (1U << f->exponent) - 1, e = bits >> f->mantissa & top;
	uint32_t fraction = bits & ((1U << f->mantissa) - 1);
	double sign = bits >> (f->exponent + f->mantissa) & 1 ? -1 : 1;

	if (e == top && f->infinite)
		return fraction ? (double)NAN : sign * (double)INFINITY;
	if (e == top && fraction == (1U << f->mantissa) - 1)
		return (double)NAN;
	if (!e)
		return sign * fraction * two_to(1 - bias_of(f) - f->mantissa);
	return sign * (fraction + (1U << f->mantissa)) * two_to((int)e - bias_of(f) - f->mantissa);
}

/* The bits of the largest finite value without the sign. */
static uint32_t largest(const struct narrow *f)
{
	uint32_t top = (1U << f->exponent) - 1;

	return f->infinite ? (top << f->mantissa) - 1
			   : (top << f->mantissa) + (1U << f->mantissa) - 2;
}

/* Of a normal number, whose bits these are: rounded to nearest even, where a carry goes into the
 * exponent. */
static uint32_t normal_magnitude(const struct narrow *f, uint64_t bits)
{
	int dropped = 52 - f->mantissa;
	uint64_t half = (UINT64_C(1) << (dropped - 1)) - 1 + (bits >> dropped & 1);
	uint64_t code = (bits + half) >> dropped;

	code -= (uint64_t)(1023 - bias_of(f)) << f->mantissa;
	if (code > largest(f))
		return f->saturates ? largest(f) : largest(f) + 1;
	return (uint32_t)code;
}

static uint32_t narrow_magnitude(const struct narrow *f, double x)
{
	int least = 1 - bias_of(f), e;
	uint64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	e = (int)(bits >> 52) - 1023;
	if (e >= least && e < 1024)
		return normal_magnitude(f, bits);
	if (isnan(x))
		return (1U << (f->exponent + f->mantissa)) - 1;
	if (isinf(x))
		return f->saturates ? largest(f) : largest(f) + 1;
	return (uint32_t)nearbyint(x * two_to(f->mantissa - least));
}

static uint32_t narrow_set(const struct narrow *f, double x)
{
	uint32_t sign = signbit(x) ? 1U << (f->exponent + f->mantissa) : 0;

	return sign | narrow_magnitude(f, fabs(x));
}

/* For the rarely used types f16 and 8 bits. */
static double get_narrow(enum jm_dtype type, const void *data, int64_t i)
{
	if (type == JM_F16)
		return narrow_get(&f16, ((const uint16_t *)data)[i]);
	return narrow_get(type == JM_F8E4M3 ? &f8e4m3 : &f8e5m2, ((const uint8_t *)data)[i]);
}

static void set_narrow(enum jm_dtype type, void *data, int64_t i, double value)
{
	if (type == JM_F16)
		((uint16_t *)data)[i] = (uint16_t)narrow_set(&f16, value);
	else
		((uint8_t *)data)[i] =
			(uint8_t)narrow_set(type == JM_F8E4M3 ? &f8e4m3 : &f8e5m2, value);
}

double jm_element_get(enum jm_dtype type, const void *data, int64_t i)
{
	if (type == JM_F32)
		return ((const float *)data)[i];
	if (type == JM_BF16)
		return jm_bf16_get(((const uint16_t *)data)[i]);
	if (type == JM_F64)
		return ((const double *)data)[i];
	if (type == JM_I32)
		return ((const int32_t *)data)[i];
	if (type == JM_U8)
		return ((const uint8_t *)data)[i];
	return get_narrow(type, data, i);
}

void jm_element_set(enum jm_dtype type, void *data, int64_t i, double value)
{
	if (type == JM_F32)
		((float *)data)[i] = (float)value;
	else if (type == JM_BF16)
		((uint16_t *)data)[i] = jm_bf16_set((float)value);
	else if (type == JM_F64)
		((double *)data)[i] = value;
	else if (type == JM_I32)
		((int32_t *)data)[i] = (int32_t)value;
	else if (type == JM_U8)
		((uint8_t *)data)[i] = (uint8_t)value;
	else
		set_narrow(type, data, i, value);
}

static void widen_8_bits(enum jm_dtype type, const uint8_t *data, int64_t n, double *ret_value)
{
	double value[256];

	for (uint32_t i = 0; i < 256; i++)
		value[i] = narrow_get(type == JM_F8E4M3 ? &f8e4m3 : &f8e5m2, i);
	for (int64_t i = 0; i < n; i++)
		ret_value[i] = value[data[i]];
}

void jm_elements_widen(enum jm_dtype type, const void *data, int64_t n, double *ret_value)
{
	if (type == JM_F32)
		for (int64_t i = 0; i < n; i++)
			ret_value[i] = ((const float *)data)[i];
	else if (type == JM_BF16)
		for (int64_t i = 0; i < n; i++)
			ret_value[i] = jm_bf16_get(((const uint16_t *)data)[i]);
	else if (type == JM_F16)
		for (int64_t i = 0; i < n; i++)
			ret_value[i] = narrow_get(&f16, ((const uint16_t *)data)[i]);
	else if (n > 256 && (type == JM_F8E4M3 || type == JM_F8E5M2))
		widen_8_bits(type, data, n, ret_value);
	else
		for (int64_t i = 0; i < n; i++)
			ret_value[i] = jm_element_get(type, data, i);
}

void jm_elements_narrow(enum jm_dtype type, void *data, int64_t n, const double *value)
{
	if (type == JM_F32)
		for (int64_t i = 0; i < n; i++)
			((float *)data)[i] = (float)value[i];
	else if (type == JM_BF16)
		for (int64_t i = 0; i < n; i++)
			((uint16_t *)data)[i] = jm_bf16_set((float)value[i]);
	else if (type == JM_F16)
		for (int64_t i = 0; i < n; i++)
			((uint16_t *)data)[i] = (uint16_t)narrow_set(&f16, value[i]);
	else
		for (int64_t i = 0; i < n; i++)
			jm_element_set(type, data, i, value[i]);
}

void jm_elements_set(enum jm_dtype type, void *data, int64_t first, const float *value, int64_t n)
{
	uint16_t *half = (uint16_t *)data + first;

	if (type == JM_F32)
		memcpy((float *)data + first, value, (size_t)n * sizeof(*value));
	else if (type == JM_BF16)
		for (int64_t i = 0; i < n; i++)
			half[i] = jm_bf16_set(value[i]);
	else
		for (int64_t i = 0; i < n; i++)
			jm_element_set(type, data, first + i, (double)value[i]);
}

/* ---- to and from plain memory ---------------------------------------------------------------- */

#define PARTS 256 /* positions that are worked out at a time */

static int longest_dim(const struct jm_tensor *t)
{
	int longest = 0;

	for (int d = 1; d < t->rank; d++)
		longest = t->dim[d] > t->dim[longest] ? d : longest;
	return longest;
}

/* Advances all indices but that of `along` in row-major order. */
static void step_index(const struct jm_tensor *t, int along, int64_t *index)
{
	for (int i = t->rank - 1; i >= 0; i--) {
		if (i == along)
			continue;
		if (++index[i] < t->dim[i])
			return;
		index[i] = 0;
	}
}

/* Copies n elements between both; the positions of plain ones are a stride apart. */
static void reorder_row(char *laid, char *plain, const int64_t *part, int64_t n, size_t stride,
	size_t each, bool out)
{
	for (int64_t i = 0; i < n; i++, plain += stride) {
		char *there = laid + (size_t)part[i] * each;

		if (each == sizeof(float))
			memcpy(out ? plain : there, out ? there : plain, sizeof(float));
		else
			memcpy(out ? plain : there, out ? there : plain, each);
	}
}

/* The position of an element is the sum of a part for each of its indices. */
void jm_tensor_reorder(const struct jm_tensor *t, void *to, const void *from, bool to_layout)
{
	int along = longest_dim(t);
	int64_t part[PARTS], rows = jm_tensor_count(t) / t->dim[along], stride = 1;
	size_t each = jm_dtype_bytes(t->type);
	char *laid = to_layout ? to : (void *)(uintptr_t)from;
	char *plain = to_layout ? (void *)(uintptr_t)from : to;

	for (int d = along + 1; d < t->rank; d++)
		stride *= t->dim[d];
	for (int64_t first = 0; first < t->dim[along]; first += PARTS) {
		int64_t n = t->dim[along] - first, index[JM_DIMS] = {0};

		n = n < PARTS ? n : PARTS;
		for (int64_t i = 0; i < n; i++) {
			index[along] = first + i;
			part[i] = jm_layout_offset(t, &t->layout, index);
		}
		index[along] = 0;
		for (int64_t r = 0; r < rows; r++, step_index(t, along, index)) {
			int64_t row = r / stride * stride * t->dim[along] + r % stride;

			reorder_row(laid + (size_t)jm_layout_offset(t, &t->layout, index) * each,
				plain + (size_t)(row + first * stride) * each, part, n,
				(size_t)stride * each, each, !to_layout);
		}
	}
}
