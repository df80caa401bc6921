/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts between the engine, oneDNN and the kernels, and which ones the ops of this backend take. */
#ifndef JM_CPU_LAYOUT_H
#define JM_CPU_LAYOUT_H

#include "cpu.h"

/* The layout oneDNN describes; false: struct jm_layout cannot say it. */
bool cpu_layout_of(const dnnl_memory_desc_t *md, struct jm_layout *ret);
/* What oneDNN calls a tensor in that layout, with elements of that type. */
void cpu_layout_desc(const struct jm_tensor *t, const struct jm_layout *layout,
	dnnl_data_type_t type, dnnl_memory_desc_t *ret);
/* Elements in memory, padding included. */
int64_t cpu_layout_elements(const struct jm_tensor *t);
/* An image in its layout; false: the kernels cannot walk over that. t may be NULL: then data is. */
bool cpu_layout_image(
	const struct jm_tensor *t, const struct jm_layout *layout, struct cpu_image *ret);
/* In the tensor's own layout, which was chosen to be walked over. */
struct cpu_image cpu_image(const struct jm_tensor *t);

/* choices.c: fills choices for a group whose types are good; their number, 0 with a reason in err. */
int cpu_choices(const struct cpu_dev *dev, const struct jm_group *group, const struct cpu_op *op,
	struct jm_choice *choice, struct jm_err *err);
enum cpu_how { CPU_PRODUCT, CPU_CONV, CPU_CONV_WGRAD };
/* seconds.c: about how long a node takes, for its FLOPs or its bytes. Never NaN. */
double cpu_seconds(const struct cpu_dev *dev, const struct jm_node *node, enum cpu_how how);
/* conv_plan.c: the layouts oneDNN wants for a convolution or a gradient of it. */
int cpu_conv_offer(const struct cpu_dev *dev, const struct jm_node *node, struct jm_choice *choice,
	struct jm_err *err);

/* conv_matrix.c: the choice to run it as a product of matrices; 0 = no such choice. */
int cpu_conv_matrix_offer(
	const struct cpu_dev *dev, const struct jm_node *node, struct jm_choice *choice);

#endif
