/* SPDX-License-Identifier: Apache-2.0 */
/* Plans, cases and records in the store. */
#ifndef JM_STORE_RUN_H
#define JM_STORE_RUN_H

#include "store/store.h"

/*
 * Records in a stable order: by the place of their case in the plan, then by repeat; the
 * order in which they were made, and interruptions, do not show. A non-zero result of fn stops the
 * call and is returned; `record` is borrowed and must not be changed, as records may share parts.
 * brief: omits the keys that the table of keys marks as detail, which no table or metric uses;
 * several times as fast.
 */
int jm_store_records(struct jm_store *s, bool brief,
	int (*fn)(void *arg, json_t *record, struct jm_err *err), void *arg, struct jm_err *err);
/* From now on a record that is damaged is handed to `fn` as a sentence, which `fn` clears, and left
 * out, in place of ending jm_store_records with JM_EFORMAT. */
void jm_store_skip_damaged(
	struct jm_store *s, void (*fn)(void *arg, struct jm_err *damage), void *arg);
/* One record whole; NULL in *ret_record: there is none, or it is damaged. */
int jm_store_record(struct jm_store *s, const char *case_id, int repeat, json_t **ret_record,
	struct jm_err *err);
/* The last stored plan (see plan.h), for the caller to decref. JM_ENOENT when there is none. */
int jm_store_last_plan(struct jm_store *s, json_t **ret_plan, struct jm_err *err);
/* Each stored plan, borrowed; fn returns non-zero to stop, which is handed back. A merged store has
 * none. */
int jm_store_plans(struct jm_store *s, int (*fn)(void *arg, const json_t *plan, struct jm_err *err),
	void *arg, struct jm_err *err);
/* Keeps a plan under its key; a plan of that key which is there already is replaced and is the
 * last. */
int jm_store_add_plan(struct jm_store *s, const char *key, const json_t *plan, struct jm_err *err);
/* The plan of that key; JM_ENOENT when there is none. */
int jm_store_plan(struct jm_store *s, const char *key, json_t **ret_plan, struct jm_err *err);
/* Keeps a case; one that is there already keeps its place. */
int jm_store_add_case(
	struct jm_store *s, const char *case_id, const json_t *parameters, struct jm_err *err);
/* The highest repeat of a case so far; 0 = none. */
int jm_store_last_repeat(
	struct jm_store *s, const char *case_id, int *ret_repeat, struct jm_err *err);
/* A run of a case that is over: *ret_repeat is the next free one. jm_store_finish commits all of it
 * at once. */
int jm_store_add_run(struct jm_store *s, const char *case_id, int *ret_repeat, struct jm_err *err);
/* A run of a case begins: the trace of an earlier attempt is removed, its record is replaced by
 * jm_store_finish; until then the state is "interrupted". */
int jm_store_begin(struct jm_store *s, const char *case_id, int repeat, struct jm_err *err);
/* The run is over; its record ("status": "ok" or "failed") is safe on the disk when this returns
 * 0. */
int jm_store_finish(struct jm_store *s, const json_t *record, struct jm_err *err);

#endif
