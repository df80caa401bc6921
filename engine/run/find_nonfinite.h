/* SPDX-License-Identifier: Apache-2.0 */
/* Where a value first became infinite or NaN. */
#ifndef JM_FIND_NONFINITE_H
#define JM_FIND_NONFINITE_H

#include "program.h"

/* Runs a micro-step and checks every value. 1 = a value is not finite, and ret
 * holds a clause that says where the first one appeared; 0 = all are finite. */
int jm_program_find_nonfinite(struct jm_program *p, char *ret, size_t size, struct jm_err *err);

#endif
