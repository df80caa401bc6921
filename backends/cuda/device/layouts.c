/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts that several ops accept: channels last, padded rows, and those of elementwise ops. */
#include <math.h>

#include "cuda.h"
#include "layouts.h"

const struct jm_layout cuda_layout_last = {.rank = 4, .order = {0, 2, 3, 1}};

bool cuda_is_dense(const struct jm_layout *layout)
{
	return layout->n_blocks == 0;
}

#define ROW_BLOCK 64 /* elements */

void cuda_rows_layout(const struct jm_tensor *t, struct jm_layout *ret)
{
	int64_t width = jm_tensor_width(t);

	*ret = (struct jm_layout){0};
	if (width % (t->type == JM_F32 ? 4 : 8) == 0 || width < ROW_BLOCK || jm_tensor_rows(t) == 1)
		return;
	ret->rank = (int16_t)t->rank;
	for (int16_t i = 0; i < t->rank; i++)
		ret->order[i] = i;
	ret->n_blocks = 1;
	ret->block_dim[0] = (int16_t)(t->rank - 1);
	ret->block[0] = ROW_BLOCK;
}

int64_t cuda_row_stride(const struct jm_tensor *t)
{
	int64_t width = jm_tensor_width(t);
	struct jm_layout padded;

	if (!t->layout.rank)
		return width;
	cuda_rows_layout(t, &padded);
	return jm_layout_equal(&padded, &t->layout)
		       ? (width + ROW_BLOCK - 1) / ROW_BLOCK * ROW_BLOCK
		       : 0;
}

/* Each of the two dims is one block: the rows keep their order, and rows of zeros follow them. */
void cuda_tall_layout(const struct jm_tensor *t, struct jm_layout *ret)
{
	*ret = (struct jm_layout){0};
	if (t->rank != 2 || t->dim[0] % 8 == 0 || t->dim[0] < ROW_BLOCK || t->dim[1] > INT16_MAX)
		return;
	*ret = (struct jm_layout){.rank = 2, .order = {0, 1}, .n_blocks = 2, .block_dim = {0, 1}};
	ret->block[0] = ROW_BLOCK;
	ret->block[1] = (int16_t)t->dim[1];
}

bool cuda_is_tall(const struct jm_tensor *t)
{
	struct jm_layout tall;

	if (t->layout.n_blocks != 2)
		return false;
	cuda_tall_layout(t, &tall);
	return jm_layout_equal(&tall, &t->layout);
}

int64_t cuda_tall_rows(const struct jm_tensor *t)
{
	return (t->dim[0] + ROW_BLOCK - 1) / ROW_BLOCK * ROW_BLOCK;
}

struct candidates {
	int n;
	struct jm_layout layout[JM_CHOICE_MAX];
};

static void suggest(struct candidates *c, const struct jm_layout *layout)
{
	for (int i = 0; i < c->n; i++)
		if (jm_layout_equal(&c->layout[i], layout))
			return;
	if (c->n < JM_CHOICE_MAX && cuda_is_dense(layout))
		c->layout[c->n++] = *layout;
}

static void fill(struct jm_choice *choice, const struct jm_node *node, unsigned in, unsigned out,
	const struct jm_layout *layout)
{
	for (int i = 0; i < node->n_in; i++)
		if (node->in[i] && in >> i & 1)
			choice->in[0][i] = *layout;
	for (int i = 0; i < node->n_out; i++)
		if (node->out[i] && out >> i & 1)
			choice->out[0][i] = *layout;
	choice->seconds = choice->flops_executed = NAN;
}

int cuda_choices_follow(
	const struct jm_node *node, unsigned in, unsigned out, struct jm_choice *choice)
{
	struct candidates all = {0};

	for (int i = 0; i < node->n_out; i++)
		if (node->out[i] && out >> i & 1 && jm_node_adds(node, i))
			suggest(&all, &node->out[i]->layout);
	for (int i = 0; i < node->n_in; i++)
		if (node->in[i] && in >> i & 1)
			suggest(&all, &node->in[i]->layout);
	suggest(&all, &(struct jm_layout){0});
	for (int i = 0; i < all.n; i++)
		fill(&choice[i], node, in, out, &all.layout[i]);
	return all.n;
}
