/* SPDX-License-Identifier: Apache-2.0 */
/* A token is drawn from logits: op sample with a rule (engine/graph/op_list.h). */
#ifndef JM_CPU_DRAW_H
#define JM_CPU_DRAW_H

#include <stdint.h>

/* x[n]; rule: temperature above 0, p, k. bits: random. */
int32_t cpu_draw(const float *x, int64_t n, const float *rule, uint64_t bits);

#endif
