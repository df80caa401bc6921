/* SPDX-License-Identifier: Apache-2.0 */
#include "images.h"
#include "engine/graph/layer.h"

#define FC_STD 0.01

const struct jm_input jm_images_inputs[] = {
	{.name = "image", .fill = JM_FILL_NORMAL, .field = "image"},
	{.name = "target", .fill = JM_FILL_CLASS, .below = "classes", .field = "class"},
	{0},
};

struct jm_tensor *jm_images_input(
	struct jm_graph *g, int64_t batch, int64_t side, struct jm_tensor **ret_target)
{
	const int64_t pixels[] = {batch, 3, side, side};
	struct jm_tensor *image = jm_graph_input(g, "image", g->compute, 4, pixels);

	*ret_target = jm_graph_input(g, "target", JM_I32, 1, &batch);
	return image;
}

struct jm_images jm_images_dims(const struct jm_values *v)
{
	struct jm_images d = {0};

	JM_FILL(v, &d);
	return d;
}

int jm_images_complete(struct jm_values *v, const struct jm_images_dim *dims, struct jm_err *err)
{
	int code = 0;

	for (; dims->name && !code; dims++)
		code = jm_dim_default(v, dims->name, dims->value, err);
	return code;
}

struct jm_tensor *jm_images_classify(
	struct jm_graph *g, struct jm_tensor *x, int64_t classes, struct jm_tensor *target)
{
	struct jm_tensor *fc =
		x ? jm_graph_matrix(g, "fc.weight", JM_INIT_NORMAL, classes, x->dim[1]) : NULL;

	if (!fc)
		return NULL;
	jm_graph_cell(g, fc)->init_std = FC_STD;
	x = jm_graph_linear(g, x, fc, jm_graph_vector(g, "fc.bias", JM_INIT_ZERO, classes));
	return jm_graph_softmax_xent(g, x, target);
}
