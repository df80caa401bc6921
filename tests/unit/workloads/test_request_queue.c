/* SPDX-License-Identifier: Apache-2.0 */
/* The queue that replicas share. Its replicas are played here, and who takes which request is
 * compared with what a list of all of them gives. */
#include "kit/test.h"
#include "workloads/serve/request_queue.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 4
#define MS   JM_MILLISECOND
#define T0   JM_SECOND

struct gang {
	int fd, n;
	struct jm_load load[MOST];
	struct jm_request_queue queue[MOST];
	int under_way[MOST]; /* requests of each */
};

static void open_gang(struct gang *g, int n, const struct jm_load *load)
{
	int64_t context = load->arrivals.kind == ARRIVE_CLIENTS ? 64 : 0;
	struct jm_err err = JM_ERR_INIT;

	*g = (struct gang){.fd = memfd_create("gang", MFD_CLOEXEC), .n = n};
	assert_true(g->fd >= 0);
	for (int r = 0; r < n; r++) {
		const struct jm_work work = {.rank = r, .world = n, .gang_fd = g->fd};

		g->load[r] = *load;
		g->load[r].replicas = n;
		assert_ok(jm_queue_open(&g->queue[r], &work, &g->load[r], context, &err), err);
	}
}

static void close_gang(struct gang *g)
{
	for (int r = 0; r < g->n; r++)
		jm_queue_close(&g->queue[r]);
	close(g->fd);
}

static struct jm_load load_of(enum arrival kind, int requests, int running)
{
	return (struct jm_load){.requests = requests,
		.arrivals = {.kind = kind,
			.rate = kind == ARRIVE_POISSON ? 1000 : (double)NAN,
			.seed = 7,
			.input = {1, 64},
			.output = {1, 32}},
		.answers = {.running = running, .ttft = NAN, .tpot = NAN}};
}

/* Lets a replica with so many places take what is its turn at that time; returns how many. */
static int take(struct gang *g, int r, int64_t now, int places, struct jm_answer *last)
{
	struct jm_request_queue *q = &g->queue[r];
	struct jm_answer a;
	int n = 0;

	while (jm_queue_peek(q, now, g->under_way[r], &a) &&
		jm_queue_is_turn(q, g->under_way[r], g->under_way[r] < places)) {
		assert_true(jm_queue_take(q, a.number));
		g->under_way[r]++;
		n++;
		if (last)
			*last = a;
	}
	return n;
}

static void answer(struct gang *g, int r, int n)
{
	for (int i = 0; i < n; i++)
		jm_queue_answered(&g->queue[r]);
	g->under_way[r] -= n;
}

static void a_burst_is_shared_evenly_whoever_looks_first(void **state)
{
	const struct jm_load load = load_of(ARRIVE_ALL, 64, 64);
	struct gang g;

	(void)state;
	open_gang(&g, 4, &load);
	assert_int_equal(take(&g, 2, T0, 64, NULL), 16);
	assert_int_equal(take(&g, 0, T0 + MS, 64, NULL), 16);
	assert_int_equal(take(&g, 2, T0 + 2 * MS, 64, NULL), 0); /* the rest is for the others */
	assert_int_equal(take(&g, 3, T0 + 3 * MS, 64, NULL), 16);
	assert_int_equal(take(&g, 1, T0 + 4 * MS, 64, NULL), 16);
	assert_int_equal(jm_queue_taken(&g.queue[0]), 64);
	close_gang(&g);
}

static void a_full_replica_leaves_its_share_to_the_others(void **state)
{
	const struct jm_load load = load_of(ARRIVE_ALL, 64, 64);
	struct gang g;

	(void)state;
	open_gang(&g, 2, &load);
	assert_int_equal(take(&g, 0, T0, 8, NULL), 8); /* no more places, or pages */
	assert_int_equal(take(&g, 1, T0, 64, NULL), 56);
	close_gang(&g);
}

static void a_replica_with_none_takes_the_next_before_one_that_is_busy(void **state)
{
	const struct jm_load load = load_of(ARRIVE_ALL, 3, 8);
	struct gang g;

	(void)state;
	open_gang(&g, 2, &load);
	assert_int_equal(take(&g, 0, T0, 8, NULL), 2); /* of three, rounded up */
	assert_int_equal(take(&g, 0, T0, 8, NULL), 0);
	assert_int_equal(take(&g, 1, T0, 8, NULL), 1);
	answer(&g, 0, 2);
	answer(&g, 1, 1);
	g.under_way[0] = 1; /* as if one were left of before */
	assert_int_equal(take(&g, 0, T0 + MS, 8, NULL), 1);
	assert_int_equal(take(&g, 1, T0 + MS, 8, NULL), 2);
	close_gang(&g);
}

