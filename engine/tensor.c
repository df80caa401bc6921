/* SPDX-License-Identifier: Apache-2.0 */
/* Types, shapes and layouts. */
#include "tensor.h"

#include <stdio.h>

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
		if (!strcmp(name, dtype_names[i]) && i != JM_I32) {
			*ret = (enum jm_dtype)i;
			return 0;
		}
	return jm_err_set(err, JM_EUSAGE,
		"Precision '%s' is not known; take f32, bf16 or, on device ref, f64.", name);
}

const char *jm_op_name(enum jm_op op)
{
	return op_names[op];
}

const char *jm_class_name(enum jm_class class)
{
	return class_names[class];
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

double jm_element_get(enum jm_dtype type, const void *data, int64_t i)
{
	switch (type) {
	case JM_F32:
		return ((const float *)data)[i];
	case JM_BF16:
		return jm_bf16_get(((const uint16_t *)data)[i]);
	case JM_F64:
		return ((const double *)data)[i];
	default:
		return ((const int32_t *)data)[i];
	}
}

void jm_element_set(enum jm_dtype type, void *data, int64_t i, double value)
{
	switch (type) {
	case JM_F32:
		((float *)data)[i] = (float)value;
		break;
	case JM_BF16:
		((uint16_t *)data)[i] = jm_bf16_set((float)value);
		break;
	case JM_F64:
		((double *)data)[i] = value;
		break;
	default:
		((int32_t *)data)[i] = (int32_t)value;
	}
}
