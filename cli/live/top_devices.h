/* SPDX-License-Identifier: Apache-2.0 */
/* A row for each device, below their titles. */
#ifndef JM_TOP_DEVICES_H
#define JM_TOP_DEVICES_H

#include "top_model.h"

#include <stdio.h>

/* Lines of at most `width` columns. */
void jm_top_put_devices(const struct jm_top_view *view, int width, FILE *out);

#endif