static void all_arrive_again_when_the_last_is_answered(void **state)
{
	const struct jm_load load = load_of(ARRIVE_ALL, 6, 8);
	struct jm_answer last;
	struct gang g;

	(void)state;
	open_gang(&g, 2, &load);
	assert_int_equal(take(&g, 0, T0, 8, &last) + take(&g, 1, T0 + MS, 8, &last), 6);
	assert_int_equal(last.arrived, T0);
	answer(&g, 0, 3);
	answer(&g, 1, 2);
	assert_int_equal(take(&g, 0, T0 + 5 * MS, 8, NULL), 0);
	answer(&g, 1, 1);
	assert_int_equal(take(&g, 0, T0 + 9 * MS, 8, &last), 3);
	assert_int_equal(last.arrived, T0 + 9 * MS);
	assert_int_equal(take(&g, 1, T0 + 11 * MS, 8, &last), 3);
	assert_int_equal(last.arrived, T0 + 9 * MS);
	assert_int_equal(last.number, 11);
	close_gang(&g);
}

static void one_at_a_time_is_one_of_all_replicas(void **state)
{
	const struct jm_load load = load_of(ARRIVE_SINGLE, 64, 8);
	struct gang g;

	(void)state;
	open_gang(&g, 3, &load);
	for (int i = 0; i < 9; i++) {
		assert_int_equal(take(&g, i % 3, T0 + i * MS, 8, NULL), 1);
		assert_int_equal(take(&g, (i + 1) % 3, T0 + i * MS, 8, NULL), 0);
		answer(&g, i % 3, 1);
	}
	close_gang(&g);
}

static void closed_arrivals_follow_the_answers_of_each_replica(void **state)
{
	const struct jm_load load = load_of(ARRIVE_CLOSED, 64, 8);
	struct jm_answer last;
	struct gang g;

	(void)state;
	open_gang(&g, 2, &load);
	assert_int_equal(take(&g, 0, T0, 8, NULL), 8);
	assert_int_equal(take(&g, 1, T0, 8, &last), 8);
	answer(&g, 1, 3);
	assert_int_equal(take(&g, 0, T0 + MS, 8, NULL), 0);
	assert_int_equal(take(&g, 1, T0 + MS, 8, &last), 3);
	assert_int_equal(last.number, 18);
	assert_int_equal(last.arrived, T0 + MS);
	close_gang(&g);
}

/* Requests of one server, from the same seed: the times and lengths of each number. */
static void requests_are_those_of_one_server_at_the_same_times(void **state)
{
	const struct jm_load load = load_of(ARRIVE_POISSON, 1, 4);
	struct jm_load alone = load;
	struct jm_answer a, truth;
	struct gang g;
	int n = 0;

	(void)state;
	open_gang(&g, 3, &load);
	jm_load_next(&alone, T0, 0, &truth); /* begins; none has arrived */
	for (int64_t now = T0; n < 300; now += MS / 7) {
		int r = (int)(now / 1000 % 3);

		while (jm_queue_peek(&g.queue[r], now, 0, &a) &&
			jm_queue_take(&g.queue[r], a.number)) {
			assert_true(jm_load_next(&alone, now, 0, &truth));
			alone.answers.n++;
			assert_int_equal(a.number, n++);
			assert_int_equal(a.arrived, truth.arrived);
			assert_int_equal(a.input, truth.input);
			assert_int_equal(a.output, truth.output);
		}
		assert_int_equal(jm_queue_arrived(&g.queue[(r + 1) % 3], now), n);
		assert_true(jm_queue_next_ns(&g.queue[(r + 2) % 3]) > now);
		assert_false(jm_load_next(&alone, now, 0, &truth));
	}
	close_gang(&g);
}

#define SERVERS	 3
#define SERVED	 3000
#define TAKES_NS (29 * MS / 10) /* so that 0.97 of the servers' time is used */

/* When each request begins, in order of arrival: when it has arrived and one of the servers is
 * free, which is the one that ends first. */
