/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks meet by TCP while strangers do what they can: threads act as both. */
#include "kit/test.h"

#include <fcntl.h>
#include <signal.h>
#include <pthread.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/net/meet.h"
#include "base/net/meet_door.h"
#include "base/net/tcp.h"

#define RANKS 3

struct rank {
	struct jm_meet meet;
	int fd[RANKS];
	int code;
	struct jm_err err;
};

static int64_t soon(double seconds)
{
	return jm_clock_now(jm_clock_real()) + (int64_t)(seconds * 1e9);
}

/* Of a gang of so many ranks that meet at a new port. */
static struct jm_meet meeting(int world)
{
	struct jm_meet m = {.world = world,
		.host = "127.0.0.1",
		.door_fd = -1,
		.differs = "The case",
		.join_s = 20,
		.until_ns = soon(20)};
	struct jm_err err = JM_ERR_INIT;
	char host[JM_HOST_SIZE];

	assert_ok(jm_tcp_listen(m.host, 0, &m.door_fd, &err), err);
	m.port = jm_tcp_own_end(m.door_fd, host);
	assert_ok(jm_key_new(m.key, &err), err);
	return m;
}

static void close_all(const struct rank *r)
{
	for (int i = 0; i < r->meet.world && !r->code; i++)
		if (r->fd[i] >= 0)
			close(r->fd[i]);
}

static void *be_rank(void *arg)
{
	struct rank *r = arg;

	r->code = jm_meet(&r->meet, r->fd, &r->err);
	return NULL;
}

/* Each pair is connected: every rank sends its number to all others. */
static void check_pairs(struct rank *rank)
{
	for (int a = 0; a < RANKS; a++)
		for (int b = 0; b < RANKS; b++)
			if (a != b)
				assert_true(jm_tcp_send(rank[a].fd[b], &a, sizeof(a), soon(5)));
	for (int a = 0; a < RANKS; a++)
		for (int b = 0, got = -1; b < RANKS; b++) {
			if (a == b)
				continue;
			assert_true(jm_tcp_receive(rank[a].fd[b], &got, sizeof(got), soon(5)));
			assert_int_equal(got, b);
		}
}

static void meet_all(struct jm_meet m)
{
	struct rank rank[RANKS];
	pthread_t thread[RANKS];

	for (int i = 0; i < RANKS; i++) {
		rank[i] = (struct rank){.meet = m, .err = JM_ERR_INIT};
		rank[i].meet.rank = i;
		assert_int_equal(pthread_create(&thread[i], NULL, be_rank, &rank[i]), 0);
	}
	for (int i = 0; i < RANKS; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < RANKS; i++)
		assert_ok(rank[i].code, rank[i].err);
	check_pairs(rank);
	for (int i = 0; i < RANKS; i++)
		close_all(&rank[i]);
}

static void *meet_and_leave(void *arg)
{
	struct rank *r = arg;

	be_rank(r);
	close_all(r);
	return NULL;
}

/* One that has met all others and leaves at once is not missed by those that still meet. */
static void a_rank_may_leave_as_soon_as_it_has_met_all(void **unused)
{
	(void)unused;
	for (int round = 0; round < 40; round++) {
		struct jm_meet m = meeting(RANKS);
		struct rank rank[RANKS];
		pthread_t thread[RANKS];

		for (int i = 0; i < RANKS; i++) {
			rank[i] = (struct rank){.meet = m, .err = JM_ERR_INIT};
			rank[i].meet.rank = i;
			assert_int_equal(
				pthread_create(&thread[i], NULL, meet_and_leave, &rank[i]), 0);
		}
		for (int i = 0; i < RANKS; i++)
			pthread_join(thread[i], NULL);
		for (int i = 0; i < RANKS; i++)
			assert_ok(rank[i].code, rank[i].err);
	}
}

/* ---- many ------------------------------------------------------------------------------------ */

#define MANY 300

struct one {
	struct jm_meet meet;
	int fd[MANY];
	int code;
	struct jm_err err;
};

static void *be_one(void *arg)
{
	struct one *r = arg;

	r->code = jm_meet(&r->meet, r->fd, &r->err);
	return NULL;
}

/* The connection of rank r is that which rank 0 has to it, and it has no other. */
static void check_link(const struct one *first, const struct one *rank)
{
	int r = rank->meet.rank, got = -1;

	assert_true(jm_tcp_send(rank->fd[0], &r, sizeof(r), soon(5)));
	assert_true(jm_tcp_receive(first->fd[r], &got, sizeof(got), soon(5)));
	assert_int_equal(got, r);
	for (int i = 1; i < MANY; i++)
		assert_int_equal(rank->fd[i], -1);
	close(first->fd[r]);
	close(rank->fd[0]);
}

