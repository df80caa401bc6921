/* SPDX-License-Identifier: Apache-2.0 */
/* Launcher `started`: rank 0 is a child of this process, and each other rank that of an agent,
 * which gets its job. */
#include "frame.h"
#include "gang_meeting.h"
#include "launcher.h"

#include "base/text/json.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int no_memory(struct jm_err *err)
{
	return jm_err_set(err, JM_ENOMEM, "Out of memory for the job of a worker.");
}

/* ---- starting -------------------------------------------------------------------------------- */

static json_t *gang_of(const struct jm_agent_links *h, int r, json_t *meet)
{
	int first = h->link[r].first;
	json_t *here = json_array(), *gang = json_object();

	for (int k = 0; k < h->place.world; k++)
		if (h->link[k].first == first)
			json_array_append_new(here, json_integer(k));
	jm_json_set_int(&gang, "rank", r);
	jm_json_set_int(&gang, "world", h->place.world);
	jm_json_set_text(&gang, "launcher", jm_launcher_agents.name);
	jm_json_set_text(&gang, "host", h->link[r].of.name);
	jm_json_set_bool(&gang, "measures", first == r);
	jm_json_set_int(&gang, "local", (json_int_t)json_array_size(here));
	jm_json_set(&gang, "here", here);
	jm_json_set(&gang, "meet", json_incref(meet));
	return gang;
}

static int start_here(const struct jm_launch *what, json_t *meet, int door, struct jm_rank *rank,
	struct jm_err *err)
{
	json_t *own = json_deep_copy(meet), *gang = own ? gang_of(what->agents, 0, own) : NULL;
	int code = gang ? jm_gang_meeting_key(gang, what->agents->place.key, err) : no_memory(err);

	if (!code)
		code = jm_rank_start(what, gang, door, rank, err);
	json_decref(gang);
	json_decref(own);
	return code;
}

static int start_there(
	const struct jm_launch *what, int r, json_t *meet, struct jm_rank *rank, struct jm_err *err)
{
	const struct jm_agent_link *link = &what->agents->link[r];
	json_t *job = json_copy((json_t *)(uintptr_t)what->job),
	       *gang = gang_of(what->agents, r, meet);
	int code = 0;

	*rank = (struct jm_rank){.frames_fd = -1, .err_fd = -1, .orders_fd = -1, .link = link};
	if (!job || !gang || json_object_set(job, "gang", gang))
		code = no_memory(err);
	if (!code && jm_frame_write_json(link->fd, JM_FRAME_JOB, job, NULL))
		code = jm_err_set(err, JM_ECHILD,
			"The agent of rank %d on %s has ended; start all ranks again.", r,
			link->of.name);
	if (!code)
		rank->frames_fd = fcntl(link->fd, F_DUPFD_CLOEXEC, 0);
	if (!code && rank->frames_fd < 0)
		code = jm_err_set(
			err, JM_EIO, "No descriptor of rank %d is free: %s.", r, strerror(errno));
	json_decref(job);
	json_decref(gang);
	return code;
}

bool jm_rank_lost(const struct jm_rank *rank)
{
	return rank->link && !rank->exited && jm_tcp_lost(rank->link->fd);
}

static void agents_signal(const struct jm_rank *rank, int number, bool with_children)
{
	const struct jm_frame_signal s = {number, with_children};

	if (!rank->link)
		jm_launcher_local.signal(rank, number, with_children);
	else if (!rank->exited)
		jm_frame_write(rank->link->fd, JM_FRAME_SIGNAL, &s, sizeof(s), NULL, 0, NULL);
}

/* An agent whose worker was not seen to end loses its connection, ends the worker and is gone. */
static int agents_wait(struct jm_rank *rank)
{
	if (!rank->link)
		return jm_launcher_local.wait(rank);
	if (!rank->exited)
		shutdown(rank->link->fd, SHUT_RDWR);
	return rank->status;
}

static int check_world(const struct jm_launch *what, struct jm_err *err)
{
	int started = what->agents->place.world;

	return what->world == started
		       ? 0
		       : jm_err_set(err, JM_EUSAGE,
				 "The case has %d rank%s, but %d were started; give --ranks %d.",
				 what->world, what->world == 1 ? "" : "s", started, started);
}

static int agents_start(const struct jm_launch *what, struct jm_rank *rank, struct jm_err *err)
{
	int door = -1, n = 0, code = check_world(what, err);
	json_t *meet;

	if (code)
		return code;
	meet = jm_gang_meeting_new(what->agents->place.host, &door, err);
	if (!meet)
		return err->code;
	door = jm_rank_high_fd(door, err);
	if (door < 0)
		code = err->code;
	jm_agent_links_compare_clocks(what->agents, false);
	for (; n < what->world && !code; n++)
		code = n ? start_there(what, n, meet, &rank[n], err)
			 : start_here(what, meet, door, &rank[n], err);
	for (int r = 0; r < n && code; r++) {
		agents_signal(&rank[r], SIGKILL, true);
		agents_wait(&rank[r]);
		jm_rank_close(&rank[r]);
	}
	json_decref(meet);
	close(door);
	return code;
}

const struct jm_launcher jm_launcher_agents = {
	.name = "started",
	.summary = "processes that mpirun, srun, torchrun or a person has started, on one or more "
		   "hosts",
	.start = agents_start,
	.signal = agents_signal,
	.wait = agents_wait,
};
