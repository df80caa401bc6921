/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --rate max: the highest rate of arrivals (poisson) at which the 99th percentiles keep --ttft and
 * --tpot, by trials of requests of the run's own lengths. It does not know who answers them.
 */
#ifndef JM_RATE_SEARCH_H
#define JM_RATE_SEARCH_H

#include "base/clock.h"
#include "request_load.h"

/* Of several ranks that answer together: each searches, and rank 0 judges. */
struct jm_rate_gang {
	int rank;
	const struct jm_answers *answers; /* rank 0: of all, since the latest `gather` */
	/* Is a trial of load->most requests over: are all answered, or are more than `allowed`
	 * late? The same for all, if not at the same time. */
	bool (*is_over)(void *arg, double allowed);
	bool (*is_lost)(void *arg); /* did more than `allowed` end the latest trial? */
	int (*gather)(void *arg, struct jm_err *err);
	/* The value becomes that of rank 0. */
	int (*share)(void *arg, void *value, size_t bytes, struct jm_err *err);
};

/* Who answers. */
struct jm_rate_server {
	void *arg;
	struct jm_load *load;
	struct jm_clock *clock;
	/* Gives up what is under way, so that the requests of `load` may begin anew. */
	int (*restart)(void *arg, struct jm_err *err);
	/* Takes requests of `load` that have arrived, and does some of the work; waits if there is
	 * none. */
	int (*step)(void *arg, struct jm_err *err);
	int (*unfinished)(const void *arg); /* requests under way */
	/* Of the run that follows: its warm-up, its measured steps; NAN = not given in seconds. */
	double warm_s, steady_s;
	const char *failure; /* why the latest request failed; NULL = such a server says none */
	const struct jm_rate_gang
		*gang; /* NULL = one rank alone, whose answers are those of `load` */
};

/*
 * Begins near what the server would do if its --running requests took no longer than one alone,
 * halves the rate until a trial keeps the bounds, and narrows the gap to 5 %. Where the run is
 * longer than a trial, its own requests are tried, too, and the rate is lowered by 5 % until they
 * keep the bounds. Without --ttft it ends, too, at a rate that keeps --tpot and is more than twice
 * what is answered. Then the load is as before its first request, and has the rate that was found.
 * JM_ERANGE: the server keeps the bounds at no rate that was tried.
 */
int jm_rate_search(const struct jm_rate_server *s, struct jm_err *err);

#endif
