/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the store: short ways to talk to the database, and its errors as sentences. */
#ifndef JM_STORE_SQL_H
#define JM_STORE_SQL_H

#include "store/store_db.h"

/* Turns an SQLite code into a sentence: full disk, damage, permissions, the lock of another
 * process. */
int jm__store_fail(struct jm_store *s, int rc, const char *doing, struct jm_err *err);
int jm__store_exec(struct jm_store *s, const char *sql, const char *doing, struct jm_err *err);
/* Prepares and binds: 's' const char * (NULL = null), 'i' sqlite3_int64. */
int jm__store_prepare(struct jm_store *s, sqlite3_stmt **ret, struct jm_err *err, const char *sql,
	const char *types, ...);
/* Prepares, binds, steps until done. */
int jm__store_do(struct jm_store *s, const char *doing, struct jm_err *err, const char *sql,
	const char *types, ...);
/* The first number of the first row; *ret stays as it is where there is none. */
int jm__store_number(struct jm_store *s, sqlite3_int64 *ret, struct jm_err *err, const char *sql,
	const char *types, ...);

#endif
