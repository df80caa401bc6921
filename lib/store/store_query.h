/* SPDX-License-Identifier: Apache-2.0 */
/* Queries on the views of the store. */
#ifndef JM_STORE_QUERY_H
#define JM_STORE_QUERY_H

#include "store/store.h"

/* One SELECT on the views; anything else, and the tables of the views, is refused (JM_EUSAGE). fn
 * gets the names of the columns with row NULL first, then each row as an array; both are borrowed.
 * Non-zero stops. */
typedef int jm_store_row_fn(void *arg, const json_t *names, json_t *row, struct jm_err *err);
int jm_store_query(
	struct jm_store *s, const char *sql, jm_store_row_fn *fn, void *arg, struct jm_err *err);

#endif
