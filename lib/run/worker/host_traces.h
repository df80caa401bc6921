/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace of a case that runs on several hosts: the meters of each host, which its first rank
 * reads, as one set, and their readings at times of the head's clock.
 */
#ifndef JM_HOST_TRACES_H
#define JM_HOST_TRACES_H

#include <jansson.h>

#include "meter/meter.h"
#include "run/gang/agent_links.h"
#include "trace/trace.h"

struct jm__host_traces {
	/* of the hosts that have told theirs, as of meters_json.h; NULL = of none */
	json_t *meters;
	int n_signals;
	int first[JM_MEET_MOST]; /* 1 + signals before those of a rank; 0 = it has told none */
};

/* Adds what a rank reads; *ret: all so far. Ids and labels as in the joined record
 * (result/record_hosts.h). */
int jm__host_traces_add(struct jm__host_traces *t, const struct jm_agent_links *h, int rank,
	const json_t *meters, struct jm_meters *ret, struct jm_err *err);
/*
 * Of a chunk of a rank: *ret_bytes, which the caller frees, are those of the same chunk in the
 * trace of all. False: there is no place for it, or no memory.
 */
bool jm__host_traces_move(const struct jm__host_traces *t, const struct jm_agent_links *h, int rank,
	struct jm_chunk *chunk, void **ret_bytes);
void jm__host_traces_done(struct jm__host_traces *t);

#endif
