/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of all transports: threads act as ranks; results are compared with sums computed
 * here. Devices and NCCL are fake; the devices work while the host goes on. */
#include "kit/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/net/meet.h"
#include "base/net/tcp.h"
#include "comm/comm.h"
#include "comm/gang_file.h"
#include "comm/local_pairs.h"
#include "engine/device/device.h"
#include "kit/transfers.h"
#include "workloads/parts/gang.h"

#define MOST_RANKS 5

/* What the ranks of a gang need to find each other: a file, or an address with a key. */
struct gang {
	const char *transport;
	int file;
	struct jm_meet meet;
};

static struct gang gang_new(const char *transport)
{
	struct gang g = {.transport = transport,
		.file = memfd_create("gang", MFD_CLOEXEC),
		.meet = {.host = "127.0.0.1", .door_fd = -1, .differs = "The test"}};
	struct jm_err err = JM_ERR_INIT;
	char host[JM_HOST_SIZE];

	assert_ok(jm_tcp_listen(g.meet.host, 0, &g.meet.door_fd, &err), err);
	g.meet.port = jm_tcp_own_end(g.meet.door_fd, host);
	assert_ok(jm_key_new(g.meet.key, &err), err);
	return g;
}

/* Rank 0 of transport net takes over the open port, and closes it. */
static void gang_done(const struct gang *g)
{
	close(g->file);
	if (strcmp(g->transport, "net") != 0)
		close(g->meet.door_fd);
}

static struct jm_comm_place place_of(const struct gang *g, int rank, int world)
{
	return (struct jm_comm_place){
		.rank = rank, .world = world, .fd = g->file, .meet = &g->meet};
}

static int meet_and_transfer(struct transfer_rank *r)
{
	struct jm_comm c = {0};
	int code = jm_comm_open(r->transport, &r->place, &c, &r->err);

	if (!code)
		code = transfers_run(r, &c);
	if (!code)
		code = jm_comm_leave(&c, &r->err);
	jm_comm_close(&c);
	return code;
}

static int enter(void *arg, struct jm_err *err)
{
	(void)arg, (void)err;
	return 0;
}

/* With a device of its own, and a communicator `local` beside that of the device. */
static int go_there(struct transfer_rank *r, struct jm_device *device, struct jm_comm *control)
{
	char name[16];
	int code;

	snprintf(name, sizeof(name), "later:%d", r->place.rank);
	code = jm_device_open(name, 1, device, &r->err);
	if (code)
		return code;
	r->device = device;
	r->place.control = control;
	r->place.device = device->dev;
	r->place.lanes = device->backend->lanes;
	r->place.enter = enter;
	return jm_comm_open("local", &r->place, control, &r->err);
}

static int be_rank_there(struct transfer_rank *r)
{
	struct jm_comm control = {0};
	struct jm_device device = {0};
	int code = go_there(r, &device, &control);

	if (!r->device)
		return code;
	if (!code)
		code = meet_and_transfer(r);
	jm_comm_close(&control);
	jm_device_close(&device);
	return code;
}

static void *be_rank(void *arg)
{
	struct transfer_rank *r = arg;

	if (jm_transport_find(r->transport, &r->err)->host_memory)
		r->rc = meet_and_transfer(r);
	else
		r->rc = be_rank_there(r);
	return NULL;
}

static void run_gang(const char *transport, int world, size_t n)
{
	struct gang g = gang_new(transport);
	struct transfer_rank rank[MOST_RANKS];
	pthread_t thread[MOST_RANKS];

	for (int i = 0; i < world; i++) {
		rank[i] = (struct transfer_rank){
			.transport = transport, .place = place_of(&g, i, world), .n = n};
		transfers_make_room(&rank[i]);
		assert_int_equal(pthread_create(&thread[i], NULL, be_rank, &rank[i]), 0);
	}
	for (int i = 0; i < world; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < world; i++) {
		assert_ok(rank[i].rc, rank[i].err);
		assert_true(transfers_are_right(&rank[i]));
		free(rank[i].sum);
	}
	gang_done(&g);
}

/* Below, at and above the sizes of a piece (65536 f32; net: 262144); rests fill no vector. */
/* Large ones by three ranks (`make check STEPS=long`: any number): pieces join in the same way. */
static void run_gangs(const char *transport, const size_t *counts, size_t n)
{
	for (int world = strcmp(transport, "host") ? 1 : 2; world <= MOST_RANKS; world++)
		for (size_t i = 0; i < n; i++)
			if (counts[i] < 100000 || world == 3 || getenv("JM_LONG"))
				run_gang(transport, world, counts[i]);
}

static void transfers_are_what_they_say(void **transport)
{
	run_gangs(*transport, (size_t[]){0, 1, 9, 65536, 65537, 200003, 600001}, 7);
}