/* As the ranks of many hosts, all at once. */
static void a_star_has_one_connection_for_each_rank(void **unused)
{
	struct jm_meet m = meeting(MANY);
	struct one *rank = calloc(MANY, sizeof(*rank));
	pthread_t thread[MANY];

	(void)unused;
	assert_non_null(rank);
	m.star = true;
	for (int i = 0; i < MANY; i++) {
		rank[i] = (struct one){.meet = m, .err = JM_ERR_INIT};
		rank[i].meet.rank = i;
		assert_int_equal(pthread_create(&thread[i], NULL, be_one, &rank[i]), 0);
	}
	for (int i = 0; i < MANY; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < MANY; i++)
		assert_ok(rank[i].code, rank[i].err);
	for (int i = 1; i < MANY; i++)
		check_link(&rank[0], &rank[i]);
	free(rank);
}

/* ---- strangers ------------------------------------------------------------------------------- */

struct stranger {
	struct jm_meet meet;
	void (*trouble)(const struct jm_meet *m);
	atomic_bool ends;
	int visits;
};

static int knock(const struct jm_meet *m)
{
	return jm_tcp_connect(m->host, m->port, soon(1));
}

static void say_nothing(const struct jm_meet *m)
{
	int fd = knock(m);

	usleep(20000);
	close(fd);
}

static void send_garbage(const struct jm_meet *m)
{
	unsigned char bytes[4096];
	int fd = knock(m);

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(i * 37 + 11);
	send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
	close(fd);
}

/* A message that begins well and then comes in single bytes. */
static void drip(const struct jm_meet *m)
{
	static const char magic[] = {'J', 'M', '1', 0};
	int fd = knock(m);

	for (size_t i = 0; i < 8; i++) {
		send(fd, &magic[i % 4], 1, MSG_NOSIGNAL);
		usleep(10000);
	}
	close(fd);
}

/* More at a time than a door has guests. */
static void crowd(const struct jm_meet *m)
{
	int fd[700];

	for (int i = 0; i < 700; i++)
		fd[i] = knock(m);
	for (int i = 0; i < 700; i++)
		close(fd[i]);
}

static void *be_stranger(void *arg)
{
	struct stranger *s = arg;

	while (!s->ends) {
		s->trouble(&s->meet);
		s->visits++;
	}
	return NULL;
}

static void meet_beside(void (*trouble)(const struct jm_meet *m))
{
	struct stranger stranger = {.meet = meeting(RANKS), .trouble = trouble};
	int64_t from;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, be_stranger, &stranger), 0);
	usleep(200000);
	from = soon(0);
	meet_all(stranger.meet);
	assert_true(soon(0) - from < 10 * JM_SECOND);
	stranger.ends = true;
	pthread_join(thread, NULL);
	assert_true(stranger.visits > 0);
}

static void strangers_hold_up_nobody(void **unused)
{
	(void)unused;
	meet_all(meeting(RANKS));
	meet_beside(say_nothing);
	meet_beside(send_garbage);
	meet_beside(drip);
	meet_beside(crowd);
}

/* ---- ranks that do not belong together ------------------------------------------------------- */

/* Rank 0 of two, and one that is not its rank 1: it gets this error, and then the right one
 * joins. */
static void refuse(struct jm_meet m, struct jm_meet wrong, int code, const char *says)
{
	struct rank first = {.meet = m, .err = JM_ERR_INIT},
		    right = {.meet = m, .err = JM_ERR_INIT};
	struct jm_err err = JM_ERR_INIT;
	int fd[RANKS];
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, be_rank, &first), 0);
	assert_int_equal(jm_meet(&wrong, fd, &err), code);
	assert_sentence(&err, code);
	assert_non_null(strstr(err.text, says));
	right.meet.rank = 1;
	be_rank(&right);
	pthread_join(thread, NULL);
	assert_ok(right.code, right.err);
	assert_ok(first.code, first.err);
	close_all(&first);
	close_all(&right);
}

static void ranks_that_contradict_are_refused(void **unused)
{
	struct jm_meet m = meeting(2), wrong = m;

	(void)unused;
	wrong.rank = 1;
	wrong.key[3] ^= 1;
	refuse(m, wrong, JM_EPERM, "has another secret");
	m = wrong = meeting(2);
	wrong.rank = 1;
	wrong.what = 7;
	refuse(m, wrong, JM_EUSAGE, "The case of rank 1 is not that of rank 0");
	m = wrong = meeting(2);
	wrong.rank = 1;
	wrong.world = 3;
	refuse(m, wrong, JM_EUSAGE, "Rank 1 of 3 does not belong");
}

