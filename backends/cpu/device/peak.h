/* SPDX-License-Identifier: Apache-2.0 */
/* The processor's name, and the speed of its bf16 instructions. */
#ifndef JM_CPU_PEAK_H
#define JM_CPU_PEAK_H

#include <stdbool.h>
#include <stddef.h>

/* The rate of bf16 dot products of one core in FLOP/s; 0 = the processor has no such
 * instructions. */
double cpu_peak_bf16(void);
/* True if the processor has matrix tiles, with which oneDNN's bf16 is the fastest choice. */
bool cpu_has_tiles(void);
/* True if oneDNN's bf16 is faster than f32 arithmetic on widened operands; by the kind of
 * processor, so that the answer is always the same. */
bool cpu_bf16_is_fast(void);
/* The name that the processor reports, or "CPU". */
void cpu_brand(char *ret, size_t size);

#endif
