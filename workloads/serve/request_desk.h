/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of clients (--listen) on their way to a replica and back, in memory that all processes
 * share. A request has a place: the listener puts it there (listen.h), the queue hands it to a
 * replica (request_queue.h), and the place is free again when both are done with it. The listener
 * is a thread of rank 0; it is the only one that puts and frees.
 */
#ifndef JM_REQUEST_DESK_H
#define JM_REQUEST_DESK_H

#include <stdatomic.h>

#include "completion_request.h"

#define JM_DESK_PLACES 2048 /* requests at once */

struct jm_desk_place {
	/* by the listener, before the queue has it */
	_Alignas(64) _Atomic int64_t arrived; /* ns of the machine's clock */
	_Atomic int input, output;	      /* tokens of the prompt, and of the answer */
	struct jm_rule rule;
	bool has_seed;
	uint64_t seed;
	/* by the listener, at any time: nobody waits for the answer any more */
	_Atomic bool is_cancelled;
	/* by the replica */
	_Alignas(64) _Atomic int rank;
	_Atomic int64_t made_ns; /* when the latest token was made */
	/* tokens of the answer so far; with all of them the replica is done with the place */
	_Atomic int made;
	_Atomic bool is_dropped; /* the replica is done with the place before all were made */
};

struct jm_desk_shared;

struct jm_desk {
	struct jm_desk_shared *shared; /* NULL = no requests of clients */
	struct jm_desk_place *place;   /* [JM_DESK_PLACES] */
	int32_t *token;		       /* [JM_DESK_PLACES][each]: of a prompt, then of the answer */
	size_t each;
};

/* Bytes for prompts and answers that together have up to `context` tokens. */
size_t jm_desk_bytes(int64_t context);
/* In memory of so many bytes, at first all zero, whose begin is that of a page. */
struct jm_desk jm_desk_at(void *memory, int64_t context);

/* ---- the listener ---- */

/* The prompt is tokens; together with the answer at most `context`. */
void jm_desk_put(struct jm_desk *d, int place, const struct jm_ask *ask, int64_t arrived);
void jm_desk_cancel(struct jm_desk *d, int place);
/* Tokens of the answer so far: *ret_n. *ret_is_over: there will be no more, and the replica is done
 * with the place. */
const int32_t *jm_desk_answer(const struct jm_desk *d, int place, int *ret_n, bool *ret_is_over);
/* When it is over: gives back the memory of a long prompt and its answer. */
void jm_desk_free(struct jm_desk *d, int place);
/* What jm_desk_wait takes, read before the look that found nothing new. */
uint32_t jm_desk_news(const struct jm_desk *d);
/* Sleeps until there are news, for ns at most. */
void jm_desk_wait(struct jm_desk *d, uint32_t news, int64_t ns);

/* ---- replicas ---- */

const int32_t *jm_desk_prompt(const struct jm_desk *d, int place);
/* The next token of an answer. After the last one, and after a drop, the place is not the replica's
 * any more. The listener looks at it after jm_desk_tell. */
void jm_desk_add_token(struct jm_desk *d, int place, int32_t token, int64_t now_ns);
void jm_desk_drop(struct jm_desk *d, int place);
void jm_desk_tell(struct jm_desk *d);

#endif
