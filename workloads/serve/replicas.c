/* SPDX-License-Identifier: Apache-2.0 */
#include "replicas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"
#include "listen.h"
#include "serve_step.h"
#include "simulated_steps.h"
#include "workloads/parts/memory.h"

/* ---- opening --------------------------------------------------------------------------------- */

int jm_replicas_check(struct serve *s, struct jm_err *err)
{
	const struct jm_work *work = s->work;

	s->load.replicas = jm_work_world(work);
	s->all = work->world > 1 || s->listen ? &s->gathered : &s->load.answers;
	if (s->listen) {
		s->load.arrivals.kind = ARRIVE_CLIENTS;
		s->load.answers.timed = true; /* the window is that of their arrivals */
	}
	if (work->world < 2)
		return 0;
	if (work->meet)
		return jm_err_set(err, JM_ENOSUP,
			"Replicas take requests from one queue in the memory of their host, so "
			"that all must be ranks of one call on one host: use --launcher local, and "
			"on several hosts start one run on each.");
	if (!isnan(jm_values_number(work->options, "hold-power")))
		return jm_err_set(err, JM_EUSAGE,
			"--hold-power pauses between the steps of one rank; omit it or --ranks.");
	return 0;
}

int jm_replicas_open(struct serve *s, struct jm_err *err)
{
	bool several = jm_work_world(s->work) > 1;
	int64_t context = s->listen ? jm_dim(&s->dims, "context") : 0;
	int code = several ? jm_gang_open(&s->gang, s->work, &s->device, NULL, err) : 0;

	if (code || (!several && !s->listen))
		return code;
	return jm_queue_open(&s->queue, s->work, &s->load, context, err);
}

void jm_replicas_close(struct serve *s)
{
	jm_queue_close(&s->queue);
	jm_gang_close(&s->gang);
	jm_answers_close(&s->gathered);
	free(s->clients.at);
	free(s->clients.open);
	free(s->share);
}

/* Ranks whose memory is that of this one's device. */
static int sharers(const struct serve *s)
{
	const struct jm_work *work = s->work;
	int n = 0;

	for (int r = 0; work->gang && r < work->world; r++)
		n += s->device.props.host_memory || !strcmp(work->gang[r].uuid, work->own.uuid);
	return n ? n : 1;
}

int jm_replicas_meet(struct serve *s, struct jm_err *err)
{
	double nothing = 0;

	return jm_comm_sum(&s->gang.control, &nothing, 1, err);
}

