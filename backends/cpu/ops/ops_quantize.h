/* SPDX-License-Identifier: Apache-2.0 */
/* Products in 8 bits are computed in f32: processors have no instructions for them. */
#ifndef JM_CPU_OPS_QUANTIZE_H
#define JM_CPU_OPS_QUANTIZE_H

#include "backends/cpu/device/cpu.h"

static inline bool cpu_is_f8(const struct jm_tensor *t)
{
	return t && (t->type == JM_F8E4M3 || t->type == JM_F8E5M2);
}

/* y = x times the number in `scale` (may be NULL: 1), or each row times its own. */
void cpu_f8_widen(const struct jm_tensor *x, const struct jm_tensor *scale, float *y, int threads);

#endif
