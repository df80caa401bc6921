/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rank 0 admits all others. Unless that is all (a star), it tells them where each has a door; then
 * each rank visits those below it, from the first, and admits those above it. Rank 1 admits at
 * once, so that no ranks wait for one another in a circle.
 */
#include "meet.h"
#include "base/clock.h"
#include "base/process/open_files.h"
#include "meet_door.h"
#include "tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define RETRY_NS 50000000
#define TRY_NS	 JM_SECOND /* of one try to connect; the next one begins with a look at interrupts */
#define REST_NS	 (5 * JM_SECOND) /* for the rest of a message that has begun */
#define LOOK_MS	 200		 /* between looks at interrupts */

/* Where a rank has its door. */
struct place {
	char host[JM_HOST_SIZE];
	uint16_t port;
};

int jm_key_new(unsigned char ret[JM_KEY_BYTES], struct jm_err *err)
{
	return jm__meet_random(ret, JM_KEY_BYTES, err);
}

/* ---- a visit --------------------------------------------------------------------------------- */

static int refused(const struct jm_meet *m, int rank, uint32_t verdict, struct jm_err *err)
{
	if (verdict == JM__TWICE)
		return jm_err_set(err, JM_EUSAGE,
			"There are two processes with rank %d of %d; give each its own rank.",
			m->rank, m->world);
	if (verdict == JM__OTHER_WORK)
		return jm_err_set(err, JM_EUSAGE,
			"%s of rank %d is not that of rank %d; start all ranks with the same "
			"program and the same options.",
			m->differs, m->rank, rank);
	return jm_err_set(err, JM_EUSAGE,
		"Rank %d of %d does not belong to the ranks that rank %d counts; give all the same "
		"number of ranks.",
		m->rank, m->world, rank);
}

/* So long from now, but not after the end of the meeting. */
static int64_t within(const struct jm_meet *m, int64_t ns)
{
	int64_t t = jm_clock_now(jm_clock_real()) + ns;

	return t < m->until_ns ? t : m->until_ns;
}

/* Waits for the next message: false after the end of the time, or an interrupt. */
static bool hear(const struct jm_meet *m, int fd, void *ret, size_t n)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	while (jm_clock_now(jm_clock_real()) < m->until_ns && !jm__meet_interrupted(m, NULL))
		if (poll(&p, 1, LOOK_MS) > 0)
			return jm_tcp_receive(fd, ret, n, within(m, REST_NS));
	errno = ETIMEDOUT;
	return false;
}

/* 0 = admitted, 1 = the connection broke and a new one may succeed, else an error. */
static int introduce(
	const struct jm_meet *m, int rank, int fd, struct jm__hello *hello, struct jm_err *err)
{
	unsigned char proof[JM_KEY_BYTES];
	struct jm__reply reply;
	uint32_t verdict;

	if (!jm_tcp_send(fd, hello, sizeof(*hello), within(m, REST_NS)) ||
		!hear(m, fd, &reply, sizeof(reply)))
		return 1;
	jm__meet_prove(m, JM__DOOR, hello, reply.nonce, proof);
	if (!jm_keys_equal(proof, reply.proof))
		return jm_err_set(err, JM_EPERM,
			"The program that answers where rank %d should be has another secret; give "
			"all ranks the same JM_GANG_SECRET, and a port that no other program uses.",
			rank);
	jm__meet_prove(m, JM__VISITOR, hello, reply.nonce, proof);
	if (!jm_tcp_send(fd, proof, sizeof(proof), within(m, REST_NS)) ||
		!hear(m, fd, &verdict, sizeof(verdict)))
		return 1;
	return verdict == JM__WELCOME ? 0 : refused(m, rank, verdict, err);
}

