/* SPDX-License-Identifier: Apache-2.0 */
#include "agent_links.h"
#include "base/clock.h"
#include "base/net/meet.h"
#include "base/process/process_identity.h"
#include "frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define ANSWER_NS  (5 * JM_SECOND)
#define AGAIN_S	   10.0
#define PATIENT_NS (JM_SECOND / 20) /* for the clock of a host, at most */
#define ALL_NS	   JM_SECOND	    /* for those of all hosts */

void jm_rank_host_own(struct jm_ctx *ctx, struct jm_rank_host *ret)
{
	struct utsname name;

	*ret = (struct jm_rank_host){0};
	if (!uname(&name))
		snprintf(ret->name, sizeof(ret->name), "%.64s", name.nodename);
	jm_process_boot(ctx->root, ret->machine, sizeof(ret->machine));
}

static int meet(struct jm_ctx *ctx, const struct jm_gang_place *place, double join_s, int *ret_fd,
	struct jm_err *err)
{
	struct jm_meet m = {.rank = place->rank,
		.world = place->world,
		.host = place->host,
		.port = place->port,
		.door_fd = -1,
		.star = true,
		.differs = "The version, or the source code, of joulemark",
		.join_s = join_s,
		.interrupts = ctx->interrupts};
	unsigned char program[JM_KEY_BYTES];
	char source[64];

	snprintf(source, sizeof(source), "%s %s", jm_version(), jm_frame_source);
	jm_key_of_text(source, program);
	memcpy(&m.what, program, sizeof(m.what));
	memcpy(m.key, place->key, sizeof(m.key));
	m.until_ns = jm_clock_now(jm_clock_real()) + (int64_t)(m.join_s * 1e9);
	return jm_meet(&m, ret_fd, err);
}

int jm_agents_meet(
	struct jm_ctx *ctx, const struct jm_gang_place *place, int *ret_fd, struct jm_err *err)
{
	return meet(ctx, place, jm_gang_seconds(), ret_fd, err);
}

int jm_agents_start_heartbeat(struct jm_ctx *ctx, const struct jm_gang_place *place,
	const int *link, struct jm_heartbeat **ret, struct jm_err *err)
{
	int fd[JM_MEET_MOST], code = meet(ctx, place, AGAIN_S, fd, err);

	if (code)
		return code;
	for (int r = 0; r < place->world; r++)
		if (fd[r] >= 0 && link[r] < 0) {
			close(fd[r]);
			fd[r] = -1;
		}
	return jm_heartbeat_start(place->world, fd, link, ret, err);
}

/* ---- the head -------------------------------------------------------------------------------- */

static int first_of(const struct jm_agent_links *h, int rank)
{
	for (int r = 0; r < rank; r++)
		if (!strcmp(h->link[r].of.name, h->link[rank].of.name) &&
			!strcmp(h->link[r].of.machine, h->link[rank].of.machine))
			return r;
	return rank;
}

static int introduce(struct jm_agent_links *h, struct jm_err *err)
{
	int64_t until = jm_clock_now(jm_clock_real()) + ANSWER_NS;

	for (int r = 1; r < h->place.world; r++) {
		struct jm_rank_host *of = &h->link[r].of;

		if (!jm_tcp_receive(h->link[r].fd, of, sizeof(*of), until))
			return jm_err_set(err, JM_EGONE,
				"Rank %d ended before it said on which host it is.", r);
		of->name[sizeof(of->name) - 1] = '\0';
		of->machine[sizeof(of->machine) - 1] = '\0';
		h->link[r].first = first_of(h, r);
	}
	return 0;
}

int jm_agent_links_open(struct jm_ctx *ctx, const struct jm_gang_place *place,
	struct jm_agent_links **ret, struct jm_err *err)
{
	struct jm_agent_links *h = calloc(1, sizeof(*h));
	int fd[JM_MEET_MOST], code;

	if (!h)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d ranks.", place->world);
	h->place = *place;
	code = jm_agents_meet(ctx, place, fd, err);
	for (int r = 0; r < place->world; r++)
		h->link[r].fd = code ? -1 : fd[r];
	jm_rank_host_own(ctx, &h->link[0].of);
	if (!code)
		code = introduce(h, err);
	if (!code)
		code = jm_agents_start_heartbeat(ctx, place, fd, &h->heartbeat, err);
	if (code)
		jm_agent_links_close(h);
	else
		*ret = h;
	return code;
}

void jm_agent_links_close(struct jm_agent_links *h)
{
	if (!h)
		return;
	for (int r = 1; r < h->place.world; r++)
		if (h->link[r].fd >= 0)
			jm_frame_write(h->link[r].fd, JM_FRAME_BYE, NULL, 0, NULL, 0, NULL);
	jm_heartbeat_stop(h->heartbeat);
	for (int r = 1; r < h->place.world; r++)
		if (h->link[r].fd >= 0)
			close(h->link[r].fd);
	free(h);
}

bool jm_agent_links_measures(const struct jm_agent_links *h, int rank)
{
	return !rank || (h && h->link[rank].first == rank);
}

static int hosts(const struct jm_agent_links *h)
{
	int n = 1; /* the head's */

	for (int r = 1; r < h->place.world; r++)
		n += jm_agent_links_measures(h, r);
	return n;
}

void jm_agent_links_compare_clocks(struct jm_agent_links *h, bool after)
{
	int64_t each = ALL_NS / hosts(h);

	if (each > PATIENT_NS)
		each = PATIENT_NS;
	for (int r = 1; r < h->place.world; r++)
		if (jm_agent_links_measures(h, r))
			*(after ? &h->link[r].after : &h->link[r].before) =
				jm_clock_pair_of(h->link[r].fd, each);
}
