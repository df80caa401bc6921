/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the store: its tables and views. */
#ifndef JM_STORE_SCHEMA_H
#define JM_STORE_SCHEMA_H

#include "store/store_db.h"

/* The SQL that makes tables and views, or the views alone for this connection; for sqlite3_free;
 * NULL when out of memory. */
char *jm__store_schema(bool own_views);
/* JM_EFORMAT: the tables are not those that this program makes, or, where it is to be written, have
 * a trigger or an index more. */
int jm__store_check_schema(struct jm_store *s, enum jm_store_mode mode, struct jm_err *err);

#endif