/* A piece of transport host has 1048576 f32. */
static void transfers_of_devices_are_what_they_say(void **transport)
{
	run_gangs(*transport, (size_t[]){0, 1, 9, 65537, 1048577}, 5);
}

#define PAGE 65536 /* a multiple of that of every machine */

/* The own part, which computation may read meanwhile, cannot be written. */
static void *gather_in_place(void *arg)
{
	struct transfer_rank *r = arg;
	unsigned char *all =
		mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *own = all + r->place.rank * PAGE;
	const struct jm_transfer t = {
		.kind = JM_ALL_GATHER, .type = JM_COMM_BYTE, .from = own, .to = all, .count = PAGE};
	struct jm_comm c = {0};

	memset(own, 7 + r->place.rank, PAGE);
	mprotect(own, PAGE, PROT_READ);
	r->rc = jm_comm_open(r->transport, &r->place, &c, &r->err);
	if (!r->rc)
		r->rc = jm_comm_run(&c, &t, &r->err);
	r->group_is_right = all[0] == 7 && all[PAGE - 1] == 7 && all[PAGE] == 8;
	jm_comm_close(&c);
	munmap(all, 2 * PAGE);
	return NULL;
}

static void what_is_gathered_in_place_is_only_read(void **transport)
{
	struct gang g = gang_new(*transport);
	struct transfer_rank rank[2];
	pthread_t thread[2];

	for (int i = 0; i < 2; i++) {
		rank[i] = (struct transfer_rank){
			.transport = *transport, .place = place_of(&g, i, 2)};
		assert_int_equal(pthread_create(&thread[i], NULL, gather_in_place, &rank[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < 2; i++) {
		assert_ok(rank[i].rc, rank[i].err);
		assert_true(rank[i].group_is_right);
	}
	gang_done(&g);
}

static void *leave_early(void *arg)
{
	struct transfer_rank *r = arg;
	struct jm_comm c = {0};

	r->rc = jm_comm_open(r->transport, &r->place, &c, &r->err);
	jm_comm_close(&c);
	return NULL;
}

static void a_rank_that_left_is_named(void **transport)
{
	struct gang g = gang_new(*transport);
	struct transfer_rank stays = {.place = place_of(&g, 0, 2)},
			     leaves = {.transport = *transport, .place = place_of(&g, 1, 2)};
	struct jm_comm c;
	pthread_t thread;
	double one = 1;

	assert_int_equal(pthread_create(&thread, NULL, leave_early, &leaves), 0);
	assert_ok(jm_comm_open(*transport, &stays.place, &c, &stays.err), stays.err);
	assert_int_equal(jm_comm_sum(&c, &one, 1, &stays.err), JM_EGONE);
	assert_sentence(&stays.err, JM_EGONE);
	assert_non_null(strstr(stays.err.text, "Rank 1"));
	pthread_join(thread, NULL);
	jm_comm_close(&c);
	gang_done(&g);
}

/* Begins a sum and leaves. A rank whose copy does not end keeps its device. */
static void *begin_and_leave(void *arg)
{
	struct transfer_rank *r = arg;
	struct jm_comm control = {0}, c = {0};
	struct jm_device device = {0};
	struct jm_transfer t = {.kind = JM_ALL_REDUCE, .type = JM_COMM_F32, .count = r->n};
	int code = go_there(r, &device, &control);

	if (!code)
		code = jm_comm_open("host", &r->place, &c, &r->err);
	if (!code)
		code = device.backend->stream(device.dev, JM_QUEUE_COMM, &t.stream, &r->err);
	t.from = t.to = code ? NULL : device.backend->alloc(device.dev, r->n * sizeof(float));
	if (!code)
		code = jm_comm_run(&c, &t, &r->err);
	r->rc = code ? code : jm_comm_leave(&c, &r->err);
	jm_comm_close(&c);
	jm_comm_close(&control);
	if (!r->rc) {
		device.backend->release(device.dev, t.to);
		jm_device_close(&device);
	}
	return NULL;
}

static void a_transfer_that_does_not_end_is_reported_by_leaving(void **unused)
{
	struct gang g = gang_new("host");
	struct transfer_rank rank[2];
	pthread_t thread[2];

	(void)unused;
	alarm(100); /* of a rank that never leaves */
	setenv("JM_FAKE_LANES_HANG", "1/1", 1);
	for (int i = 0; i < 2; i++) {
		rank[i] = (struct transfer_rank){.place = place_of(&g, i, 2), .n = 9};
		assert_int_equal(pthread_create(&thread[i], NULL, begin_and_leave, &rank[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	unsetenv("JM_FAKE_LANES_HANG");
	alarm(0);
	assert_ok(rank[0].rc, rank[0].err);
	assert_int_equal(rank[1].rc, JM_EGONE);
	assert_non_null(strstr(rank[1].err.text, "have not ended 2 s after they were given up"));
	gang_done(&g);
}

static void check_lonely(const char *transport, int rank, int missing)
{
	struct gang g = gang_new(transport);
	struct jm_comm_place alone = place_of(&g, rank, 2);
	struct jm_err err = JM_ERR_INIT;
	struct jm_comm c = {0};
	char sentence[80];

	alone.join_s = 0.2;
	if (rank) /* of net: nobody listens */
		close(g.meet.door_fd);
	assert_int_equal(jm_comm_open(transport, &alone, &c, &err), JM_EIO);
	assert_sentence(&err, JM_EIO);
	snprintf(sentence, sizeof(sentence), "Rank %d has not joined the other ranks within 0.2 s",
		missing);
	assert_non_null(strstr(err.text, sentence));
	jm_comm_close(&c);
	close(g.file);
}

static void a_rank_that_never_comes_is_named(void **transport)
{
	check_lonely(*transport, 1, 0);
	check_lonely(*transport, 0, 1);
}

static void *come_and_tarry(void *arg)
{
	struct transfer_rank *r = arg;
	struct jm_comm c = {0};
	double one = 1;

	r->rc = jm_comm_open(r->transport, &r->place, &c, &r->err);
	usleep(600000);
	if (!r->rc)
		r->rc = jm_comm_sum(&c, &one, 1, &r->err);
	jm_comm_close(&c);
	return NULL;
}

/* A rank may plan and build for minutes while the others wait. */
static void ranks_that_have_come_may_take_their_time(void **transport)
{
	struct gang g = gang_new(*transport);
	struct transfer_rank late = {.transport = *transport, .place = place_of(&g, 1, 2)},
			     waits = {.place = place_of(&g, 0, 2)};
	struct jm_comm c = {0};
	pthread_t thread;
	double one = 1;

	waits.place.join_s = 0.3;
	assert_int_equal(pthread_create(&thread, NULL, come_and_tarry, &late), 0);
	assert_ok(jm_comm_open(*transport, &waits.place, &c, &waits.err), waits.err);
	jm_comm_joined(&c);
	assert_ok(jm_comm_sum(&c, &one, 1, &waits.err), waits.err);
	assert_true(one == 2);
	pthread_join(thread, NULL);
	assert_ok(late.rc, late.err);
	jm_comm_close(&c);
	gang_done(&g);
}

static void wrong_places_are_refused(void **unused)
{
	struct jm_comm_place beyond = {.rank = 2, .world = 2, .fd = -1},
			     many = {.world = JM_RANKS_MOST + 1, .fd = -1},
			     no_file = {.world = 2, .fd = -1};
	struct jm_err err = JM_ERR_INIT, err2 = JM_ERR_INIT, err3 = JM_ERR_INIT, err4 = JM_ERR_INIT;
	struct jm_comm c = {0};

	(void)unused;
	assert_int_equal(jm_comm_open("local", &beyond, &c, &err), JM_ERANGE);
	assert_sentence(&err, JM_ERANGE);
	assert_int_equal(jm_comm_open("local", &many, &c, &err2), JM_ERANGE);
	assert_int_equal(jm_comm_open("local", &no_file, &c, &err3), JM_EIO);
	assert_sentence(&err3, JM_EIO);
	assert_int_equal(jm_comm_open("locl", &no_file, &c, &err4), JM_EUSAGE);
	jm_comm_close(&c);
}

/* As many as there may be, on one host: what none of them writes takes no memory. */
static void the_file_of_the_most_ranks_takes_little_memory(void **unused)
{
	const struct jm_comm_place place = {.rank = JM_RANKS_MOST - 1,
		.world = JM_RANKS_MOST,
		.fd = memfd_create("gang", MFD_CLOEXEC),
		.join_s = 0.001};
	struct jm_err err = JM_ERR_INIT;
	struct jm_comm c = {0};
	struct stat st;

	(void)unused;
	assert_int_not_equal(jm_comm_open("local", &place, &c, &err), 0);
	assert_non_null(strstr(err.text, "Rank 0 has not joined the other ranks"));
	assert_int_equal(fstat(place.fd, &st), 0);
	assert_true(st.st_size < INT64_C(1500000000) && st.st_blocks * 512 < 64 << 20);
	close(place.fd);
}

static bool nobody_has_left(void *arg, int rank)
{
	(void)arg;
	(void)rank;
	return false;
}

/* The last of many ranks sends to itself, through the slots of a pair that are small then. */
static void pairs_of_many_ranks_carry_more_than_their_slots(void **unused)
{
	enum { WORLD = 300, BYTES = 123457 };
	static struct jm__pairs pairs = {
		.all = WORLD, .rank = WORLD - 1, .has_left = nobody_has_left};
	size_t all = jm__pairs_bytes(WORLD), own = all / WORLD / WORLD;
	unsigned char *from = malloc(BYTES), *to = calloc(BYTES, 1);
	struct jm_transfer t = {.count = BYTES,
		.type = JM_COMM_BYTE,
		.from = from,
		.to = to,
		.from_rank = WORLD - 1,
		.to_rank = WORLD - 1};
	struct jm_err err = JM_ERR_INIT;

	(void)unused;
	pairs.pair = mmap(NULL, all, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(pairs.pair != MAP_FAILED && from && to);
	for (int r = 0; r < WORLD; r++)
		pairs.member[r] = r;
	for (int i = 0; i < BYTES; i++)
		from[i] = (unsigned char)(i * 7 + i / 256);
	assert_ok(jm__pairs_exchange(&pairs, &t, &err), err);
	assert_memory_equal(from, to, BYTES);
	for (size_t i = all - 2 * own; i < all - own; i++)
		assert_int_equal(pairs.pair[i], 0);
	munmap(pairs.pair, all);
	free(from);
	free(to);
}

struct member {
	struct jm_own own[2];
	struct jm_work work;
	struct jm_comm_place place;
	uint64_t value;
	int rc;
	struct jm_err err;
};

static void *compare(void *arg)
{
	struct member *m = arg;
	struct jm_gang g = {.work = &m->work, .own = m->own};

	m->rc = jm_comm_open("local", &m->place, &g.control, &m->err);
	if (!m->rc)
		m->rc = jm_gang_same(&g, m->value, "Places of the gradients", &m->err);
	jm_comm_close(&g.control);
	return NULL;
}

static void compare_both(struct member *m, uint64_t other)
{
	int fd = memfd_create("gang", MFD_CLOEXEC);
	pthread_t thread;

	for (int r = 0; r < 2; r++) {
		m[r] = (struct member){.work = {.rank = r, .world = 2},
			.own = {{.name = "card 0"}, {.name = "card 1"}},
			.place = {.rank = r, .world = 2, .fd = fd},
			.value = r ? other : 7};
		m[r].work.own = m[r].own[r];
	}
	assert_int_equal(pthread_create(&thread, NULL, compare, &m[1]), 0);
	compare(&m[0]);
	pthread_join(thread, NULL);
	close(fd);
}

static void a_rank_that_differs_is_named(void **unused)
{
	struct member m[2];

	(void)unused;
	compare_both(m, 7);
	assert_ok(m[0].rc, m[0].err);
	assert_ok(m[1].rc, m[1].err);
	compare_both(m, 8);
	assert_ok(m[0].rc, m[0].err);
	assert_sentence(&m[1].err, JM_ENOSUP);
	assert_non_null(strstr(m[1].err.text, "gradients of rank 1 on card 1 differ"));
}

/* There is no other rank to wait for, and nothing changes. */
static void alone_nothing_is_sent(void **unused)
{
	struct jm_comm none = {0};
	double x = 3;

	(void)unused;
	assert_int_equal(jm_comm_sum(&none, &x, 1, NULL), 0);
	assert_int_equal(jm_comm_from_first(&none, &x, sizeof(x), NULL), 0);
	assert_true(x == 3);
}

#define ON(transport, test)                                                                        \
	{                                                                                          \
#test " (" transport ")", test, NULL, NULL, (void *)(uintptr_t)transport           \
	}
#define ON_BOTH(test) ON("local", test), ON("net", test)

static void name_fakes(void)
{
	char path[4096];

	use_peer_backends();
	snprintf(path, sizeof(path), "%s/tests/peers/libnccl-fake.so", getenv("JM_BUILD"));
	setenv("JM_NCCL_LIB", path, 1);
	setenv("JM_FAKE_LATER_IDS", "GPU-0,GPU-1,GPU-2,GPU-3,GPU-4", 1);
	setenv("JM_FAKE_LATER_US", "0", 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_BOTH(transfers_are_what_they_say),
		ON("host", transfers_of_devices_are_what_they_say),
		ON("nccl", transfers_of_devices_are_what_they_say),
		ON_BOTH(what_is_gathered_in_place_is_only_read),
		ON_BOTH(a_rank_that_left_is_named),
		ON_BOTH(a_rank_that_never_comes_is_named),
		ON_BOTH(ranks_that_have_come_may_take_their_time),
		cmocka_unit_test(a_rank_that_differs_is_named),
		cmocka_unit_test(a_transfer_that_does_not_end_is_reported_by_leaving),
		cmocka_unit_test(wrong_places_are_refused),
		cmocka_unit_test(the_file_of_the_most_ranks_takes_little_memory),
		cmocka_unit_test(pairs_of_many_ranks_carry_more_than_their_slots),
		cmocka_unit_test(alone_nothing_is_sent),
	};

	name_fakes();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
