/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of parameters and their gradients. */
#ifndef JM_PARAM_LAYOUT_H
#define JM_PARAM_LAYOUT_H

#include "program_plan.h"

void jm_program_lay_parameters(struct jm_program *p);

#endif
