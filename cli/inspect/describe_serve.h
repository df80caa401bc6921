/* SPDX-License-Identifier: Apache-2.0 */
/* What serving a model takes: its weights, and the pages that the rest of the memory holds. */
#ifndef JM_DESCRIBE_SERVE_H
#define JM_DESCRIBE_SERVE_H

#include "describe_plan.h"

/* Plans the steps of `run serve` and writes plan->serve; of plan are set options, dims, precision
 * and the open device. JM_ERANGE: the memory holds no page. */
int describe_serve_plan(struct describe_plan *plan, struct jm_err *err);
void describe_serve_print(const struct describe_plan *plan, FILE *out);
json_t *describe_serve_json(const struct describe_plan *plan);

#endif
