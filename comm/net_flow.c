/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of transport `net`: all that one exchange sends and receives is under way at the same
 * time. */
#include "net_flow.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "base/net/tcp.h"

#define LOOK_MS 500 /* between looks at deadlines and at peers that may be lost */
/* The error of a rank that misses another must not reach the parent before that of the missing one,
 * which closes before it sends its own; the parent then ends all others. */
#define PATIENCE_S 2

void jm__net_give(struct jm__net *n, int rank, const char *data, size_t bytes)
{
	n->out[rank] =
		(struct jm__net_way){.open = true, .data = (char *)(uintptr_t)data, .bytes = bytes};
}

void jm__net_take(struct jm__net *n, int rank, char *data, size_t bytes)
{
	n->in[rank] = (struct jm__net_way){.open = true, .data = data, .bytes = bytes};
}

/* ---- errors ---------------------------------------------------------------------------------- */

static int ended(const struct jm__net *n, int rank, int why, struct jm_err *err)
{
	const struct timespec nap = {.tv_sec = PATIENCE_S};
	char host[JM_HOST_SIZE];

	jm_tcp_other_end(n->link[rank]->fd, host);
	if (why == ETIMEDOUT || why == EHOSTUNREACH || why == ENETUNREACH)
		return jm_err_set(err, JM_EGONE,
			"Rank %d (%s) does not answer any more while rank %d waits for it: its "
			"host "
			"or the network to it is down.",
			n->link[rank]->rank, host, n->link[n->rank]->rank);
	nanosleep(&nap, NULL);
	return jm_err_set(err, JM_EGONE, "Rank %d (%s) ended while rank %d was waiting for it.",
		n->link[rank]->rank, host, n->link[n->rank]->rank);
}

static int differs(const struct jm__net *n, int rank, struct jm_err *err)
{
	return jm_err_set(err, JM_EFORMAT,
		"Rank %d started another transfer than rank %d; all ranks have to run the same "
		"program with the same options.",
		n->link[rank]->rank, n->link[n->rank]->rank);
}

static int check_times(const struct jm__net *n, struct jm_err *err)
{
	bool late = jm_clock_now(jm_clock_real()) >= n->join_ns;

	for (int r = 0; r < n->world; r++) {
		if (!n->out[r].open && !n->in[r].open)
			continue;
		if (jm_tcp_lost(n->link[r]->fd))
			return ended(n, r, ETIMEDOUT, err);
		if (late && n->in[r].open)
			return jm_err_set(err, JM_EIO,
				"Rank %d has not joined the other ranks within %g s; its device or "
				"its data may not answer. JM_GANG_SECONDS gives it more time.",
				n->link[r]->rank, n->join_s);
	}
	return 0;
}

/* ---- one way of one connection --------------------------------------------------------------- */

/* What is left of head and data. */
static struct msghdr rest_of(struct jm__net_way *w, struct iovec part[2])
{
	size_t head = w->done < sizeof(w->head) ? sizeof(w->head) - w->done : 0;
	size_t data = head ? 0 : w->done - sizeof(w->head);

	part[0] = (struct iovec){(char *)&w->head + w->done, head};
	part[1] = (struct iovec){w->bytes ? w->data + data : NULL, w->bytes - data};
	return (struct msghdr){.msg_iov = head ? part : part + 1, .msg_iovlen = head ? 2 : 1};
}

/* Counts bytes that were sent or received. 0, or why the connection broke: -1 = its end. */
static int progress(struct jm__net_way *w, ssize_t some)
{
	if (some < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : errno;
	if (!some)
		return -1;
	w->done += (size_t)some;
	w->open = w->done < sizeof(w->head) + w->bytes;
	return 0;
}

static int push(struct jm__net *n, int r, struct jm_err *err)
{
	struct jm__net_way *w = &n->out[r];
	struct iovec part[2];
	struct msghdr rest = rest_of(w, part);
	int why = progress(w, sendmsg(n->link[r]->fd, &rest, MSG_NOSIGNAL | MSG_DONTWAIT));

	return why ? ended(n, r, why, err) : 0;
}

static int pull(struct jm__net *n, int r, const struct jm__net_head *expected, struct jm_err *err)
{
	struct jm__net_way *w = &n->in[r];
	bool had = w->done >= sizeof(w->head);
	struct iovec part[2];
	struct msghdr rest = rest_of(w, part);
	int why = progress(w, recvmsg(n->link[r]->fd, &rest, MSG_DONTWAIT));

	if (why)
		return ended(n, r, why, err);
	if (!had && w->done >= sizeof(w->head) && memcmp(&w->head, expected, sizeof(w->head)) != 0)
		return differs(n, r, err);
	return 0;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int wait_for_any(struct jm__net *n, struct jm_err *err)
{
	struct pollfd p[JM_RANKS_MOST];
	int ready;

	for (int r = 0; r < n->world; r++) {
		bool waits = n->out[r].open || n->in[r].open;

		p[r] = (struct pollfd){.fd = waits ? n->link[r]->fd : -1};
		p[r].events =
			(short)((n->out[r].open ? POLLOUT : 0) | (n->in[r].open ? POLLIN : 0));
	}
	ready = poll(p, (nfds_t)n->world, LOOK_MS);
	if (ready < 0 && errno != EINTR)
		return jm_err_set(
			err, JM_EIO, "Waiting for other ranks failed: %s.", strerror(errno));
	return ready > 0 ? 0 : check_times(n, err);
}

static bool is_done(const struct jm__net *n)
{
	for (int r = 0; r < n->world; r++)
		if (n->out[r].open || n->in[r].open)
			return false;
	return true;
}

static struct jm__net_head head_of(const struct jm__net *n, int r, const struct jm_transfer *t)
{
	return (struct jm__net_head){.number = n->link[r]->number,
		.kind = (uint16_t)t->kind,
		.type = (uint16_t)t->type,
		.count = t->count,
		.root = t->root};
}

int jm__net_exchange(struct jm__net *n, const struct jm_transfer *t, struct jm_err *err)
{
	struct jm__net_head head[JM_RANKS_MOST];
	int code = 0;

	for (int r = 0; r < n->world; r++) {
		n->link[r]->number += n->out[r].open || n->in[r].open;
		head[r] = n->out[r].head = head_of(n, r, t);
	}
	while (!code && !is_done(n)) {
		for (int r = 0; r < n->world && !code; r++)
			if (n->out[r].open)
				code = push(n, r, err);
		for (int r = 0; r < n->world && !code; r++)
			if (n->in[r].open)
				code = pull(n, r, &head[r], err);
		if (!code && !is_done(n))
			code = wait_for_any(n, err);
	}
	return code;
}