int jm_replicas_memory(struct serve *s, size_t *ret, struct jm_err *err)
{
	if (s->simulated) {
		*ret = jm_simulated_memory(s);
		return 0;
	}
	*ret = jm_fit_memory(s->work->ctx, &s->device) / (size_t)sharers(s);
	return jm_replicas_meet(s, err);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int end_phase(struct serve *s, struct jm_err *err)
{
	struct jm_step step;
	int code;

	s->in_phase = false;
	s->ended_ns = jm_clock_now(s->work->sleeper->clock);
	code = jm_serve_finish(s, &step, err);
	s->awaited_more = false;
	return code ? code : jm_replicas_meet(s, err);
}

int jm_replicas_agree(struct serve *s, bool *more, struct jm_err *err)
{
	int code;

	if (!s->in_phase) {
		code = jm_comm_from_first(&s->gang.control, more, sizeof(*more), err);
		s->in_phase = *more;
		return code;
	}
	if (s->work->rank)
		*more = !jm_queue_phase_ended(&s->queue);
	else if (!*more)
		jm_queue_end_phase(&s->queue);
	return *more ? 0 : end_phase(s, err);
}

int jm_replicas_restart(struct serve *s, struct jm_err *err)
{
	int code = s->queue.shared ? jm_replicas_meet(s, err) : 0;

	if (code || !s->queue.shared)
		return code;
	if (!s->work->rank)
		jm_queue_reset(&s->queue);
	jm_queue_restart(&s->queue);
	return jm_replicas_meet(s, err);
}

static bool is_over(void *state, double allowed)
{
	struct serve *s = state;
	int64_t now = jm_clock_now(s->work->sleeper->clock);

	return jm_queue_is_over(&s->queue, now, jm_answers_late(&s->load.answers, now), allowed);
}

static bool is_lost(void *state)
{
	const struct serve *s = state;

	return jm_queue_is_lost(&s->queue);
}

double jm_replicas_uncredited(struct serve *s)
{
	int64_t all = jm_queue_tokens(&s->queue), before = s->credited;

	s->credited = all;
	return (double)(all - before);
}

/* ---- requests of all ------------------------------------------------------------------------- */

/* What one rank sends of its requests: these arrays, one after the other. */
struct parcel {
	int64_t n, n_when, n_token; /* n_token: 0, unless tokens are asked for */
	struct jm_answer *answer;   /* [n]; their pointers say whether there is something */
	int64_t *when;		    /* [n_when], of all its requests */
	int32_t *token;		    /* [n_token]: of prompts of clients, and of answers */
};

/* Tokens of a request in a parcel. */
static int64_t sent_tokens(const struct serve *s, const struct jm_answer *one)
{
	if (!s->answers_file || one->state != JM_ANSWER_DONE)
		return 0;
	return one->output + (int64_t)(one->prompt ? one->input : 0);
}

/* Copies them; returns where the next request's are. */
static const int32_t *copy_tokens(int32_t **to, const int32_t *from, int n)
{
	*to = calloc((size_t)n, sizeof(**to));
	if (*to)
		memcpy(*to, from, (size_t)n * sizeof(**to));
	return from + n;
}

static int allocate(struct parcel *p, struct jm_err *err)
{
	p->answer = calloc((size_t)p->n + 1, sizeof(*p->answer));
	p->when = calloc((size_t)p->n_when + 1, sizeof(*p->when));
	p->token = calloc((size_t)p->n_token + 1, sizeof(*p->token));
	return p->answer && p->when && p->token
		       ? 0
		       : jm_err_set(err, JM_ENOMEM, "Out of memory for the requests of all ranks.");
}

static void discard(struct parcel *p)
{
	free(p->answer);
	free(p->when);
	free(p->token);
}

static int pack(const struct serve *s, struct parcel *p, struct jm_err *err)
{
	const struct jm_answers *a = &s->load.answers;
	int64_t when = 0, token = 0;
	int code;

	*p = (struct parcel){.n = a->n};
	for (int i = 0; i < a->n; i++) {
		p->n_when += a->answer[i].n_when;
		p->n_token += sent_tokens(s, &a->answer[i]);
	}
	code = allocate(p, err);
	for (int i = 0; i < a->n && !code; i++) {
		const struct jm_answer *one = &a->answer[i];

		p->answer[i] = *one;
		memcpy(p->when + when, one->when, (size_t)one->n_when * sizeof(*p->when));
		when += one->n_when;
		if (!sent_tokens(s, one))
			continue;
		if (one->prompt)
			memcpy(p->token + token, one->prompt,
				(size_t)one->input * sizeof(*p->token));
		token += one->prompt ? one->input : 0;
		memcpy(p->token + token, one->token, (size_t)one->output * sizeof(*p->token));
		token += one->output;
	}
	return code;
}

/* Between rank 0 and another: either sends or receives. */
static int transfer(const struct serve *s, int other, void *data, size_t bytes, struct jm_err *err)
{
	bool sends = s->work->rank != 0;
	const struct jm_transfer t = {.kind = JM_SEND_RECEIVE,
		.type = JM_COMM_BYTE,
		.from = data,
		.to = data,
		.count = bytes,
		.to_rank = sends ? other : -1,
		.from_rank = sends ? -1 : other};

	return bytes ? jm_comm_run(&s->gang.control, &t, err) : 0;
}

static int move(const struct serve *s, int other, struct parcel *p, struct jm_err *err)
{
	int64_t size[] = {p->n, p->n_when, p->n_token};
	int code = transfer(s, other, size, sizeof(size), err);

	if (!code && !s->work->rank) {
		*p = (struct parcel){.n = size[0], .n_when = size[1], .n_token = size[2]};
		code = allocate(p, err);
	}
	if (!code)
		code = transfer(s, other, p->answer, (size_t)p->n * sizeof(*p->answer), err);
	if (!code)
		code = transfer(s, other, p->when, (size_t)p->n_when * sizeof(*p->when), err);
	return code ? code
		    : transfer(s, other, p->token, (size_t)p->n_token * sizeof(*p->token), err);
}

/* The requests of a parcel join those of all, at the index of their number. */
static int unpack_one(struct serve *s, const struct jm_answer *one, const int64_t *when,
	const int32_t **token, struct jm_err *err)
{
	bool has_tokens = sent_tokens(s, one) > 0, has_prompt = has_tokens && one->prompt;
	struct jm_answer *to;

	if (one->number < 0 || one->number >= s->gathered.n)
		return jm_err_set(err, JM_EFORMAT,
			"Request %d is none of the %d of all ranks, which is an error of this "
			"program.",
			one->number, s->gathered.n);
	to = &s->gathered.answer[one->number];
	if (to->when)
		return jm_err_set(err, JM_EFORMAT,
			"Request %d was taken by two ranks, which is an error of this program.",
			one->number);
	*to = *one;
	to->room = one->n_when;
	to->token = to->prompt = NULL;
	to->when = calloc((size_t)one->n_when + 1, sizeof(*when));
	if (has_prompt)
		*token = copy_tokens(&to->prompt, *token, one->input);
	if (has_tokens)
		*token = copy_tokens(&to->token, *token, one->output);
	if (!to->when || (has_tokens && !to->token) || (has_prompt && !to->prompt))
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the requests.");
	memcpy(to->when, when, (size_t)one->n_when * sizeof(*when));
	return 0;
}

static int unpack(struct serve *s, const struct parcel *p, struct jm_err *err)
{
	const int64_t *when = p->when;
	const int32_t *token = p->token;
	int code = 0;

	for (int64_t i = 0; i < p->n && !code; i++) {
		code = unpack_one(s, &p->answer[i], when, &token, err);
		when += p->answer[i].n_when;
	}
	return code;
}

/* A request that no replica has taken. */
static struct jm_answer waiting(struct serve *s, int number)
{
	struct jm_answer a = jm_queue_request(&s->queue, number);

	if (s->listen && atomic_load(&s->queue.desk.place[s->queue.place].is_cancelled)) {
		a.state = JM_ANSWER_FAILED;
		a.end = jm_clock_now(s->work->sleeper->clock);
	}
	return a;
}

/* Room for all requests; those that still wait in the queue are no rank's. */
static int make_room(struct serve *s, struct jm_err *err)
{
	int taken = jm_queue_taken(&s->queue), n = jm_queue_arrived(&s->queue, s->ended_ns);
	struct jm_answers *a = &s->gathered;

	n = n > taken ? n : taken;
	*a = s->load.answers;
	a->running *= jm_work_world(s->work);
	a->n = a->cap = n;
	a->answer = calloc((size_t)n + 1, sizeof(*a->answer));
	if (!a->answer) {
		a->n = 0;
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the requests of all ranks.");
	}
	for (int i = taken; i < n; i++)
		a->answer[i] = waiting(s, i);
	return 0;
}

/* Each request that was taken is some rank's. */
static int check_complete(const struct serve *s, struct jm_err *err)
{
	for (int i = 0; i < jm_queue_taken(&s->queue); i++)
		if (!s->gathered.answer[i].when)
			return jm_err_set(err, JM_EFORMAT,
				"Request %d was taken, but no rank has it, which is an error of "
				"this program.",
				i);
	return 0;
}

static int gather_answers(struct serve *s, struct jm_err *err)
{
	struct parcel own, other = {0};
	int code = pack(s, &own, err);

	jm_answers_close(&s->gathered);
	s->gathered = (struct jm_answers){0};
	if (s->work->rank) {
		code = code ? code : move(s, 0, &own, err);
		discard(&own);
		return code;
	}
	if (!code)
		code = make_room(s, err);
	if (!code)
		code = unpack(s, &own, err);
	for (int r = 1; r < jm_work_world(s->work) && !code; r++) {
		code = move(s, r, &other, err);
		if (!code)
			code = unpack(s, &other, err);
		discard(&other);
		other = (struct parcel){0};
	}
	discard(&own);
	return code ? code : check_complete(s, err);
}

/* A trial that is lost ends for each rank at a time of its own; until then it takes requests. */
static int gather_trial(void *state, struct jm_err *err)
{
	struct serve *s = state;
	int code = jm_replicas_meet(s, err);

	s->ended_ns = jm_clock_now(s->work->sleeper->clock);
	return code ? code : gather_answers(s, err);
}

static int share(void *state, void *value, size_t bytes, struct jm_err *err)
{
	const struct serve *s = state;

	return jm_comm_from_first(&s->gang.control, value, bytes, err);
}

struct jm_rate_gang jm_replicas_of_search(const struct serve *s)
{
	return (struct jm_rate_gang){.rank = s->work->rank,
		.answers = &s->gathered,
		.is_over = is_over,
		.is_lost = is_lost,
		.gather = gather_trial,
		.share = share};
}

static int gather_shares(struct serve *s, struct jm_err *err)
{
	struct jm_serve_share own = {.running = s->usage.running / s->usage.seconds};
	struct jm_transfer t = {
		.kind = JM_ALL_GATHER, .type = JM_COMM_BYTE, .from = &own, .count = sizeof(own)};

	t.to = s->share = calloc((size_t)s->work->world, sizeof(own));
	for (int i = 0; i < s->load.answers.n; i++) {
		const struct jm_answer *a = &s->load.answers.answer[i];
		bool done = a->state == JM_ANSWER_DONE;

		own.requests += done;
		own.tokens += done ? a->output : 0;
	}
	return s->share ? jm_comm_run(&s->gang.control, &t, err)
			: jm_err_set(err, JM_ENOMEM, "Out of memory for the ranks.");
}

json_t *jm_replicas_json(const struct serve *s)
{
	json_t *all = s->share ? json_array() : json_null();

	for (int r = 0; s->share && r < s->work->world; r++) {
		const struct jm_serve_share *one = &s->share[r];
		json_t *json = json_object();

		jm_json_set_int(&json, "rank", r);
		jm_json_set_int(&json, "requests_done", (json_int_t)one->requests);
		jm_json_set_number(&json, "tokens_out", one->tokens);
		jm_json_set_number(&json, "mean_running", one->running);
		json_array_append_new(all, json);
	}
	return all;
}

static int sum_usage(struct serve *s, struct jm_err *err)
{
	struct jm_serve_usage *u = &s->usage;
	double all[] = {u->seconds, u->running, u->pages, u->idle, u->rows, u->computed};
	int code = jm_comm_sum(&s->gang.control, all, 6, err);

	if (!code)
		*u = (struct jm_serve_usage){all[0], all[1], all[2], all[3], all[4], all[5]};
	return code;
}

int jm_replicas_gather(struct serve *s, struct jm_err *err)
{
	int code;

	if (!s->queue.shared)
		return 0;
	code = jm_work_world(s->work) > 1 ? gather_shares(s, err) : 0;
	if (!code)
		code = sum_usage(s, err);
	if (!code)
		code = gather_answers(s, err);
	return code ? code : jm_listen_gather(s, err);
}
