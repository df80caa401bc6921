/* SPDX-License-Identifier: Apache-2.0 */
/* cache-write and attention-pages whose keys and values are in e4m3. They show what the rounding
 * does to answers, not its speed: plain loops, whose sums are in one order. */
#ifndef JM_CPU_OPS_PAGES_F8_H
#define JM_CPU_OPS_PAGES_F8_H

#include "backends/cpu/kernels/kernel_set.h"

void cpu_pages_f8_write(const struct cpu_paged *p, int threads);
void cpu_pages_f8_attention(const struct cpu_paged *p, int threads);

#endif
