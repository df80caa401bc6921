/* SPDX-License-Identifier: Apache-2.0 */
/* The networks that a network is made of. */
#ifndef JM_DESCRIBE_PARTS_H
#define JM_DESCRIBE_PARTS_H

#include "describe_plan.h"

/* Parameters of each part, and their memory; nothing of a network without parts. */
void describe_parts_print(const struct describe_plan *plan, FILE *out);
/* The same as a list, which is empty for a network without parts. */
json_t *describe_parts_json(const struct describe_plan *plan);

#endif
