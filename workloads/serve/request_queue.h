/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one queue of requests of several replicas, in memory that their processes share. A request is
 * a number: when it arrives and what it asks follows from the number and the options, which all
 * replicas have, so that they only agree on who takes which. Numbers are taken in their order, each
 * by one replica, without waiting for another one.
 *
 * Who takes the next request: a replica that has room for it (a free place and free pages), and of
 * these the one with the fewest requests under way; a request never waits while a replica has none.
 * With --arrival closed each replica takes a new one for each that it has answered.
 *
 * Requests of clients (--listen) are handed out in the same way, whether there are several replicas
 * or one; their numbers stand for places of a desk (request_desk.h).
 */
#ifndef JM_REQUEST_QUEUE_H
#define JM_REQUEST_QUEUE_H

#include "request_desk.h"
#include "request_load.h"

struct jm_queue_shared;

struct jm_request_queue {
	struct jm_queue_shared *shared; /* NULL = there is no queue: one replica alone */
	size_t bytes;			/* of shared */
	int rank, world;
	struct jm_load *load;
	struct jm_desk desk; /* of clients' requests */
	int place;	     /* there, of the request that was looked at last */
	/* timed: of the first request that has not arrived yet; of the first that is not late */
	struct jm_arrivals seen, late;
	bool planned;  /* these, and those of the load, have a time */
	int waiting;   /* requests, when it was looked at */
	uint32_t ends; /* of phases, so far */
};

/* All replicas open it, before any of them takes a request. work: its gang_fd is of the file that
 * they share. load: whose arrivals these are; outlives the queue. context: tokens of a request of
 * clients, at most; 0 = none are. */
int jm_queue_open(struct jm_request_queue *q, const struct jm_work *work, struct jm_load *load,
	int64_t context, struct jm_err *err);
void jm_queue_close(struct jm_request_queue *q); /* takes a zeroed one */

/*
 * The next request, if it has arrived by now: *ret has its number, its tokens and when it arrived.
 * under_way: requests of this replica. Another replica may take it first.
 */
bool jm_queue_peek(
	struct jm_request_queue *q, int64_t now_ns, int under_way, struct jm_answer *ret);
/* Is it this replica's turn, which has so many requests under way, and room for the next or not?
 * After jm_queue_peek. */
bool jm_queue_is_turn(struct jm_request_queue *q, int under_way, bool has_room);
/* Takes the request of that number; false: another replica has. */
bool jm_queue_take(struct jm_request_queue *q, int number);
/* closed: takes the next request, whose number is not known before. */
void jm_queue_take_next(struct jm_request_queue *q, int64_t now_ns, struct jm_answer *ret);
/* A request of this replica is answered. */
void jm_queue_answered(struct jm_request_queue *q);
/* When the next request arrives by itself; JM_FOREVER: when others are answered. */
int64_t jm_queue_next_ns(struct jm_request_queue *q);
/* Requests that have arrived by now: numbers below it. */
int jm_queue_arrived(struct jm_request_queue *q, int64_t now_ns);
/* Requests that were taken: numbers below it. */
int jm_queue_taken(const struct jm_request_queue *q);
/* The request of that number, which has arrived and is not taken; `place` becomes its own. */
struct jm_answer jm_queue_request(struct jm_request_queue *q, int number);
/* The listener: the request at that place of the desk arrives. Returns its number. */
int jm_queue_add(struct jm_request_queue *q, int place);
/* Other replicas whose process has failed, so that it has ended; *ret_rank: the last of them, -1 =
 * none has. */
int jm_queue_ended(const struct jm_request_queue *q, int *ret_rank);
/* Is a replica that serves clients being stopped by SIGTERM? */
bool jm_queue_stopped(const struct jm_request_queue *q);
/* What jm_queue_wait takes, read before the look at the queue that found nothing. */
uint32_t jm_queue_news(const struct jm_request_queue *q);
/* Sleeps until there are news, for ns at most. */
void jm_queue_wait(struct jm_request_queue *q, uint32_t news, int64_t ns);

/*
 * Trials of --rate max. reset: by rank 0 while the others wait; the requests begin anew. restart:
 * by each, after it and before it takes one. over: load->most requests are answered, or more than
 * `allowed` are late: `late` of this replica, and those that none has taken; then none takes
 * another one. lost: it was over because too many were late.
 */
void jm_queue_reset(struct jm_request_queue *q);
void jm_queue_restart(struct jm_request_queue *q);
bool jm_queue_is_over(
	struct jm_request_queue *q, int64_t now_ns, struct jm_late late, double allowed);
bool jm_queue_is_lost(const struct jm_request_queue *q);

/* Tokens that this replica has made, added to those before. */
void jm_queue_add_tokens(struct jm_request_queue *q, int64_t tokens);
/* This replica's begin anew from 0. */
void jm_queue_reset_tokens(struct jm_request_queue *q);
/* Tokens of all replicas. */
int64_t jm_queue_tokens(const struct jm_request_queue *q);

/* Rank 0: the phase ends for all replicas. */
void jm_queue_end_phase(struct jm_request_queue *q);
/* Others: has rank 0 ended the phase? Each end is seen once. */
bool jm_queue_phase_ended(struct jm_request_queue *q);

#endif
