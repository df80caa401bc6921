/* SPDX-License-Identifier: Apache-2.0 */
#include "request_queue.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm/gang_memory.h"

struct seat {
	_Alignas(64) _Atomic int under_way;
	_Atomic bool full; /* when it last looked it had no room for a request that waited */
	_Atomic int64_t tokens;
	_Atomic int late_ttft, late_tpot; /* requests, in a trial of --rate max */
	_Atomic int pid;
	_Atomic bool stopped; /* by SIGTERM, which is no failure of it */
};

/* All zero at first. */
struct jm_queue_shared {
	_Atomic int64_t begin_ns; /* when the first replica looked; 0 = not yet */
	_Alignas(64) _Atomic int next;
	/* of --arrival all and single: numbers below `arrived` have, the latest of them at
	 * arrived_ns; those below `claimed` are about to */
	_Alignas(64) _Atomic int arrived;
	_Atomic int claimed, answered;
	_Atomic int64_t arrived_ns;
	_Alignas(64) _Atomic uint32_t news;
	_Atomic uint32_t ends;
	_Atomic bool lost; /* too many requests of a trial are late */
	struct seat seat[JM_RANKS_MOST];
	/* of clients' requests: the place of number n is place[n % JM_DESK_PLACES]; only those of
	 * numbers that are not taken count, which are no more than there are places */
	_Atomic int place[JM_DESK_PLACES];
};

#define DESK_FROM ((sizeof(struct jm_queue_shared) + 65535) / 65536 * 65536) /* whole pages */

/* Of this process: where it notes that it is stopped. */
static _Atomic bool *stopped;

static void on_stop(int number)
{
	atomic_store(stopped, true);
	signal(number,
		SIG_DFL); /* not by SA_RESETHAND: a second one could end it before the note */
	raise(number);
}

/* SIGTERM may end all replicas at once; the one that listens tells its clients why. */
static void note_stops(struct seat *own)
{
	const struct sigaction once = {.sa_handler = on_stop, .sa_flags = SA_RESTART};

	stopped = &own->stopped;
	sigaction(SIGTERM, &once, NULL);
}

int jm_queue_open(struct jm_request_queue *q, const struct jm_work *work, struct jm_load *load,
	int64_t context, struct jm_err *err)
{
	size_t bytes = DESK_FROM + (context ? jm_desk_bytes(context) : 0);
	void *memory;
	int code = jm_gang_memory_map(work->world > 1 ? work->gang_fd : -1, bytes, &memory, err);

	if (code)
		return code;
	*q = (struct jm_request_queue){.shared = memory,
		.bytes = bytes,
		.rank = work->rank,
		.world = jm_work_world(work),
		.load = load};
	if (context)
		q->desk = jm_desk_at((char *)memory + DESK_FROM, context);
	atomic_store(&q->shared->seat[q->rank].pid, (int)getpid());
	if (context && q->rank)
		note_stops(&q->shared->seat[q->rank]);
	return 0;
}

void jm_queue_close(struct jm_request_queue *q)
{
	if (q->shared && q->desk.place && q->rank)
		signal(SIGTERM, SIG_DFL);
	jm_gang_memory_unmap(q->shared, q->bytes);
	q->shared = NULL;
}

static bool has_ended(const struct jm_request_queue *q, int rank)
{
	int pid = atomic_load(&q->shared->seat[rank].pid);
	int fd = pid ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	struct pollfd ends = {.fd = fd, .events = POLLIN};
	bool ended = pid && fd < 0 && errno == ESRCH;

	if (fd < 0)
		return ended;
	ended = poll(&ends, 1, 0) > 0;
	close(fd);
	return ended;
}

int jm_queue_ended(const struct jm_request_queue *q, int *ret_rank)
{
	int n = 0;

	*ret_rank = -1;
	for (int r = 0; r < q->world; r++)
		if (r != q->rank && !atomic_load(&q->shared->seat[r].stopped) && has_ended(q, r)) {
			*ret_rank = r;
			n++;
		}
	return n;
}

bool jm_queue_stopped(const struct jm_request_queue *q)
{
	for (int r = 0; r < q->world; r++)
		if (atomic_load(&q->shared->seat[r].stopped))
			return true;
	return false;
}

/* ---- arrivals -------------------------------------------------------------------------------- */

static void begin(struct jm_request_queue *q, int64_t now_ns)
{
	int64_t not_yet = 0;

	atomic_compare_exchange_strong(&q->shared->begin_ns, &not_yet, now_ns);
}

static int64_t time_of(const struct jm_arrivals *a, int64_t begun)
{
	return begun + (int64_t)llround(a->at_s * 1e9);
}

/* The arrivals become those of the request of that number, which is no earlier one. */
static void advance(struct jm_arrivals *a, int number)
{
	while (a->next < number) {
		a->next++;
		jm_arrivals_plan(a);
	}
}

