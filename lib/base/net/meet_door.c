/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A door: whoever connects is a guest until it has proved that it knows the secret. Guests send a
 * few bytes only, have a few seconds, and one of them makes room for the next where there are too
 * many, so that strangers cost little and hold up no rank: one that is sent away by their number
 * tries again.
 */
#include "meet_door.h"
#include "base/clock.h"
#include "tcp.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define GUESTS	 (JM_MEET_MOST + 128) /* all ranks may come at once */
#define ADMITTED 64		      /* of them between two looks at what the others say */
#define GUEST_NS (3 * JM_SECOND)
#define LOOK_MS	 200 /* between looks at deadlines */

struct guest {
	int fd;
	int64_t until_ns;
	size_t got; /* bytes of the hello and the proof that follows it */
	struct {
		struct jm__hello hello;
		unsigned char proof[JM_KEY_BYTES];
	} said;
	unsigned char nonce[JM_KEY_BYTES]; /* that the proof has to contain */
};

struct door {
	const struct jm_meet *m;
	int listens;
	int *fd; /* of the ranks */
	uint16_t *port;
	struct guest guest[GUESTS]; /* the oldest first */
	int n;
};

/* ---- proofs ---------------------------------------------------------------------------------- */

void jm__meet_prove(const struct jm_meet *m, enum jm__side side, const struct jm__hello *hello,
	const unsigned char nonce[JM_KEY_BYTES], unsigned char ret[JM_KEY_BYTES])
{
	unsigned char text[1 + sizeof(*hello) + JM_KEY_BYTES];

	text[0] = (unsigned char)side;
	memcpy(text + 1, hello, sizeof(*hello));
	memcpy(text + 1 + sizeof(*hello), nonce, JM_KEY_BYTES);
	jm_keyed_hash(m->key, text, sizeof(text), ret);
}

int jm__meet_random(void *to, size_t n, struct jm_err *err)
{
	if (getrandom(to, n, 0) == (ssize_t)n)
		return 0;
	return jm_err_set(err, JM_EIO, "The kernel gives no random numbers: %s.", strerror(errno));
}

/* ---- guests ---------------------------------------------------------------------------------- */

static void send_away(struct door *d, int i)
{
	close(d->guest[i].fd);
	memmove(&d->guest[i], &d->guest[i + 1], sizeof(d->guest[0]) * (size_t)(--d->n - i));
}

/* The oldest guest that has not said who it is, though it was listened to; else the oldest. */
static int least_known(const struct door *d)
{
	for (int i = 0; i < d->n - ADMITTED; i++)
		if (d->guest[i].got < sizeof(d->guest[i].said.hello))
			return i;
	return 0;
}

/* Admits a few at a time, so that each guest is listened to several times before a crowd can push
 * it out. */
