/* SPDX-License-Identifier: Apache-2.0 */
/* Finding and loading backends: for device.c alone. */
#ifndef JM_BACKEND_FIND_H
#define JM_BACKEND_FIND_H

#include "device.h"

/* "cuda:1" is name "cuda", index 1. */
int jm__backend_split(
	const char *text, char *ret_name, size_t size, int *ret_index, struct jm_err *err);
/* A table that was checked. *ret_library: what was loaded for it; NULL = it is built in. */
int jm__backend_find(
	const char *name, const struct jm_backend **ret, void **ret_library, struct jm_err *err);

#endif
