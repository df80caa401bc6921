/* SPDX-License-Identifier: Apache-2.0 */
/* The turns of all stages played together, each transfer as a meeting of two ranks: every operand
 * has come when its part runs, and is in no one's way. */
#include "engine/plan/pipe_schedule.h"
#include "kit/test.h"

#include <stdlib.h>

#define STAGES 8
#define MICRO  24

/* Of micro-steps in a chunk of a stage. */
enum state { NOTHING, HAS_INPUT, RAN, HAS_GRADIENT, DONE };

struct stage {
	struct jm_pipe_turn *turn;
	int n, at, call; /* turn that is played; 0 = its part, 1 and 2 = its transfers */
	int slots[JM_CHUNKS_MOST];
	bool sent, received; /* of the call */
	enum state state[JM_CHUNKS_MOST][MICRO];
	int holder[JM_CHUNKS_MOST][MICRO]; /* [slot]: 1 + the micro-step; 0 = none */
	/* a forward pass takes 1, gradients 2, and a transfer ends when both ranks have come */
	int time, met;
};

static struct stage stages[STAGES];

static const struct jm_pipe_move *move_of(const struct stage *s, bool send)
{
	const struct jm_pipe_turn *t = &s->turn[s->at];
	const struct jm_pipe_move *m = send ? t->send : t->receive;

	return &m[t->at_once ? m[0].stage < 0 : s->call - 1];
}

static void take_slot(struct stage *s, const struct jm_pipe_part *part)
{
	int *holder = &s->holder[part->chunk][part->micro % s->slots[part->chunk]];

	assert_int_equal(*holder, 0);
	*holder = 1 + part->micro;
}

static void run_part(struct stage *s, const struct jm_pipe *pipe, int stage)
{
	const struct jm_pipe_part *part = &s->turn[s->at].part;
	enum state *state = &s->state[part->chunk][part->micro];
	bool first = !stage && !part->chunk;
	bool last = stage == pipe->stages - 1 && part->chunk == pipe->chunks - 1;

	s->time += part->backward ? 2 : 1;
	if (!part->backward && first)
		take_slot(s, part);
	assert_int_equal(*state,
		part->backward ? (last ? RAN : HAS_GRADIENT) : (first ? NOTHING : HAS_INPUT));
	assert_int_equal(
		s->holder[part->chunk][part->micro % s->slots[part->chunk]], 1 + part->micro);
	*state = part->backward ? DONE : RAN;
	if (part->backward)
		s->holder[part->chunk][part->micro % s->slots[part->chunk]] = 0;
}

/* Both ends must mean the same data: the result of a part, and the operand of the next. */
static bool meet(int from, const struct jm_pipe *pipe)
{
	struct stage *s = &stages[from], *r;
	int now;
	const struct jm_pipe_move *send, *receive;
	enum state *state;

	if (s->at == s->n || !s->call || s->sent || move_of(s, true)->stage < 0)
		return false;
	send = move_of(s, true);
	r = &stages[send->stage];
	if (r->at == r->n || !r->call || r->received || move_of(r, false)->stage != from)
		return false;
	receive = move_of(r, false);
	assert_int_equal(send->part.chunk, receive->part.chunk);
	assert_int_equal(send->part.micro, receive->part.micro);
	assert_int_equal(send->part.backward, receive->part.backward);
	state = &r->state[receive->part.chunk][receive->part.micro];
	assert_int_equal(*state, receive->part.backward ? RAN : NOTHING);
	*state = receive->part.backward ? HAS_GRADIENT : HAS_INPUT;
	assert_int_equal((send->stage + receive->part.chunk * pipe->stages) -
				 (from + s->turn[s->at].part.chunk * pipe->stages),
		receive->part.backward ? -1 : 1);
	if (!receive->part.backward)
		take_slot(r, &receive->part);
	now = s->time > r->time ? s->time : r->time;
	s->met = s->met > now ? s->met : now;
	r->met = r->met > now ? r->met : now;
	return s->sent = r->received = true;
}

