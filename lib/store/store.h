/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room store: one SQLite file of plans, records and traces.
 * May include: base, meter, trace, energy, measure, guard, result, tune.
 *
 * The store: one SQLite file that keeps plans, cases, records and traces. A kill at any moment
 * loses at most the last second of trace, never a finished record. A record is known by (case id,
 * repeat).
 *
 * Documented views, for people with sqlite3 (see store_schema.c):
 *	cases    case_id, parameters
 *	records  case_id, repeat, status, attempt, started, record (JSON)
 *	results  one flat row per record: workload, device, settings, throughput, joules, grade...
 */
#ifndef JM_STORE_H
#define JM_STORE_H

#include <jansson.h>
#include <stdbool.h>

#include "store/store_mode.h"
#include "trace/trace.h"

struct jm_store;

/* A file of another program, a newer version, damage, no rights: each its own sentence. */
int jm_store_open(
	const char *path, enum jm_store_mode mode, struct jm_store **ret, struct jm_err *err);
/* Would jm_store_open take the file for writing? Makes nothing, locks nothing and waits for
 * nothing. */
int jm_store_try(const char *path, struct jm_store_file *ret, struct jm_err *err);
/* After jm_store_close, as a close drops the locks of SQLite. */
void jm_store_file_done(struct jm_store_file *f);
/* Opens for writing what jm_store_try has seen. JM_EBUSY after about a second; JM_EIO: another file
 * is there now, or none; where there was none, any store is taken. */
int jm_store_open_again(const char *path, const struct jm_store_file *was, struct jm_store **ret,
	struct jm_err *err);
/*
 * Commits what is open and checkpoints. NULL is taken. A failure loses no finished record, except
 * where the file was removed, replaced or overwritten by others (JM_EIO): nothing more is written
 * then, and no log of ours stays there. A file that was made and in which nothing was stored is
 * removed.
 */
int jm_store_close(struct jm_store *s, struct jm_err *err);
const char *jm_store_path(const struct jm_store *s);

/* Drops what was not committed. */
void jm_store_rollback(struct jm_store *s);
/* Chunks so far are safe on the disk after this; to be called about once a second. */
int jm_store_commit(struct jm_store *s, struct jm_err *err);

#endif
