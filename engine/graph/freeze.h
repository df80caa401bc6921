/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frozen parameters: they keep their values, have no gradient, master or moment, and matrices are
 * in the compute type only. A batch norm whose weight and bias are frozen uses its running
 * statistics and does not change them.
 */
#ifndef JM_FREEZE_H
#define JM_FREEZE_H

#include "weight_part.h"

/* Is the parameter of this name frozen? */
bool jm_freezes(const struct jm_freeze *f, const char *name);
/* Sets what depends on it in the cell of a parameter that was just made. */
void jm_freeze_cell(struct jm_graph *g, struct jm_cell *c);
/* Each pattern fits a parameter, and not all parameters are frozen. JM_EUSAGE names the pattern. */
int jm_freeze_check(const struct jm_graph *g, const char *model, struct jm_err *err);
/* Elements of frozen parameters, without padding, and their bytes. */
int64_t jm_freeze_parameters(const struct jm_graph *g, size_t *ret_bytes);

#endif
