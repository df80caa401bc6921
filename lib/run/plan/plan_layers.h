/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a plan: what includes what, and the platform. */
#ifndef JM_PLAN_LAYERS_H
#define JM_PLAN_LAYERS_H

#include "plan_file_private.h"

/* The command line, the file and what it includes, the platform. */
int jm__plan_layers(struct jm__plan_loader *l, const char *path);
void jm__plan_layers_done(struct jm__plan_loader *l);

#endif
