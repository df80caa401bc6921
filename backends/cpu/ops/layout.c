/* SPDX-License-Identifier: Apache-2.0 */
#include "layout.h"

static bool is_plain(const struct jm_layout *l, int rank)
{
	for (int i = 0; i < rank; i++)
		if (l->order[i] != i)
			return false;
	return !l->n_blocks;
}

/* Sorts dims by falling stride; dims of equal stride keep their order. */
static void sort_dims(const dnnl_memory_desc_t *md, int16_t *order)
{
	const int64_t *stride = md->format_desc.blocking.strides;

	for (int i = 0; i < md->ndims; i++) {
		int at = i;

		for (; at > 0 && stride[order[at - 1]] < stride[i]; at--)
			order[at] = order[at - 1];
		order[at] = (int16_t)i;
	}
}

bool cpu_layout_of(const dnnl_memory_desc_t *md, struct jm_layout *ret)
{
	const dnnl_blocking_desc_t *b = &md->format_desc.blocking;
	struct jm_layout l = {.rank = (int16_t)md->ndims};

	if (md->format_kind != dnnl_blocked || md->ndims > JM_DIMS || b->inner_nblks > JM_BLOCKS)
		return false;
	sort_dims(md, l.order);
	l.n_blocks = (int16_t)b->inner_nblks;
	for (int i = 0; i < b->inner_nblks; i++) {
		l.block[i] = (int16_t)b->inner_blks[i];
		l.block_dim[i] = (int16_t)b->inner_idxs[i];
	}
	*ret = is_plain(&l, md->ndims) ? (struct jm_layout){0} : l;
	return true;
}

static int64_t padded(const struct jm_tensor *t, const struct jm_layout *l, int dim)
{
	int64_t block = 1;

	for (int i = 0; i < l->n_blocks; i++)
		block *= l->block_dim[i] == dim ? l->block[i] : 1;
	return (t->dim[dim] + block - 1) / block * block;
}

void cpu_layout_desc(const struct jm_tensor *t, const struct jm_layout *layout,
	dnnl_data_type_t type, dnnl_memory_desc_t *ret)
{
	dnnl_memory_desc_t md = {.ndims = t->rank, .data_type = type, .format_kind = dnnl_blocked};
	dnnl_blocking_desc_t *b = &md.format_desc.blocking;
	int64_t inner = 1, stride;

	b->inner_nblks = layout->n_blocks;
	for (int i = 0; i < layout->n_blocks; i++) {
		b->inner_blks[i] = layout->block[i];
		b->inner_idxs[i] = layout->block_dim[i];
		inner *= layout->block[i];
	}
	stride = inner;
	for (int i = t->rank - 1; i >= 0; i--) {
		int dim = layout->rank ? layout->order[i] : i;
		int64_t all = padded(t, layout, dim);

		md.dims[dim] = t->dim[dim];
		md.padded_dims[dim] = all;
		b->strides[dim] = stride;
		for (int j = 0; j < layout->n_blocks; j++)
			all /= layout->block_dim[j] == dim ? layout->block[j] : 1;
		stride *= all;
	}
	*ret = md;
}

int64_t cpu_layout_elements(const struct jm_tensor *t)
{
	return (int64_t)(jm_layout_bytes(t, &t->layout) / jm_dtype_bytes(t->type));
}

static bool in_order(const struct jm_layout *l, int a, int b, int c, int d)
{
	return l->rank == 4 && l->order[0] == a && l->order[1] == b && l->order[2] == c &&
	       l->order[3] == d;
}

bool cpu_layout_image(const struct jm_tensor *t, const struct jm_layout *l, struct cpu_image *ret)
{
	struct cpu_image x = {.lanes = 1, .pixel = 1};
	int64_t pixels;

	if (!t) {
		*ret = x;
		return true;
	}
	if (t->rank != 4)
		return false;
	x = (struct cpu_image){.data = t->data,
		.bf16 = t->type == JM_BF16,
		.n = t->dim[0],
		.c = t->dim[1],
		.rows = t->dim[2],
		.cols = t->dim[3],
		.lanes = 1,
		.pixel = 1};
	pixels = x.rows * x.cols;
	if (l->rank && !l->n_blocks && in_order(l, 0, 2, 3, 1)) {
		x.lanes = 16;
		x.pixel = x.c;
		x.chunk = 16;
		x.image = pixels * x.c;
	} else if (l->rank &&
		   !(in_order(l, 0, 1, 2, 3) && l->n_blocks == 1 && l->block_dim[0] == 1 &&
			   (l->block[0] == 8 || l->block[0] == 16))) {
		return false;
	} else {
		x.lanes = x.pixel = l->rank ? l->block[0] : 1;
		x.chunk = pixels * x.lanes;
		x.image = cpu_image_chunks(&x) * x.chunk;
	}
	*ret = x;
	return true;
}

bool cpu_layout_joins(const struct jm_node *n, const struct jm_layout *layout)
{
	int64_t block = 1;

	for (int i = 0; i < layout->n_blocks; i++) {
		if (layout->block_dim[i] != n->attr.concat.axis)
			return false;
		block *= layout->block[i];
	}
	for (int i = 0; i < JM_PARTS; i++)
		if (n->attr.concat.size[i] % block)
			return false;
	return true;
}

struct cpu_image cpu_image(const struct jm_tensor *t)
{
	struct cpu_image x = {0};

	if (t)
		cpu_layout_image(t, &t->layout, &x);
	return x;
}