static void compute_queue(const int64_t *arrived, int64_t *begins)
{
	int64_t free_at[SERVERS] = {0};

	for (int i = 0; i < SERVED; i++) {
		int first = 0;

		for (int r = 1; r < SERVERS; r++)
			first = free_at[r] < free_at[first] ? r : first;
		begins[i] = jm_later(arrived[i], free_at[first]);
		free_at[first] = begins[i] + TAKES_NS;
	}
}

/* The next time at which a replica ends a request or, if one has none, a request arrives. */
static int64_t next_event(struct gang *g, const int64_t *ends)
{
	int64_t next = JM_FOREVER;

	for (int r = 0; r < SERVERS; r++)
		next = jm_earlier(next, g->under_way[r] ? ends[r] : jm_queue_next_ns(&g->queue[r]));
	return next;
}

static void replicas_of_one_place_are_a_queue_with_several_servers(void **state)
{
	const struct jm_load load = load_of(ARRIVE_POISSON, 1, 1);
	int64_t *arrived = calloc(SERVED, sizeof(*arrived)),
		*begins = calloc(SERVED, sizeof(*begins)), *began = calloc(SERVED, sizeof(*began)),
		ends[SERVERS] = {0};
	struct jm_answer a;
	struct gang g;
	int n = 0, waited = 0;

	(void)state;
	open_gang(&g, SERVERS, &load);
	assert_false(jm_queue_peek(&g.queue[0], T0, 0, &a)); /* begins */
	while (n < SERVED) {
		int64_t now = next_event(&g, ends);

		for (int i = 0; i < SERVERS; i++) {
			int r = (int)((now + i) % SERVERS); /* in no special order */

			if (g.under_way[r] && ends[r] <= now)
				answer(&g, r, 1);
			if (g.under_way[r] || !take(&g, r, now, 1, &a) || a.number >= SERVED)
				continue;
			arrived[a.number] = a.arrived;
			began[a.number] = now;
			ends[r] = now + TAKES_NS;
			waited += now > a.arrived;
			n++;
		}
	}
	compute_queue(arrived, begins);
	assert_memory_equal(began, begins, SERVED * sizeof(*began));
	assert_in_range(waited, SERVED / 2, SERVED - 1);
	close_gang(&g);
	free(arrived);
	free(begins);
	free(began);
}

/* Nobody takes any: one that waits longer than the bound is late. */
static void a_trial_ends_when_too_many_wait_or_all_are_answered(void **state)
{
	struct jm_load load = load_of(ARRIVE_POISSON, 1, 4);
	const struct jm_late none = {0};
	struct jm_answer last;
	struct gang g;

	(void)state;
	load.most = 30;
	load.answers.ttft = 0.005;
	open_gang(&g, 2, &load);
	for (int trial = 0; trial < 2; trial++) {
		int n = 0;

		assert_false(jm_queue_peek(&g.queue[1], T0, 0, &last)); /* begins */
		while (jm_queue_arrived(&g.queue[0], T0 + n * MS) < 11)
			n++;
		for (int ms = 0; ms < n + 5; ms++) /* ten arrive before n ms, or fewer */
			assert_false(jm_queue_is_over(&g.queue[ms % 2], T0 + ms * MS, none, 10));
		assert_true(jm_queue_is_over(&g.queue[0], T0 + (n + 5) * MS, none, 10));
		assert_true(jm_queue_is_over(&g.queue[1], T0, none, 10)); /* told by the other */
		jm_queue_reset(&g.queue[0]);
		for (int r = 0; r < 2; r++) {
			g.load[r].arrivals = load.arrivals;
			jm_queue_restart(&g.queue[r]);
		}
	}
	assert_false(jm_queue_peek(&g.queue[1], T0, 0, &last));
	assert_int_equal(take(&g, 0, T0 + JM_SECOND, 64, &last), 15);
	assert_int_equal(take(&g, 1, T0 + JM_SECOND, 64, &last), 15); /* and no more come */
	answer(&g, 0, 15);
	assert_false(jm_queue_is_over(&g.queue[1], T0 + JM_SECOND, (struct jm_late){3, 2}, 10));
	answer(&g, 1, 15);
	assert_true(jm_queue_is_over(&g.queue[0], T0 + JM_SECOND, none, 10));
	assert_true(jm_queue_next_ns(&g.queue[0]) == JM_FOREVER);
	close_gang(&g);
}