/* Rank 1 of three comes twice, and goes: rank 0, which waits for rank 2, says so. */
static void a_rank_that_comes_twice_or_goes_is_named(void **unused)
{
	struct rank first = {.meet = meeting(3), .err = JM_ERR_INIT}, one = first, again = first;
	pthread_t thread[2];

	(void)unused;
	one.meet.rank = again.meet.rank = 1;
	one.meet.until_ns = soon(1);
	assert_int_equal(pthread_create(&thread[0], NULL, be_rank, &first), 0);
	assert_int_equal(pthread_create(&thread[1], NULL, be_rank, &one), 0);
	usleep(300000);
	be_rank(&again);
	assert_sentence(&again.err, JM_EUSAGE);
	assert_non_null(strstr(again.err.text, "two processes with rank 1 of 3"));
	pthread_join(thread[0], NULL);
	pthread_join(thread[1], NULL);
	assert_sentence(&first.err, JM_EGONE);
	assert_non_null(strstr(first.err.text, "Rank 1 ended before all ranks had joined"));
}

/* Joins rank 0 as rank 1 of three, with a door that nobody opens. */
static int join_without_door(const struct jm_meet *m)
{
	struct jm__hello hello = {.magic = JM__MAGIC, .rank = 1, .world = 3, .port = 1};
	unsigned char proof[JM_KEY_BYTES];
	struct jm__reply reply;
	uint32_t verdict;
	int fd = knock(m);

	assert_true(jm_tcp_send(fd, &hello, sizeof(hello), soon(1)));
	assert_true(jm_tcp_receive(fd, &reply, sizeof(reply), soon(5)));
	jm__meet_prove(m, JM__VISITOR, &hello, reply.nonce, proof);
	assert_true(jm_tcp_send(fd, proof, sizeof(proof), soon(1)));
	assert_true(jm_tcp_receive(fd, &verdict, sizeof(verdict), soon(5)));
	assert_int_equal(verdict, JM__WELCOME);
	return fd;
}

/* Rank 2 cannot reach rank 1, until rank 0 gives up: then rank 2 does not go on trying. */
static void nobody_waits_for_a_rank_after_the_first_has_gone(void **unused)
{
	struct rank first = {.meet = meeting(3), .err = JM_ERR_INIT}, last = first;
	pthread_t thread[2];
	int fd;

	(void)unused;
	last.meet.rank = 2;
	first.meet.until_ns = soon(2);
	assert_int_equal(pthread_create(&thread[0], NULL, be_rank, &first), 0);
	fd = join_without_door(&first.meet);
	assert_int_equal(pthread_create(&thread[1], NULL, be_rank, &last), 0);
	pthread_join(thread[0], NULL);
	assert_sentence(&first.err, JM_EIO);
	assert_non_null(strstr(first.err.text, "Rank 1 has not joined"));
	pthread_join(thread[1], NULL);
	assert_sentence(&last.err, JM_EGONE);
	assert_non_null(strstr(last.err.text, "Rank 0 ended before all ranks had joined"));
	close(fd);
}

/* A door waits for more ranks than this process may have files. */
static void ranks_that_have_not_come_take_no_files(void **unused)
{
	struct jm_meet m = meeting(JM_MEET_MOST);
	struct rlimit few, before;
	uint16_t port[JM_MEET_MOST];
	int fd[JM_MEET_MOST];
	struct jm_err err = JM_ERR_INIT;

	(void)unused;
	for (int r = 0; r < JM_MEET_MOST; r++)
		fd[r] = -1;
	m.until_ns = soon(0.1);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = before;
	few.rlim_cur = 64;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(jm__meet_admit(&m, m.door_fd, fd, port, &err), JM_EIO);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_non_null(strstr(err.text, "Rank 1 has not joined"));
}

static volatile int interrupts;

static void interrupt(int number)
{
	(void)number;
	interrupts = 1;
}

/* A host that answers no connection, as one that drops them: a listener whose queue is full. */
static void a_try_to_connect_can_be_interrupted(void **unused)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sigaction act = {.sa_handler = interrupt};
	struct itimerval soon_after = {.it_value.tv_usec = 300000};
	struct jm_meet m = {.rank = 1, .world = 2, .host = "127.0.0.1", .door_fd = -1};
	struct jm_err err = JM_ERR_INIT;
	int door = socket(AF_INET, SOCK_STREAM, 0), full[3], fd[RANKS];
	char host[JM_HOST_SIZE];

	(void)unused;
	assert_int_equal(bind(door, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(door, 0), 0);
	m.port = jm_tcp_own_end(door, host);
	for (int i = 0; i < 3; i++)
		full[i] = jm_tcp_connect(host, m.port, soon(0.2));
	m.interrupts = &interrupts;
	m.until_ns = soon(20);
	assert_int_equal(sigaction(SIGALRM, &act, NULL), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &soon_after, NULL), 0);
	assert_int_equal(jm_meet(&m, fd, &err), JM_EINTR);
	assert_true(soon(10) < m.until_ns);
	for (int i = 0; i < 3; i++)
		if (full[i] >= 0)
			close(full[i]);
	close(door);
}