/* When all that have arrived are answered, the next ones arrive; one replica lets them. */
static void arrive_together(struct jm_request_queue *q, int64_t now_ns)
{
	struct jm_queue_shared *s = q->shared;
	int n = q->load->arrivals.kind == ARRIVE_ALL ? q->load->requests : 1;
	int arrived = atomic_load(&s->arrived), claimed = arrived;

	if (atomic_load(&s->answered) < arrived ||
		!atomic_compare_exchange_strong(&s->claimed, &claimed, arrived + n))
		return;
	atomic_store(&s->arrived_ns, now_ns);
	atomic_store(&s->arrived, arrived + n);
	jm_gang_memory_wake(&s->news);
}

static void plan(struct jm_request_queue *q)
{
	if (q->planned)
		return;
	jm_arrivals_plan(&q->load->arrivals);
	q->seen = q->late = q->load->arrivals;
	q->planned = true;
}

/* Timed: requests that have arrived by then; `a` becomes that of the next. */
static int arrived_by(struct jm_request_queue *q, struct jm_arrivals *a, int64_t t_ns)
{
	int64_t begun = atomic_load(&q->shared->begin_ns);

	while ((!q->load->most || a->next < q->load->most) && time_of(a, begun) <= t_ns)
		advance(a, a->next + 1);
	return a->next;
}

int jm_queue_arrived(struct jm_request_queue *q, int64_t now_ns)
{
	plan(q);
	begin(q, now_ns);
	if (q->load->arrivals.kind == ARRIVE_CLOSED)
		return atomic_load(&q->shared->next);
	if (!jm_arrivals_timed(&q->load->arrivals))
		return atomic_load(&q->shared->arrived);
	return arrived_by(q, &q->seen, now_ns);
}

int64_t jm_queue_next_ns(struct jm_request_queue *q)
{
	int64_t begun = atomic_load(&q->shared->begin_ns);
	int next = atomic_load(&q->shared->next);

	if (!begun || !jm_arrivals_timed(&q->load->arrivals) ||
		(q->load->most && next >= q->load->most))
		return JM_FOREVER;
	plan(q);
	advance(&q->load->arrivals, next);
	return time_of(&q->load->arrivals, begun);
}

int jm_queue_taken(const struct jm_request_queue *q)
{
	return atomic_load(&q->shared->next);
}

/* Another replica may take it meanwhile, and the listener put another one in its place. */
static struct jm_answer request_of_client(struct jm_request_queue *q, int number)
{
	const struct jm_desk_place *p;

	q->place = atomic_load(&q->shared->place[number % JM_DESK_PLACES]);
	p = &q->desk.place[q->place];
	return (struct jm_answer){.number = number,
		.input = atomic_load(&p->input),
		.output = atomic_load(&p->output),
		.arrived = atomic_load(&p->arrived)};
}

struct jm_answer jm_queue_request(struct jm_request_queue *q, int number)
{
	struct jm_arrivals *a = &q->load->arrivals;
	int64_t arrived = atomic_load(&q->shared->arrived_ns);

	if (a->kind == ARRIVE_CLIENTS)
		return request_of_client(q, number);
	if (jm_arrivals_timed(a)) {
		advance(a, number);
		arrived = time_of(a, atomic_load(&q->shared->begin_ns));
	}
	return jm_load_request(q->load, number, arrived);
}

int jm_queue_add(struct jm_request_queue *q, int place)
{
	struct jm_queue_shared *s = q->shared;
	int number = atomic_load(&s->arrived);

	atomic_store(&s->place[number % JM_DESK_PLACES], place);
	atomic_store(&s->arrived, number + 1);
	jm_gang_memory_wake(&s->news);
	return number;
}

bool jm_queue_peek(struct jm_request_queue *q, int64_t now_ns, int under_way, struct jm_answer *ret)
{
	const struct jm_arrivals *a = &q->load->arrivals;
	int next;

	plan(q);
	begin(q, now_ns);
	atomic_store(&q->shared->seat[q->rank].under_way, under_way);
	atomic_store(&q->shared->seat[q->rank].full, false);
	if (jm_queue_is_lost(q) ||
		(a->kind == ARRIVE_CLOSED && under_way >= q->load->answers.running))
		return false;
	if (a->kind == ARRIVE_ALL || a->kind == ARRIVE_SINGLE)
		arrive_together(q, now_ns);
	next = atomic_load(&q->shared->next);
	q->waiting = jm_queue_arrived(q, now_ns) - next;
	if (a->kind != ARRIVE_CLOSED && q->waiting < 1)
		return false;
	*ret = a->kind == ARRIVE_CLOSED ? jm_load_request(q->load, next, now_ns)
					: jm_queue_request(q, next);
	return true;
}

/* ---- who takes the next ---------------------------------------------------------------------- */

/* As if the requests that wait were handed out so that all replicas with room then have as many
 * under way as each other, or one more. */
bool jm_queue_is_turn(struct jm_request_queue *q, int under_way, bool has_room)
{
	struct jm_queue_shared *s = q->shared;
	int64_t sum = q->waiting + under_way;
	int n = 1;

	atomic_store(&s->seat[q->rank].full, !has_room);
	if (!has_room || q->load->arrivals.kind == ARRIVE_CLOSED)
		return has_room;
	for (int r = 0; r < q->world; r++) {
		if (r == q->rank || atomic_load(&s->seat[r].full))
			continue;
		sum += atomic_load(&s->seat[r].under_way);
		n++;
	}
	return (int64_t)under_way * n < sum; /* below the mean, rounded up */
}

