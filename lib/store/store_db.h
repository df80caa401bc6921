/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the store: its state, and its rows. Only files of the store include this. */
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

#endif