/* In two replicas as many as are allowed are late by either bound: together they are by neither. */
static void each_bound_has_a_number_of_late_requests_of_its_own(void **state)
{
	const struct jm_late first = {6, 0}, second = {0, 6}, more = {5, 6};
	struct jm_load load = load_of(ARRIVE_POISSON, 1, 4);
	struct jm_answer a;
	struct gang g;

	(void)state;
	load.most = 600;
	open_gang(&g, 2, &load);
	assert_false(jm_queue_peek(&g.queue[0], T0, 0, &a)); /* begins */
	assert_false(jm_queue_is_over(&g.queue[0], T0, first, 7));
	assert_false(jm_queue_is_over(&g.queue[1], T0, second, 7));
	assert_true(jm_queue_peek(&g.queue[1], T0 + JM_SECOND, 0, &a));
	assert_false(jm_queue_is_lost(&g.queue[0]));
	assert_true(jm_queue_is_over(&g.queue[1], T0, more, 7)); /* 6 + 5 of one bound */
	assert_true(jm_queue_is_over(&g.queue[0], T0, first, 7));
	assert_true(jm_queue_is_lost(&g.queue[0]));
	for (int r = 0; r < 2; r++)
		assert_false(
			jm_queue_peek(&g.queue[r], T0 + JM_SECOND, 0, &a)); /* though many wait */
	close_gang(&g);
}

/* On the desk of clients' requests: those beside it keep theirs. */
static void a_long_request_takes_no_memory_when_its_place_is_free(void **state)
{
	enum { LONG = 40000, CONTEXT = 100000 };
	const struct jm_load load = load_of(ARRIVE_CLIENTS, 1, 1);
	const struct jm_work work = {.gang_fd = -1};
	struct jm_ask ask = {.token = calloc(LONG, sizeof(*ask.token)), .n = LONG, .output = 1};
	struct jm_load own = load;
	struct jm_request_queue q;
	struct jm_err err = JM_ERR_INIT;
	bool is_over;
	int n;

	(void)state;
	assert_non_null(ask.token);
	for (int i = 0; i < LONG; i++)
		ask.token[i] = i + 1;
	assert_ok(jm_queue_open(&q, &work, &own, CONTEXT, &err), err);
	for (int place = 4; place < 7; place++)
		jm_desk_put(&q.desk, place, &ask, T0);
	jm_desk_add_token(&q.desk, 5, 7, T0);
	assert_int_equal(jm_desk_answer(&q.desk, 5, &n, &is_over)[0], 7);
	assert_true(is_over && n == 1);
	jm_desk_free(&q.desk, 5);
	for (int place = 4; place < 7; place++)
		for (int i = 0; i < LONG; i++)
			assert_int_equal(jm_desk_prompt(&q.desk, place)[i], place == 5 ? 0 : i + 1);
	jm_desk_answer(&q.desk, 4, &n, &is_over);
	assert_true(!is_over && !n);
	jm_desk_drop(&q.desk, 4);
	jm_desk_answer(&q.desk, 4, &n, &is_over);
	assert_true(is_over && !n);
	jm_queue_close(&q);
	free(ask.token);
}

static void clients_requests_are_handed_out_evenly_with_their_places(void **state)
{
	const struct jm_load load = load_of(ARRIVE_CLIENTS, 1, 8);
	int32_t token[] = {1, 2, 3};
	const int place_of[] = {7, 3, 2000, 5};
	struct jm_answer last;
	struct gang g;

	(void)state;
	open_gang(&g, 2, &load);
	assert_false(jm_queue_peek(&g.queue[0], T0, 0, &last));
	for (int i = 0; i < 4; i++) {
		const struct jm_ask ask = {.token = token, .n = 3, .output = 10 + i};

		jm_desk_put(&g.queue[0].desk, place_of[i], &ask, T0 + i);
		assert_int_equal(jm_queue_add(&g.queue[0], place_of[i]), i);
	}
	for (int i = 0; i < 4; i++) { /* each time the one that has fewer */
		assert_true(jm_queue_peek(&g.queue[i % 2], T0 + MS, i / 2, &last));
		assert_true(jm_queue_is_turn(&g.queue[i % 2], i / 2, true));
		assert_true(jm_queue_take(&g.queue[i % 2], last.number));
		assert_int_equal(last.number, i);
		assert_int_equal(last.output, 10 + i);
		assert_int_equal(last.arrived, T0 + i);
		assert_int_equal(g.queue[i % 2].place, place_of[i]);
		assert_int_equal(g.queue[0].desk.place[place_of[i]].rank, i % 2);
	}
	assert_false(jm_queue_peek(&g.queue[0], T0 + MS, 2, &last));
	close_gang(&g);
}