bool jm_queue_take(struct jm_request_queue *q, int number)
{
	if (!atomic_compare_exchange_strong(&q->shared->next, &number, number + 1))
		return false;
	atomic_fetch_add(&q->shared->seat[q->rank].under_way, 1);
	if (q->load->arrivals.kind == ARRIVE_CLIENTS)
		atomic_store(&q->desk.place[q->place].rank, q->rank);
	return true;
}

void jm_queue_take_next(struct jm_request_queue *q, int64_t now_ns, struct jm_answer *ret)
{
	*ret = jm_load_request(q->load, atomic_fetch_add(&q->shared->next, 1), now_ns);
}

void jm_queue_answered(struct jm_request_queue *q)
{
	int n = 1 + atomic_fetch_add(&q->shared->answered, 1);

	atomic_fetch_sub(&q->shared->seat[q->rank].under_way, 1);
	if (n == q->load->most)
		jm_gang_memory_wake(&q->shared->news);
}

uint32_t jm_queue_news(const struct jm_request_queue *q)
{
	return atomic_load(&q->shared->news);
}

void jm_queue_wait(struct jm_request_queue *q, uint32_t news, int64_t ns)
{
	jm_gang_memory_wait(&q->shared->news, news, ns);
}

/* ---- trials ---------------------------------------------------------------------------------- */

void jm_queue_reset(struct jm_request_queue *q)
{
	struct jm_queue_shared *s = q->shared;

	atomic_store(&s->begin_ns, 0);
	atomic_store(&s->next, 0);
	atomic_store(&s->arrived, 0);
	atomic_store(&s->claimed, 0);
	atomic_store(&s->answered, 0);
	atomic_store(&s->lost, false);
	for (int r = 0; r < q->world; r++) {
		atomic_store(&s->seat[r].under_way, 0);
		atomic_store(&s->seat[r].full, false);
		atomic_store(&s->seat[r].tokens, 0);
		atomic_store(&s->seat[r].late_ttft, 0);
		atomic_store(&s->seat[r].late_tpot, 0);
	}
}

void jm_queue_restart(struct jm_request_queue *q)
{
	q->planned = false;
}

/* Requests that none has taken though their time to the first token is over. */
static int late_in_queue(struct jm_request_queue *q, int64_t now_ns)
{
	double ttft = q->load->answers.ttft;
	int n;

	if (isnan(ttft) || !atomic_load(&q->shared->begin_ns))
		return 0;
	plan(q);
	n = arrived_by(q, &q->late, now_ns - (int64_t)(ttft * 1e9)) - atomic_load(&q->shared->next);
	return n > 0 ? n : 0;
}

bool jm_queue_is_lost(const struct jm_request_queue *q)
{
	return atomic_load(&q->shared->lost);
}

/* Those in the queue last, so that one that is taken meanwhile is not counted twice. */
bool jm_queue_is_over(
	struct jm_request_queue *q, int64_t now_ns, struct jm_late late, double allowed)
{
	struct jm_queue_shared *s = q->shared;
	struct jm_late sum = {0};

	atomic_store(&s->seat[q->rank].late_ttft, late.ttft);
	atomic_store(&s->seat[q->rank].late_tpot, late.tpot);
	for (int r = 0; r < q->world; r++) {
		sum.ttft += atomic_load(&s->seat[r].late_ttft);
		sum.tpot += atomic_load(&s->seat[r].late_tpot);
	}
	sum.ttft += late_in_queue(q, now_ns);
	if (jm_late_most(sum) > allowed && !atomic_exchange(&s->lost, true))
		jm_gang_memory_wake(&s->news);
	return jm_queue_is_lost(q) || atomic_load(&s->answered) >= q->load->most;
}

/* ---- what all have done ---------------------------------------------------------------------- */

void jm_queue_add_tokens(struct jm_request_queue *q, int64_t tokens)
{
	atomic_fetch_add(&q->shared->seat[q->rank].tokens, tokens);
}

void jm_queue_reset_tokens(struct jm_request_queue *q)
{
	atomic_store(&q->shared->seat[q->rank].tokens, 0);
}

int64_t jm_queue_tokens(const struct jm_request_queue *q)
{
	int64_t sum = 0;

	for (int r = 0; r < q->world; r++)
		sum += atomic_load(&q->shared->seat[r].tokens);
	return sum;
}

void jm_queue_end_phase(struct jm_request_queue *q)
{
	q->ends++;
	atomic_fetch_add(&q->shared->ends, 1);
	jm_gang_memory_wake(&q->shared->news);
}

bool jm_queue_phase_ended(struct jm_request_queue *q)
{
	if (atomic_load(&q->shared->ends) == q->ends)
		return false;
	q->ends++;
	return true;
}
