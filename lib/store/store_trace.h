/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of records in the store. */
#ifndef JM_STORE_TRACE_H
#define JM_STORE_TRACE_H

#include "store/store.h"
#include "trace/trace.h"

/* Trace of a record; the phases are in the record. JM_ENOENT when none is kept. The caller frees
 * both: jm_trace_free, then jm_meters_done. The trace points into *ret_meters, which must stay in
 * place. */
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
/* Of the run that was begun last: its signals (once), then its chunks (see jm_chunk). */
int jm_store_add_signals(struct jm_store *s, const struct jm_meters *set, struct jm_err *err);
int jm_store_add_chunk(struct jm_store *s, const struct jm_chunk *chunk, struct jm_err *err);

#endif