#define NUMBERS 20000

struct racer {
	pthread_t thread;
	struct jm_request_queue *queue;
	int n, number[NUMBERS];
};

static void *race(void *arg)
{
	struct racer *own = arg;
	struct jm_answer a;

	while (jm_queue_peek(own->queue, T0, 0, &a))
		if (jm_queue_take(own->queue, a.number))
			own->number[own->n++] = a.number;
	return NULL;
}

static void each_request_is_taken_once_by_replicas_that_race(void **state)
{
	const struct jm_load load = load_of(ARRIVE_ALL, NUMBERS, 1);
	struct racer *racer = calloc(MOST, sizeof(*racer));
	char *times = calloc(1, NUMBERS);
	struct gang g;

	(void)state;
	open_gang(&g, MOST, &load);
	for (int r = 0; r < MOST; r++) {
		racer[r].queue = &g.queue[r];
		assert_int_equal(pthread_create(&racer[r].thread, NULL, race, &racer[r]), 0);
	}
	for (int r = 0; r < MOST; r++)
		pthread_join(racer[r].thread, NULL);
	for (int r = 0; r < MOST; r++)
		for (int i = 0; i < racer[r].n; i++) {
			assert_true(!i || racer[r].number[i] > racer[r].number[i - 1]);
			times[racer[r].number[i]]++;
		}
	for (int i = 0; i < NUMBERS; i++)
		assert_int_equal(times[i], 1);
	close_gang(&g);
	free(racer);
	free(times);
}

static void *end_soon(void *arg)
{
	usleep(20000);
	jm_queue_end_phase(arg);
	return NULL;
}

static void the_end_of_a_phase_wakes_a_replica_and_is_seen_once(void **state)
{
	const struct jm_load load = load_of(ARRIVE_ALL, 1, 1);
	struct gang g;
	pthread_t other;
	uint32_t news;

	(void)state;
	open_gang(&g, 2, &load);
	news = jm_queue_news(&g.queue[1]);
	assert_int_equal(pthread_create(&other, NULL, end_soon, &g.queue[0]), 0);
	while (!jm_queue_phase_ended(&g.queue[1]))
		jm_queue_wait(&g.queue[1], news, 1000 * JM_SECOND); /* else the test never ends */
	pthread_join(other, NULL);
	assert_false(jm_queue_phase_ended(&g.queue[1]));
	jm_queue_add_tokens(&g.queue[0], 5);
	jm_queue_add_tokens(&g.queue[1], 7);
	assert_int_equal(jm_queue_tokens(&g.queue[0]), 12);
	jm_queue_reset_tokens(&g.queue[1]);
	assert_int_equal(jm_queue_tokens(&g.queue[1]), 5);
	close_gang(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_burst_is_shared_evenly_whoever_looks_first),
		cmocka_unit_test(a_full_replica_leaves_its_share_to_the_others),
		cmocka_unit_test(a_replica_with_none_takes_the_next_before_one_that_is_busy),
		cmocka_unit_test(all_arrive_again_when_the_last_is_answered),
		cmocka_unit_test(one_at_a_time_is_one_of_all_replicas),
		cmocka_unit_test(closed_arrivals_follow_the_answers_of_each_replica),
		cmocka_unit_test(requests_are_those_of_one_server_at_the_same_times),
		cmocka_unit_test(replicas_of_one_place_are_a_queue_with_several_servers),
		cmocka_unit_test(a_trial_ends_when_too_many_wait_or_all_are_answered),
		cmocka_unit_test(each_bound_has_a_number_of_late_requests_of_its_own),
		cmocka_unit_test(a_long_request_takes_no_memory_when_its_place_is_free),
		cmocka_unit_test(clients_requests_are_handed_out_evenly_with_their_places),
		cmocka_unit_test(each_request_is_taken_once_by_replicas_that_race),
		cmocka_unit_test(the_end_of_a_phase_wakes_a_replica_and_is_seen_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
