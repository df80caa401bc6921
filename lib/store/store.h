/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room store: one SQLite file of plans, records and traces.
 * May include: base, meter, trace, energy, measure, guard, result, tune.
 *
 * The store: one SQLite file that keeps plans, cases, records and traces. A kill at any moment loses at
 * most the last second of trace, never a finished record. A record is known by (case id, repeat).
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
/* Would jm_store_open take the file for writing? Makes nothing, locks nothing and waits for nothing. */
int jm_store_try(const char *path, struct jm_store_file *ret, struct jm_err *err);
/* After jm_store_close, as a close drops the locks of SQLite. */
void jm_store_file_done(struct jm_store_file *f);
/* Opens for writing what jm_store_try has seen. JM_EBUSY after about a second; JM_EIO: another file is there now, or
 * none; where there was none, any store is taken. */
int jm_store_open_again(const char *path, const struct jm_store_file *was, struct jm_store **ret,
	struct jm_err *err);
/*
 * Commits what is open and checkpoints. NULL is taken. A failure loses no finished record, except where the file was
 * removed, replaced or overwritten by others (JM_EIO): nothing more is written then, and no log of ours stays there.
 * A file that was made and in which nothing was stored is removed.
 */
int jm_store_close(struct jm_store *s, struct jm_err *err);
const char *jm_store_path(const struct jm_store *s);

/*
 * Reading. Records in a stable order: by the place of their case in the plan, then by repeat; the
 * order in which they were made, and interruptions, do not show. A non-zero result of fn stops the
 * call and is returned; `record` is borrowed and must not be changed, as records may share parts.
 * brief: omits the keys that the table of keys marks as detail, which no table or metric uses;
 * several times as fast.
 */
int jm_store_records(struct jm_store *s, bool brief,
	int (*fn)(void *arg, json_t *record, struct jm_err *err), void *arg, struct jm_err *err);
/* From now on a record that is damaged is handed to `fn` as a sentence, which `fn` clears, and left out, in
 * place of ending jm_store_records with JM_EFORMAT. */
void jm_store_skip_damaged(
	struct jm_store *s, void (*fn)(void *arg, struct jm_err *damage), void *arg);
/* All of them as an array, for the caller to decref. */
int jm_store_records_array(struct jm_store *s, json_t **ret_records, struct jm_err *err);
/* Trace of a record; the phases are in the record. JM_ENOENT when none is kept. The caller frees both:
 * jm_trace_free, then jm_meters_done. The trace points into *ret_meters, which must stay in place. */
int jm_store_trace(struct jm_store *s, const char *case_id, int repeat,
	struct jm_meters *ret_meters, struct jm_trace **ret_trace, struct jm_err *err);
/* The signals of that trace alone, and its chunks one by one in order of time per signal, as they
 * are in the store: unchecked. */
int jm_store_signals(struct jm_store *s, const char *case_id, int repeat,
	struct jm_meters *ret_meters, struct jm_err *err);
struct jm_chunk_reader {
	bool (*wants)(void *arg, int signal); /* NULL = all signals */
	int (*take)(void *arg, const struct jm_chunk *chunk, struct jm_err *err);
	void *arg;
};
int jm_store_chunks(struct jm_store *s, const char *case_id, int repeat,
	const struct jm_chunk_reader *reader, struct jm_err *err);
/* One record whole; NULL in *ret_record: there is none, or it is damaged. */
int jm_store_record(struct jm_store *s, const char *case_id, int repeat, json_t **ret_record,
	struct jm_err *err);
/* One SELECT on the views; anything else, and the tables of the views, is refused (JM_EUSAGE). fn
 * gets the names of the columns with row NULL first, then each row as an array; both are borrowed.
 * Non-zero stops. */
typedef int jm_store_row_fn(void *arg, const json_t *names, json_t *row, struct jm_err *err);
int jm_store_query(
	struct jm_store *s, const char *sql, jm_store_row_fn *fn, void *arg, struct jm_err *err);
/* The last stored plan (see plan.h), for the caller to decref. JM_ENOENT when there is none. */
int jm_store_last_plan(struct jm_store *s, json_t **ret_plan, struct jm_err *err);
/* Each stored plan, borrowed; fn returns non-zero to stop, which is handed back. A merged store has none. */
int jm_store_plans(struct jm_store *s, int (*fn)(void *arg, const json_t *plan, struct jm_err *err),
	void *arg, struct jm_err *err);

/* Writing. */
/* Keeps a plan under its key; a plan of that key which is there already is replaced and is the last. */
int jm_store_add_plan(struct jm_store *s, const char *key, const json_t *plan, struct jm_err *err);
/* The plan of that key; JM_ENOENT when there is none. */
int jm_store_plan(struct jm_store *s, const char *key, json_t **ret_plan, struct jm_err *err);
/* Keeps a case; one that is there already keeps its place. */
int jm_store_add_case(
	struct jm_store *s, const char *case_id, const json_t *parameters, struct jm_err *err);
/* The highest repeat of a case so far; 0 = none. */
int jm_store_last_repeat(
	struct jm_store *s, const char *case_id, int *ret_repeat, struct jm_err *err);
/* A run of a case that is over: *ret_repeat is the next free one. jm_store_finish commits all of it at once. */
int jm_store_add_run(struct jm_store *s, const char *case_id, int *ret_repeat, struct jm_err *err);
/* Drops what was not committed. */
void jm_store_rollback(struct jm_store *s);
/* A run of a case begins: the trace of an earlier attempt is removed, its record is replaced by
 * jm_store_finish; until then the state is "interrupted". */
int jm_store_begin(struct jm_store *s, const char *case_id, int repeat, struct jm_err *err);
/* Of the run that was begun last: its signals (once), then its chunks (see jm_chunk). */
int jm_store_add_signals(struct jm_store *s, const struct jm_meters *set, struct jm_err *err);
int jm_store_add_chunk(struct jm_store *s, const struct jm_chunk *chunk, struct jm_err *err);
/* Chunks so far are safe on the disk after this; to be called about once a second. */
int jm_store_commit(struct jm_store *s, struct jm_err *err);
/* Copies the finished and failed records of `from` with their traces and without plans. Adds to *ret_n how many
 * were copied, and to *ret_there how many were there before. Another run of a case and repeat that is taken gets
 * the next free repeat. Damage: jm_store_skip_damaged of `from`. */
int jm_store_merge(
	struct jm_store *to, struct jm_store *from, int *ret_n, int *ret_there, struct jm_err *err);
/* The run is over; its record ("status": "ok" or "failed") is safe on the disk when this returns 0. */
int jm_store_finish(struct jm_store *s, const json_t *record, struct jm_err *err);

#endif
