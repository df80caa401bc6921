/* SPDX-License-Identifier: Apache-2.0 */
/* A comparison as a table and as JSON. */
#ifndef JM_COMPARE_SHOW_H
#define JM_COMPARE_SHOW_H

#include "comparison.h"
#include "compare_names.h"

int jm_compare_print(const struct jm_compare *c, const struct jm_compare_names *names, int width,
	FILE *f, struct jm_err *err);
/* NULL: no memory */
json_t *jm_compare_json(const struct jm_compare *c, const struct jm_compare_names *names);

#endif
