/* SPDX-License-Identifier: Apache-2.0 */
/* What networks that classify images have alike. */
#ifndef JM_IMAGES_H
#define JM_IMAGES_H

#include "engine/graph/model.h"

/* "image" [batch, 3, image, image] and "target" [batch], a class of each. */
extern const struct jm_input jm_images_inputs[];
/* Declares them in a graph, with images of side x side pixels; returns the images. */
struct jm_tensor *jm_images_input(
	struct jm_graph *g, int64_t batch, int64_t side, struct jm_tensor **ret_target);

/* Their dimensions; a network has some of them. */
struct jm_images {
	int64_t layers, hidden, ffn;
	int64_t image, classes; /* image: pixels of a side */
};
#define JM_IMAGES_OPTIONS                                                                          \
	JM_MODEL_INT(struct jm_images, image, "image", 100000,                                     \
		"height and width of an image, in pixels"),                                        \
		JM_MODEL_INT(struct jm_images, classes, "classes", 100000000,                      \
			"number of image classes")
struct jm_images jm_images_dims(const struct jm_values *v);

/* A dimension and its default. */
struct jm_images_dim {
	const char *name; /* NULL = the end of a list */
	int value;
};
/* Sets those that the user did not give. Errors: as jm_dim_default. */
int jm_images_complete(struct jm_values *v, const struct jm_images_dim *dims, struct jm_err *err);
/* x [batch, C] -> the loss of the linear layer "fc", which has `classes` outputs, for the classes
 * of "target". x NULL: NULL. Start values: normal, 0.01 (Goyal et al., arXiv 1706.02677);
 * torchvision leaves them to nn.Linear. */
struct jm_tensor *jm_images_classify(
	struct jm_graph *g, struct jm_tensor *x, int64_t classes, struct jm_tensor *target);

#endif
