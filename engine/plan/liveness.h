/* SPDX-License-Identifier: Apache-2.0 */
/* When tensors are in use. */
#ifndef JM_LIVENESS_H
#define JM_LIVENESS_H

#include "program_plan.h"

/* First, last and alias of every cell; false = out of memory */
bool jm_program_liveness(struct jm_program *p);
/* True if another stage sends it. */
bool jm_cell_is_received(const struct jm_cell *c);

#endif
