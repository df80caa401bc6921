/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power trace of one run for the page, reading by reading: per meter, points in order of time,
 * thinned so that the lowest and the highest reading and the first gap of each stretch of time
 * stay. A meter that only counts energy gives the mean power between two changes of its counter.
 *
 * Memory and time do not depend on the length of the run: stretches that fill up are joined in
 * pairs.
 */
#ifndef JM_PAGE_TRACE_H
#define JM_PAGE_TRACE_H

#include <jansson.h>

#include "trace/trace.h"

struct jm_page_trace;

/* stretches: at least that many of each meter of a long run, at most twice as many. The set must
 * outlive the trace. NULL: no memory. */
struct jm_page_trace *jm_page_trace_new(const struct jm_meters *set, int stretches);
/* Seconds count from here in place of the first reading; what was read before stands at 0. */
void jm_page_trace_begin(struct jm_page_trace *t, int64_t t0_ns);
/* Is the signal the one that a meter's power is taken from? */
bool jm_page_trace_wants(const struct jm_page_trace *t, int signal);
/* Readings of a signal come in order of time; those of unwanted signals are ignored. */
void jm_page_trace_take(struct jm_page_trace *t, int signal, struct jm_reading reading);
/* All readings of a chunk; damage is JM_EFORMAT. */
int jm_page_trace_chunk(struct jm_page_trace *t, const struct jm_chunk *chunk, struct jm_err *err);
/*
 * {record, end_s, readings, meters[] {id, label, origin, n, points, means}}, seconds since the
 * first reading of all; null when there is no power in it; NULL: no memory. points: base64 of n
 * points, each two varints (7 bits a byte, the lowest first, the highest bit set on all but the
 * last): milliseconds since the point before; 0 for a gap, else 1 + zigzag of the change in 0.1 W
 * since the last power (2 d for d >= 0, -2 d - 1 below). means: only of meters that include others
 * or are included: W in each of 60 equal parts of the time, a reading holds until the next one;
 * null where the power is unknown for more than half of the part.
 */
json_t *jm_page_trace_json(const struct jm_page_trace *t, int record);
void jm_page_trace_free(struct jm_page_trace *t); /* takes NULL */

#endif
