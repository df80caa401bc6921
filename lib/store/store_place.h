/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the store: its file, which may be locked, removed or replaced by others. */
#ifndef JM_STORE_PLACE_H
#define JM_STORE_PLACE_H

#include "store/store_db.h"

/* Error: nothing was stored in that file, which is empty. */
int jm__store_nothing(const char *path, struct jm_err *err);
/* Opens the file of a writer, made if it is not there, and takes the lock; checks that of a
 * reader. */
int jm__store_place_open(struct jm_store *s, enum jm_store_mode mode, struct jm_err *err);
/* What is there, for a later writer; *ret_empty: nothing, or an empty file. */
int jm__store_place_try(
	const char *path, struct jm_store_file *ret, bool *ret_empty, struct jm_err *err);
/* On a network file system the shared memory of a write-ahead log does not work between nodes. */
bool jm__store_on_network(const struct jm_store *s);
/* After the file was written: remembers how it is. */
void jm__store_place_note(struct jm_store *s);
/* JM_EIO: the path leads to another file now, or to none, or another program has written the
 * file. */
int jm__store_place_check(struct jm_store *s, struct jm_err *err);
/* When the database is closed: drops the lock; removes our log beside what took the store's place,
 * and a file that was made for nothing. */
void jm__store_place_leave(struct jm_store *s);

#endif