/* For rank 0 a door of the own rank is opened first, at the address that the connection has. */
static int call(const struct jm_meet *m, int rank, int fd, int *door, struct jm_err *err)
{
	struct jm__hello hello = {.magic = JM__MAGIC,
		.rank = (uint32_t)m->rank,
		.world = (uint32_t)m->world,
		.what = m->what};
	char host[JM_HOST_SIZE];
	int code = 0;

	jm_tcp_own_end(fd, host);
	if (door && *door < 0 && m->rank < m->world - 1 && !m->star)
		code = jm_tcp_listen(host, 0, door, err);
	if (!code)
		code = jm__meet_random(hello.nonce, sizeof(hello.nonce), err);
	if (door && *door >= 0)
		hello.port = (uint32_t)jm_tcp_own_end(*door, host);
	return code ? code : introduce(m, rank, fd, &hello, err);
}

/* No rank sends anything on a connection before all have met. fd: -1 = there is none yet. */
static bool has_ended(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};

	return poll(&p, 1, 0) > 0;
}

/* Why a visit is not tried again: 0 = it is. first: the connection to rank 0. */
static int give_up(const struct jm_meet *m, int first, struct jm_err *err)
{
	if (jm__meet_interrupted(m, err))
		return JM_EINTR;
	if (has_ended(first))
		return jm__meet_ended(0, err);
	return 0;
}

/* first: the connection to rank 0, without which no rank waits for the others; -1 = it is
 * visited. */
static int visit(const struct jm_meet *m, int rank, const struct place *place, int *door, int first,
	int *ret_fd, struct jm_err *err)
{
	const struct timespec nap = {.tv_nsec = RETRY_NS};
	char why[160] = "";
	int fd, code, over;

	do {
		fd = jm_tcp_connect(place->host, place->port, within(m, TRY_NS));
		code = fd < 0 ? 1 : call(m, rank, fd, door, err);
		if (!code) {
			jm_tcp_tune(fd);
			*ret_fd = fd;
			return 0;
		}
		snprintf(why, sizeof(why), " (%s, port %d: %s)", place->host, place->port,
			errno ? strerror(errno) : "it closed the connection");
		if (fd >= 0)
			close(fd);
		if (code > 0 && (over = give_up(m, first, err)) != 0)
			return over;
		if (code > 0)
			nanosleep(&nap, NULL);
	} while (code > 0 && jm_clock_now(jm_clock_real()) < m->until_ns);
	return code < 0 ? code : jm__meet_missing(m, rank, why, err);
}

/* ---- rank 0, and the others ------------------------------------------------------------------ */

static int tell_places(
	const struct jm_meet *m, const int *fd, const uint16_t *port, struct jm_err *err)
{
	struct place place[JM_MEET_MOST] = {0};

	for (int r = 1; r < m->world; r++) {
		jm_tcp_other_end(fd[r], place[r].host);
		place[r].port = port[r];
	}
	for (int r = 1; r < m->world; r++)
		if (!jm_tcp_send(fd[r], place, sizeof(place[0]) * (size_t)m->world, m->until_ns))
			return jm__meet_ended(r, err);
	return 0;
}

static int host_others(const struct jm_meet *m, int *fd, struct jm_err *err)
{
	uint16_t port[JM_MEET_MOST] = {0};
	int door = m->door_fd, code = 0;

	if (door < 0)
		code = jm_tcp_listen(m->host, m->port, &door, err);
	if (!code)
		code = jm__meet_admit(m, door, fd, port, err);
	return code || m->star ? code : tell_places(m, fd, port, err);
}

static int hear_first(const struct jm_meet *m, int fd, void *ret, size_t n, struct jm_err *err)
{
	if (hear(m, fd, ret, n))
		return 0;
	if (jm__meet_interrupted(m, err))
		return JM_EINTR;
	return jm_err_set(err, JM_EGONE,
		"Rank 0 ended before all ranks had joined, or gave up waiting for another rank.");
}

static int hear_places(const struct jm_meet *m, int fd, struct place *place, struct jm_err *err)
{
	int code = hear_first(m, fd, place, sizeof(*place) * (size_t)m->world, err);

	if (code)
		return code;
	for (int r = 0; r < m->world; r++)
		place[r].host[JM_HOST_SIZE - 1] = '\0';
	return 0;
}