static int open_files(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Nobody answers at the door of rank 0; and there may not be so many ranks. */
static void a_meeting_that_fails_leaves_nothing_open(void **unused)
{
	struct jm_meet m = meeting(RANKS);
	struct jm_err late = JM_ERR_INIT, many = JM_ERR_INIT;
	int fd[RANKS], before = open_files();

	(void)unused;
	m.rank = 1;
	m.until_ns = soon(0.3);
	assert_int_equal(jm_meet(&m, fd, &late), JM_EIO);
	assert_int_equal(open_files(), before);
	m.rank = 0;
	m.world = JM_MEET_MOST + 1;
	assert_int_equal(jm_meet(&m, fd, &many), JM_ERANGE);
	assert_int_equal(close(m.door_fd), -1);
}

/* A connection from this address of the loopback to another one. */
static int connect_from(const char *from, int port)
{
	struct sockaddr_in own = {.sin_family = AF_INET}, other = own;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(inet_pton(AF_INET, from, &own.sin_addr), 1);
	assert_int_equal(inet_pton(AF_INET, "127.0.0.1", &other.sin_addr), 1);
	other.sin_port = htons((uint16_t)port);
	assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof(own)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&other, sizeof(other)), 0);
	return fd;
}

/* Hundreds of ranks of one host have more idle connections than it can answer for in time. */
static void only_connections_to_other_addresses_are_probed(void **unused)
{
	struct jm_meet m = meeting(2);

	(void)unused;
	for (int i = 1; i <= 2; i++) {
		int fd = connect_from(i == 1 ? "127.0.0.1" : "127.0.0.2", m.port);
		int probed = -1;
		socklen_t size = sizeof(probed);

		jm_tcp_tune(fd);
		assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &probed, &size), 0);
		assert_int_equal(probed, i == 2);
		close(fd);
	}
	close(m.door_fd);
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Test vectors of the authors: key 00 01 ... 0f, texts "", 00. */
static void hashes_are_siphash(void **unused)
{
	static const unsigned char expected[2][JM_KEY_BYTES] = {
		{0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55,
			0x02, 0x93},
		{0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22,
			0xfc, 0x45}};
	unsigned char key[JM_KEY_BYTES], hash[JM_KEY_BYTES];

	(void)unused;
	for (int i = 0; i < JM_KEY_BYTES; i++)
		key[i] = (unsigned char)i;
	for (size_t n = 0; n < 2; n++) {
		jm_keyed_hash(key, "", n, hash);
		assert_memory_equal(hash, expected[n], JM_KEY_BYTES);
		assert_true(jm_keys_equal(hash, expected[n]));
		assert_false(jm_keys_equal(hash, expected[1 - n]));
	}
}

static void addresses_are_read_or_refused(void **unused)
{
	static const char *const wrong[] = {
		"", "host", ":29500", "host:", "host:0", "host:65536", "host:12x", "[]:29500"};
	struct jm_err err = JM_ERR_INIT;
	char host[JM_HOST_SIZE];
	int port;

	(void)unused;
	assert_ok(jm_tcp_parse("node-7:29500", host, &port, &err), err);
	assert_string_equal(host, "node-7");
	assert_int_equal(port, 29500);
	assert_ok(jm_tcp_parse("[fd00::1]:1", host, &port, &err), err);
	assert_string_equal(host, "fd00::1");
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		err = (struct jm_err)JM_ERR_INIT;
		assert_int_equal(jm_tcp_parse(wrong[i], host, &port, &err), JM_EUSAGE);
		assert_sentence(&err, JM_EUSAGE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rank_may_leave_as_soon_as_it_has_met_all),
		cmocka_unit_test(a_star_has_one_connection_for_each_rank),
		cmocka_unit_test(strangers_hold_up_nobody),
		cmocka_unit_test(ranks_that_contradict_are_refused),
		cmocka_unit_test(a_rank_that_comes_twice_or_goes_is_named),
		cmocka_unit_test(nobody_waits_for_a_rank_after_the_first_has_gone),
		cmocka_unit_test(ranks_that_have_not_come_take_no_files),
		cmocka_unit_test(a_try_to_connect_can_be_interrupted),
		cmocka_unit_test(a_meeting_that_fails_leaves_nothing_open),
		cmocka_unit_test(only_connections_to_other_addresses_are_probed),
		cmocka_unit_test(hashes_are_siphash),
		cmocka_unit_test(addresses_are_read_or_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
