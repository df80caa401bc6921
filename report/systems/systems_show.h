/* SPDX-License-Identifier: Apache-2.0 */
/* Systems by work as tables and as JSON. */
#ifndef JM_SYSTEMS_SHOW_H
#define JM_SYSTEMS_SHOW_H

#include "systems.h"

int jm_systems_print(const struct jm_systems *s, int width, FILE *f, struct jm_err *err);
json_t *jm_systems_json(const struct jm_systems *s); /* NULL: no memory */

#endif
