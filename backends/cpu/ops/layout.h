/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of layouts between the engine, oneDNN and the kernels, and the layouts that ops
 * accept. */
#ifndef JM_CPU_LAYOUT_H
#define JM_CPU_LAYOUT_H

#include "backends/cpu/device/cpu.h"

/* Converts a layout of oneDNN; false: struct jm_layout cannot describe it. */
bool cpu_layout_of(const dnnl_memory_desc_t *md, struct jm_layout *ret);
/* oneDNN's description of a tensor in this layout and type. */
void cpu_layout_desc(const struct jm_tensor *t, const struct jm_layout *layout,
	dnnl_data_type_t type, dnnl_memory_desc_t *ret);
/* The elements in memory, including padding. */
int64_t cpu_layout_elements(const struct jm_tensor *t);
/* Describes an image for the kernels; false: they do not support its layout. t may be NULL, and
 * data then is. */
bool cpu_layout_image(
	const struct jm_tensor *t, const struct jm_layout *layout, struct cpu_image *ret);
/* True if parts (concat, split) in this layout are side by side in memory, without padding. */
bool cpu_layout_joins(const struct jm_node *n, const struct jm_layout *layout);
/* The image of a tensor whose layout the kernels support. */
struct cpu_image cpu_image(const struct jm_tensor *t);
enum cpu_how { CPU_PRODUCT, CPU_CONV, CPU_CONV_WGRAD };

#endif