/* A rank goes on when both transfers of its call have met. */
static bool step(int stage, const struct jm_pipe *pipe)
{
	struct stage *s = &stages[stage];
	const struct jm_pipe_turn *t = &s->turn[s->at];

	if (s->at == s->n)
		return false;
	if (!s->call && t->runs)
		run_part(s, pipe, stage);
	else if (s->call && ((move_of(s, true)->stage >= 0 && !s->sent) ||
				    (move_of(s, false)->stage >= 0 && !s->received)))
		return meet(stage, pipe);
	s->sent = s->received = false;
	s->time = s->time > s->met ? s->time : s->met;
	if (++s->call > (t->at_once ? 1 : 2)) {
		s->call = 0;
		s->at++;
	}
	return true;
}

static void open_stages(const struct jm_pipe *pipe)
{
	struct jm_err err = JM_ERR_INIT;

	memset(stages, 0, sizeof(stages));
	for (int r = 0; r < pipe->stages; r++)
		assert_int_equal(jm_pipe_turns(pipe, r, &stages[r].turn, &stages[r].n,
					 stages[r].slots, &err),
			0);
}

static void play(const struct jm_pipe *pipe)
{
	bool moved = true;

	open_stages(pipe);
	while (moved) {
		moved = false;
		for (int r = 0; r < pipe->stages; r++)
			moved = step(r, pipe) || moved;
	}
	for (int r = 0; r < pipe->stages; r++) {
		assert_int_equal(stages[r].at, stages[r].n);
		for (int c = 0; c < pipe->chunks; c++)
			for (int i = 0; i < pipe->micro_steps; i++)
				assert_int_equal(stages[r].state[c][i], DONE);
		free(stages[r].turn);
	}
}

static void test_all_parts_run_and_all_transfers_meet(void **state)
{
	(void)state;
	for (int p = 2; p <= STAGES; p++)
		for (int m = 1; m <= MICRO; m++)
			play(&(struct jm_pipe){p, 1, m});
	for (int p = 2; p <= STAGES; p++)
		for (int v = 2; v <= 4; v++)
			for (int m = p; m <= MICRO; m += p)
				play(&(struct jm_pipe){p, v, m});
}

/* Narayanan et al.: stage s keeps the activations of p - s micro-steps. */
static void test_keeps_as_few_as_1f1b(void **state)
{
	(void)state;
	for (int p = 2; p <= STAGES; p++)
		for (int m = 1; m <= MICRO; m++) {
			open_stages(&(struct jm_pipe){p, 1, m});
			for (int r = 0; r < p; r++) {
				assert_int_equal(stages[r].slots[0], m < p - r ? m : p - r);
				free(stages[r].turn);
			}
		}
}

static int longest(const struct jm_pipe *pipe)
{
	int most = 0;

	play(pipe);
	for (int r = 0; r < pipe->stages; r++)
		most = stages[r].time > most ? stages[r].time : most;
	return most;
}

/* Each rank runs m v forward passes and gradients, and waits for p - 1 of both: no more, although
 * ranks wait for each other in each transfer. */
static void test_no_stage_waits_longer_than_the_bubble(void **state)
{
	(void)state;
	for (int p = 2; p <= STAGES; p++)
		for (int v = 1; v <= 4; v++)
			for (int m = p; m <= MICRO; m += p)
				assert_int_equal(
					longest(&(struct jm_pipe){p, v, m}), 3 * (m * v + p - 1));
}

static void test_bubble_is_that_of_the_paper(void **state)
{
	(void)state;
	assert_float_equal(jm_pipe_bubble(&(struct jm_pipe){4, 1, 8}), 3.0 / 11, 1e-12);
	assert_float_equal(jm_pipe_bubble(&(struct jm_pipe){4, 3, 8}), 3.0 / 27, 1e-12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_parts_run_and_all_transfers_meet),
		cmocka_unit_test(test_keeps_as_few_as_1f1b),
		cmocka_unit_test(test_no_stage_waits_longer_than_the_bubble),
		cmocka_unit_test(test_bubble_is_that_of_the_paper),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
