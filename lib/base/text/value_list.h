/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several values of one option as people write them: a list 4,8,16, a range with its step 16:64+16,
 * a range with its factor 16:4096*2, both ends included. A unit may follow the last number.
 */
#ifndef JM_VALUE_LIST_H
#define JM_VALUE_LIST_H

#include "joulemark.h"

#define JM_VALUES_MOST 100000 /* of one range */

struct jm_value_range {
	double first, last, step; /* step: added, or multiplied by */
	bool factor;
	const char *unit; /* within the text; "" = none */
	int n;
};

/* Is the text a range? JM_EUSAGE or JM_ERANGE: it is one that has no values, or too many; 1: it is
 * none. */
int jm_value_range(const char *text, struct jm_value_range *ret, struct jm_err *err);
/* The i-th value, from 0: "16", "300W". */
void jm_value_of_range(const struct jm_value_range *range, int i, char *out, size_t size);

/* Calls fn for each value of a list whose elements may be ranges. ranges: false = "1:8*2" is a text
 * like any other. */
typedef int jm_value_fn(void *arg, const char *value, struct jm_err *err);
int jm_value_list(const char *text, bool ranges, jm_value_fn *fn, void *arg, struct jm_err *err);

#endif
