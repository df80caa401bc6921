/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the store: the database handle and short ways to talk to it. Only store*.c include this. */
#ifndef JM_STORE_DB_H
#define JM_STORE_DB_H

#include <limits.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "joulemark.h"
#include "store/store_mode.h"

struct jm_store {
	sqlite3 *db;
	char *path;
	char file[PATH_MAX];		 /* of a writer: the file that the path leads to */
	int lock_fd;			 /* the file; holds the writer's lock; -1 = reader */
	bool made;			 /* the file was made by this writer */
	bool is_used;			 /* something was stored by it */
	bool is_lost;			 /* the file was removed, replaced or overwritten */
	bool has_views;			 /* of this connection, for queries */
	bool watches_log;		 /* it has a write-ahead log */
	int busy_ms;			 /* how long SQLite waits for a lock */
	const struct jm_store_file *was; /* what must be there; NULL = any file */
	struct stat left;		 /* the file as it was after it was written last */
	struct stat log, index;		 /* the log and its index; st_nlink 0 = unknown */
	bool in_transaction;		 /* chunks wait for a commit */
	sqlite3_int64 run;		 /* row of the run that was begun last; 0 = none */
	sqlite3_stmt *insert_chunk;	 /* kept prepared */
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
/* The first number of the first row; *ret stays as it is where there is none. */
int jm__store_number(struct jm_store *s, sqlite3_int64 *ret, struct jm_err *err, const char *sql,
	const char *types, ...);
/* Opens a transaction unless one is open. */
int jm__store_transaction(struct jm_store *s, struct jm_err *err);
/* Row of a record; 0 = none. */
int jm__store_row(struct jm_store *s, const char *case_id, int repeat, sqlite3_int64 *ret,
	struct jm_err *err);

/* ---- store_place.c ---- */

/* Opens the file of a writer, made if it is not there, and takes the lock; checks that of a reader. */
int jm__store_place_open(struct jm_store *s, enum jm_store_mode mode, struct jm_err *err);
/* What is there, for a later writer; *ret_empty: nothing, or an empty file. */
int jm__store_place_try(
	const char *path, struct jm_store_file *ret, bool *ret_empty, struct jm_err *err);
/* On a network file system the shared memory of a write-ahead log does not work between nodes. */
bool jm__store_on_network(const struct jm_store *s);
/* After the file was written: remembers how it is. */
void jm__store_place_note(struct jm_store *s);
/* JM_EIO: the path leads to another file now, or to none, or another program has written the file. */
int jm__store_place_check(struct jm_store *s, struct jm_err *err);
/* When the database is closed: drops the lock; removes our log beside what took the store's place, and a file that
 * was made for nothing. */
void jm__store_place_leave(struct jm_store *s);

struct jm_chunk;
/* From a row of signal, t0_ns, t1_ns, readings, data; points into the row. */
void jm__store_chunk(sqlite3_stmt *row, struct jm_chunk *ret);
/* True if the text is a valid record. Damage is reported as jm_store_skip_damaged describes. */
bool jm__store_record_is_good(
	struct jm_store *s, const char *text, const char *case_id, int repeat);

/* The SQL that makes tables and views, or the views alone for this connection; for sqlite3_free; NULL when out of
 * memory. */
char *jm__store_schema(bool own_views);
/* JM_EFORMAT: the tables are not those that this program makes, or, where it is to be written, have a trigger or an
 * index more. */
int jm__store_check_schema(struct jm_store *s, enum jm_store_mode mode, struct jm_err *err);

#endif
