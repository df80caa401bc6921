/* SPDX-License-Identifier: Apache-2.0 */
/* Types, shapes and layouts of tensors, for engine, backends and tests. */
#ifndef JM_TENSOR_H
#define JM_TENSOR_H

#include <string.h>

#include "base/bf16.h"
#include "round_f8.h"
#include "node.h"

const char *jm_dtype_name(enum jm_dtype type); /* "bf16" */
size_t jm_dtype_bytes(enum jm_dtype type);
/* The type with this name; JM_EUSAGE for an unknown name. */
int jm_dtype_find(const char *name, enum jm_dtype *ret, struct jm_err *err);
const char *jm_op_name(enum jm_op op); /* "linear-dgrad" */
const char *jm_class_name(enum jm_class class);

/* True if queries, keys and values of attention (or of its gradient) are packed as [B,S,(H+2G)D] in
 * one tensor, with as many keys as queries and no lengths. */
bool jm_attention_is_packed(const struct jm_node *n);
/* True if all three gradients of attention are made whole: packed, or each in a tensor of its own
 * without gaps. */
bool jm_attention_grads_are_whole(const struct jm_node *n);
/* Sets heads, views, depth and keys to the packed form. */
void jm_attention_pack(struct jm_node *n, int heads, int kv_heads);

/* The number of elements without padding. */
int64_t jm_tensor_count(const struct jm_tensor *t);
/* The product of all dims except the last one: the number of rows. */
int64_t jm_tensor_rows(const struct jm_tensor *t);
/* The last dim. */
int64_t jm_tensor_width(const struct jm_tensor *t);
/* The product of the dims that are slower in memory than this one: in each of so many pieces of
 * memory, all of the dim is together. Only this dim may have blocks. */
int64_t jm_tensor_pieces(const struct jm_tensor *t, int dim);
/* The bytes of the tensor in this layout, including padding. */
size_t jm_layout_bytes(const struct jm_tensor *t, const struct jm_layout *layout);
bool jm_layout_equal(const struct jm_layout *a, const struct jm_layout *b);
/* "plain", or the letters of oneDNN: dims from slowest to fastest, capitals for blocked ones, then
 * the inner blocks ("aBcd16b"). A text that is too long is cut; returns ret. */
const char *jm_layout_name(const struct jm_layout *layout, char *ret, size_t size);
/* The position of element `index` of a tensor in that layout, counted in elements. */
int64_t jm_layout_offset(
	const struct jm_tensor *t, const struct jm_layout *layout, const int64_t *index);

/* The factor that maps values of up to `most` (0 = all are 0) to those of a type of 8 bits (node.h,
 * quantize); its inverse is a normal number. */
static inline float jm_f8_scale(enum jm_dtype type, float most)
{
	float scale = (type == JM_F8E4M3 ? 448.0F : 57344.0F) / (most > 0 ? most : 1);

	return scale < 0x1p100F ? scale : 0x1p100F;
}

/* Rounds to 10 bits of mantissa, to nearest even; keeps NaN. */
static inline float jm_tf32_round(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	if ((bits & 0x7fffffff) >= 0x7f800000)
		return f;
	bits = (bits + 0xfff + (bits >> 13 & 1)) & ~UINT32_C(0x1fff);
	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* Copies all elements from plain memory to the tensor's layout, or back. */
void jm_tensor_reorder(const struct jm_tensor *t, void *to, const void *from, bool to_layout);

/* Element i of memory of any type. Slow; used by `ref`, tests and initial values. */
double jm_element_get(enum jm_dtype type, const void *data, int64_t i);
void jm_element_set(enum jm_dtype type, void *data, int64_t i, double value);
/* The same for all n elements, to f64 and from it; fast for floating types of 16 and 32 bits. */
void jm_elements_widen(enum jm_dtype type, const void *data, int64_t n, double *ret_value);
void jm_elements_narrow(enum jm_dtype type, void *data, int64_t n, const double *value);
/* n elements from `first` on; fast for f32 and bf16. */
void jm_elements_set(enum jm_dtype type, void *data, int64_t first, const float *value, int64_t n);

#endif
