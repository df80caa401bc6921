/* SPDX-License-Identifier: Apache-2.0 */
/* Copies records of one store to another. */
#ifndef JM_STORE_MERGE_H
#define JM_STORE_MERGE_H

#include "store/store.h"

/* Copies the finished and failed records of `from` with their traces and without plans. Adds to
 * *ret_n how many were copied, and to *ret_there how many were there before. Another run of a case
 * and repeat that is taken gets the next free repeat. Damage: jm_store_skip_damaged of `from`. */
int jm_store_merge(
	struct jm_store *to, struct jm_store *from, int *ret_n, int *ret_there, struct jm_err *err);

#endif