static void let_in(struct door *d)
{
	int fd = -1;

	for (int i = 0; i < ADMITTED; i++) {
		fd = accept4(d->listens, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			break;
		if (d->n == GUESTS)
			send_away(d, least_known(d));
		d->guest[d->n++] = (struct guest){
			.fd = fd, .until_ns = jm_clock_now(jm_clock_real()) + GUEST_NS};
	}
	/* out of descriptors: the guests that are there have taken them */
	if (fd < 0 && (errno == EMFILE || errno == ENFILE) && d->n)
		send_away(d, least_known(d));
}

/* A door speaks only a few bytes, which fit into an empty buffer of the kernel. */
static bool say(const struct guest *g, const void *data, size_t n)
{
	return send(g->fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

static bool answer(const struct door *d, struct guest *g)
{
	struct jm__reply reply;

	if (g->said.hello.magic != JM__MAGIC || jm__meet_random(g->nonce, sizeof(g->nonce), NULL))
		return false;
	memcpy(reply.nonce, g->nonce, sizeof(g->nonce));
	jm__meet_prove(d->m, JM__DOOR, &g->said.hello, g->nonce, reply.proof);
	return say(g, &reply, sizeof(reply));
}

static enum jm__verdict judge(const struct door *d, const struct jm__hello *h)
{
	if (h->world != (uint32_t)d->m->world || h->rank >= h->world ||
		h->rank <= (uint32_t)d->m->rank)
		return JM__OTHER_WORLD;
	if (h->what != d->m->what)
		return JM__OTHER_WORK;
	return d->fd[h->rank] >= 0 ? JM__TWICE : JM__WELCOME;
}

/* A guest that has proved that it knows the secret becomes a rank, or is told why not. False: it is
 * to go. */
static bool receive(struct door *d, int i)
{
	struct guest *g = &d->guest[i];
	const struct jm__hello *h = &g->said.hello;
	unsigned char proof[JM_KEY_BYTES];
	enum jm__verdict verdict;
	uint32_t word;

	jm__meet_prove(d->m, JM__VISITOR, h, g->nonce, proof);
	if (!jm_keys_equal(proof, g->said.proof))
		return false;
	word = verdict = judge(d, h);
	if (!say(g, &word, sizeof(word)) || verdict != JM__WELCOME)
		return false;
	jm_tcp_tune(g->fd);
	d->port[h->rank] = (uint16_t)h->port;
	d->fd[h->rank] = g->fd;
	g->fd = -1;
	return false;
}

/* Reads what the guest has sent. False: it is to go. */
static bool listen_to(struct door *d, int i)
{
	struct guest *g = &d->guest[i];
	size_t hello = sizeof(g->said.hello);
	size_t most = g->got < hello ? hello : hello + JM_KEY_BYTES;
	ssize_t n = recv(g->fd, (char *)&g->said + g->got, most - g->got, MSG_DONTWAIT);

	if (n <= 0)
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	g->got += (size_t)n;
	if (g->got == hello)
		return answer(d, g);
	return g->got < hello + JM_KEY_BYTES || receive(d, i);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static int missing(const struct door *d)
{
	for (int r = d->m->rank + 1; r < d->m->world; r++)
		if (d->fd[r] < 0)
			return r;
	return -1;
}

int jm__meet_missing(const struct jm_meet *m, int rank, const char *why, struct jm_err *err)
{
	return jm_err_set(err, JM_EIO,
		"Rank %d has not joined the other ranks within %g s%s; its device or its data may "
		"not answer. JM_GANG_SECONDS gives it more time.",
		rank, m->join_s, why);
}

int jm__meet_ended(int rank, struct jm_err *err)
{
	return jm_err_set(err, JM_EGONE, "Rank %d ended before all ranks had joined.", rank);
}

int jm__meet_interrupted(const struct jm_meet *m, struct jm_err *err)
{
	if (!m->interrupts || !*m->interrupts)
		return 0;
	return jm_err_set(err, JM_EINTR, "Interrupted while rank %d waited for others.", m->rank);
}

/* Ranks that have come first, then guests, then the door: poll() takes no more than the process may
 * open. */
static int poll_all(const struct door *d, struct pollfd *p)
{
	int n = 0;

	for (int r = 0; r < d->m->world; r++)
		if (d->fd[r] >= 0)
			p[n++] = (struct pollfd){.fd = d->fd[r], .events = POLLRDHUP};
	for (int i = 0; i < d->n; i++)
		p[n++] = (struct pollfd){.fd = d->guest[i].fd, .events = POLLIN};
	p[n++] = (struct pollfd){.fd = d->listens, .events = POLLIN};
	return poll(p, (nfds_t)n, LOOK_MS) < 0 ? -1 : n;
}

static int take_turn(struct door *d, struct jm_err *err)
{
	struct pollfd p[JM_MEET_MOST + GUESTS + 1];
	int came = 0, n = poll_all(d, p);
	int64_t now = jm_clock_now(jm_clock_real());

	if (n < 0)
		return errno == EINTR ? 0
				      : jm_err_set(err, JM_EIO, "Waiting for ranks failed: %s.",
						strerror(errno));
	for (int r = 0; r < d->m->world; r++)
		if (d->fd[r] >= 0 && p[came++].revents)
			return jm__meet_ended(r, err);
	for (int i = d->n - 1; i >= 0; i--)
		if ((p[came + i].revents && !listen_to(d, i)) || now > d->guest[i].until_ns)
			send_away(d, i);
	if (p[n - 1].revents)
		let_in(d);
	if (now > d->m->until_ns && missing(d) >= 0)
		return jm__meet_missing(d->m, missing(d), "", err);
	return jm__meet_interrupted(d->m, err);
}

int jm__meet_admit(const struct jm_meet *m, int door, int *fd, uint16_t *port, struct jm_err *err)
{
	struct door d = {.m = m, .listens = door, .fd = fd, .port = port};
	int code = 0;

	while (!code && missing(&d) >= 0)
		code = take_turn(&d, err);
	while (d.n)
		send_away(&d, d.n - 1);
	if (door >= 0)
		close(door);
	return code;
}
