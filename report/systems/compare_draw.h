/* SPDX-License-Identifier: Apache-2.0 */
/* The changes of B against A as a drawing in text: the interval of each metric on one scale. */
#ifndef JM_COMPARE_DRAW_H
#define JM_COMPARE_DRAW_H

#include "comparison.h"

#include <stdio.h>

/* Nothing where no interval is known, or the width has no room. */
void jm_compare_draw(const struct jm_compare_row *row, int width, FILE *out);

#endif
