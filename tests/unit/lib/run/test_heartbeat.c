/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that says nothing loses its connection within seconds; one that has nothing to say keeps
 * it. */
#include "kit/test.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "run/gang/heartbeat.h"

#define WORLD 3

/* Both ends of the connections between rank 0 and another. */
struct pair {
	int heartbeat[2], link[2];
};

static void connect_ranks(struct pair *p)
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p->heartbeat), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p->link), 0);
}

static bool is_open(int fd)
{
	char byte;

	return recv(fd, &byte, 1, 0) < 0 && errno == EAGAIN;
}

static void only_silent_ranks_are_disconnected(void **unused)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_heartbeat *first, *one;
	struct pair to[WORLD];

	(void)unused;
	for (int r = 1; r < WORLD; r++)
		connect_ranks(&to[r]);
	assert_ok(jm_heartbeat_start(WORLD, (int[]){-1, to[1].heartbeat[0], to[2].heartbeat[0]},
			  (int[]){-1, to[1].link[0], to[2].link[0]}, &first, &err),
		err);
	assert_ok(jm_heartbeat_start(WORLD, (int[]){to[1].heartbeat[1], -1, -1},
			  (int[]){to[1].link[1], -1, -1}, &one, &err),
		err);
	usleep(3000000);
	assert_true(is_open(to[2].link[1]));
	usleep(5000000);
	assert_false(is_open(to[2].link[1]));
	assert_true(is_open(to[1].link[0]));
	assert_true(is_open(to[1].link[1]));
	jm_heartbeat_stop(one);
	jm_heartbeat_stop(first);
	assert_true(is_open(to[1].link[0])); /* its end is told there */
	for (int r = 1; r < WORLD; r++) {
		close(to[r].link[0]);
		close(to[r].link[1]);
	}
	close(to[2].heartbeat[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(only_silent_ranks_are_disconnected)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
