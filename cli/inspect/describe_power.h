/* SPDX-License-Identifier: Apache-2.0 */
/* The power of a training that has not run, estimated from those that were measured. */
#ifndef JM_DESCRIBE_POWER_H
#define JM_DESCRIBE_POWER_H

#include "describe_plan.h"

/* Writes plan->power, of which the store is set, for the program on its device. JM_ERANGE: the runs
 * are too few, too much alike, or of other work. */
int describe_power_estimate(struct describe_plan *plan, struct jm_err *err);
void describe_power_print(const struct describe_plan *plan, FILE *out);
json_t *describe_power_json(const struct describe_plan *plan);

#endif
