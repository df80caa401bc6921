/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the store: the database handle and short ways to talk to it. Only store*.c include this. */
#ifndef JM_STORE_DB_H
#define JM_STORE_DB_H

#include <sqlite3.h>
#include <stdbool.h>

#include "joulemark.h"

struct jm_store {
	sqlite3 *db;
	char *path;
	int lock_fd;		    /* holds the writer's lock; -1 = reader */
	bool in_transaction;	    /* chunks wait for a commit */
	sqlite3_int64 run;	    /* row of the run that was begun last; 0 = none */
	sqlite3_stmt *insert_chunk; /* kept prepared */
	void (*damaged)(void *arg, struct jm_err *damage); /* NULL = damage is an error */
	void *damaged_arg;
};

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
/* Opens a transaction unless one is open. */
int jm__store_transaction(struct jm_store *s, struct jm_err *err);
/* Row of a record; 0 = none. */
int jm__store_row(struct jm_store *s, const char *case_id, int repeat, sqlite3_int64 *ret,
	struct jm_err *err);

struct jm_chunk;
/* From a row of signal, t0_ns, t1_ns, readings, data; points into the row. */
void jm__store_chunk(sqlite3_stmt *row, struct jm_chunk *ret);
/* True if the text is a valid record. Damage is reported as jm_store_skip_damaged describes. */
bool jm__store_record_is_good(
	struct jm_store *s, const char *text, const char *case_id, int repeat);

/* The SQL that makes tables and views; for sqlite3_free; NULL when out of memory. */
char *jm__store_schema(void);

#endif
