/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a measurement: headline, meters, phases, grade. */
#ifndef JM_MEASURE_SHOW_H
#define JM_MEASURE_SHOW_H

#include <jansson.h>

#include "measure_text.h"

void jm_measure_print(const struct jm_measure_text *t, const json_t *record);

#endif
