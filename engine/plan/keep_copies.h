/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of parameters that the update writes. */
#ifndef JM_KEEP_COPIES_H
#define JM_KEEP_COPIES_H

#include "program_plan.h"

/* Lets the update write copies of parameters, where the device has memory of its own */
int jm_program_keep_copies(struct jm_program *p, struct jm_err *err);

#endif
