/* SPDX-License-Identifier: Apache-2.0 */
/* FILE:NAME=VALUE,... */
#ifndef JM_COMPARE_SIDE_H
#define JM_COMPARE_SIDE_H

#include "compare_parts.h"

int jm_given_read(const char *text, struct jm_given *g, struct jm_err *err);
void jm_given_done(struct jm_given *g);

#endif
