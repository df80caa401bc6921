/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head's links to its agents, for all cases of a run. Of ranks that were started apart
 * (gang_place.h), rank 0 is the head: it plans, and has a link to an agent at each other rank
 * (agent.h), which starts that rank's worker, makes the settings of its host, and passes on the
 * worker's messages. The ranks of a host are those that have its name; the first of them measures
 * for the host.
 */
#ifndef JM_AGENT_LINKS_H
#define JM_AGENT_LINKS_H

#include "base/ctx.h"
#include "clock_pair.h"
#include "gang_place.h"
#include "heartbeat.h"

#define JM_HOST_NAME 65

/* On which host a rank runs. */
struct jm_rank_host {
	char name[JM_HOST_NAME]; /* of its host */
	char machine
		[40]; /* the boot id of its kernel, which meters of one machine have in common; "" = unknown */
};

struct jm_agent_link {
	int fd; /* -1 = that of the head itself */
	struct jm_rank_host of;
	int first;			    /* rank of that host */
	struct jm_clock_pair before, after; /* the case */
};

struct jm_agent_links {
	struct jm_gang_place place;
	struct jm_heartbeat *heartbeat;		 /* of the agents */
	struct jm_agent_link link[JM_MEET_MOST]; /* by rank */
};

/* That of this process. */
void jm_rank_host_own(struct jm_ctx *ctx, struct jm_rank_host *ret);
/* Meets all ranks at the address. ret_fd: of the links, as of jm_meet. */
int jm_agents_meet(
	struct jm_ctx *ctx, const struct jm_gang_place *place, int *ret_fd, struct jm_err *err);
/* Ranks that have just met meet again, within 10 s, and from then on notice when one is stopped.
 * link: of heartbeat.h. */
int jm_agents_start_heartbeat(struct jm_ctx *ctx, const struct jm_gang_place *place,
	const int *link, struct jm_heartbeat **ret, struct jm_err *err);

/* Of rank 0: meets the agents. */
int jm_agent_links_open(struct jm_ctx *ctx, const struct jm_gang_place *place,
	struct jm_agent_links **ret, struct jm_err *err);
/* The agents end, and put their settings back. Takes NULL. */
void jm_agent_links_close(struct jm_agent_links *h);
/* Does the rank read the sensors of its host? h: NULL = all ranks run on this one. */
bool jm_agent_links_measures(const struct jm_agent_links *h, int rank);
/* Compares the clock of each host, by the rank that measures there, with the head's; takes a second
 * at most where all answer, or five exchanges with each host if these take longer. No case is under
 * way. A host that does not answer is noticed when its rank is to start. */
void jm_agent_links_compare_clocks(struct jm_agent_links *h, bool after);

#endif