static int join_others(const struct jm_meet *m, int *fd, struct jm_err *err)
{
	struct place place[JM_MEET_MOST] = {0};
	uint16_t port[JM_MEET_MOST];
	int door = -1, code;

	snprintf(place[0].host, sizeof(place[0].host), "%s", m->host);
	place[0].port = (uint16_t)m->port;
	code = visit(m, 0, &place[0], &door, -1, &fd[0], err);
	if (!code && m->star)
		return 0;
	if (!code)
		code = hear_places(m, fd[0], place, err);
	for (int r = 1; r < m->rank && !code; r++)
		code = visit(m, r, &place[r], NULL, fd[0], &fd[r], err);
	if (!code)
		return jm__meet_admit(m, door, fd, port, err);
	if (door >= 0)
		close(door);
	return code;
}

/* Hears a word of each rank; one that has said it waits, and does not end. */
static int hear_all(const struct jm_meet *m, const int *fd, struct jm_err *err)
{
	struct pollfd p[JM_MEET_MOST];
	int left = m->world - 1;
	char word;

	for (int r = 0; r < m->world; r++)
		p[r] = (struct pollfd){.fd = fd[r], .events = POLLIN | POLLRDHUP};
	while (left) {
		if (jm__meet_interrupted(m, err))
			return JM_EINTR;
		poll(p, (nfds_t)m->world, LOOK_MS);
		for (int r = 1; r < m->world; r++) {
			if (!p[r].revents)
				continue;
			if (!(p[r].events & POLLIN) ||
				!jm_tcp_receive(fd[r], &word, sizeof(word), within(m, REST_NS)))
				return jm__meet_ended(r, err);
			p[r].events = POLLRDHUP;
			left--;
		}
		for (int r = 1; r < m->world && jm_clock_now(jm_clock_real()) >= m->until_ns; r++)
			if (p[r].events & POLLIN)
				return jm__meet_missing(m, r, "", err);
	}
	return 0;
}

/* A rank that has all its connections may close some at once, which one that still waits for others
 * would take for its end: all go on together. */
static int go_on_together(const struct jm_meet *m, const int *fd, struct jm_err *err)
{
	char word = 1;
	int code = 0;

	if (m->rank) {
		jm_tcp_send(fd[0], &word, sizeof(word), within(m, REST_NS));
		return hear_first(m, fd[0], &word, sizeof(word), err);
	}
	code = hear_all(m, fd, err);
	for (int r = 1; r < m->world && !code; r++)
		if (!jm_tcp_send(fd[r], &word, sizeof(word), within(m, REST_NS)))
			code = jm__meet_ended(r, err);
	return code;
}

static int may_meet(const struct jm_meet *m, struct jm_err *err)
{
	int code = m->world <= JM_MEET_MOST
			   ? jm_open_files_allow(m->world, err)
			   : jm_err_set(err, JM_ERANGE, "At most %d ranks can meet, not %d.",
				     JM_MEET_MOST, m->world);

	if (code && !m->rank && m->door_fd >= 0)
		close(m->door_fd);
	return code;
}

int jm_meet(const struct jm_meet *m, int *ret_fd, struct jm_err *err)
{
	int fd[JM_MEET_MOST], code;

	for (int r = 0; r < JM_MEET_MOST; r++)
		fd[r] = -1;
	code = may_meet(m, err);
	if (!code)
		code = m->rank ? join_others(m, fd, err) : host_others(m, fd, err);
	if (!code)
		code = go_on_together(m, fd, err);
	for (int r = 0; r < JM_MEET_MOST && code; r++)
		if (fd[r] >= 0)
			close(fd[r]);
	if (!code)
		memcpy(ret_fd, fd, sizeof(fd[0]) * (size_t)m->world);
	return code;
}
