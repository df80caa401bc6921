/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and loads backends; used by device.c only. */
#ifndef JM_BACKEND_FIND_H
#define JM_BACKEND_FIND_H

#include "device.h"

/* Splits "cuda:1" into name "cuda" and index 1. */
int jm__backend_split(
	const char *text, char *ret_name, size_t size, int *ret_index, struct jm_err *err);
/* Returns a checked table. *ret_library: the loaded library; NULL = the backend is built in. */
int jm__backend_find(
	const char *name, const struct jm_backend **ret, void **ret_library, struct jm_err *err);

#endif
