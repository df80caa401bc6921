/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and loads backends. */
#ifndef JM_BACKEND_FIND_H
#define JM_BACKEND_FIND_H

#include "backend.h"

/* Splits "cuda:1" into name "cuda" and index 1. */
int jm__backend_split(
	const char *text, char *ret_name, size_t size, int *ret_index, struct jm_err *err);
/* Returns a checked table; the library of one that is not built in stays loaded, because threads of
 * runtimes such as OpenMP execute its code. */
int jm__backend_find(const char *name, const struct jm_backend **ret, struct jm_err *err);

/* Checks whether the device's backend can be loaded; opens no device. */
int jm_backend_check(const char *name, struct jm_err *err);

/* The i-th backend of the source tree, built or not, "ref" last; NULL after it. */
const char *jm_backend_name(size_t i);

/* Checks whether the name is that of a backend, without loading it; JM_EUSAGE: it is not. */
int jm_device_check(const char *text, struct jm_err *err);

#endif
