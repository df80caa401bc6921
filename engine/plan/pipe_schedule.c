/* SPDX-License-Identifier: Apache-2.0 */
#include "pipe_schedule.h"

#include <stdlib.h>
#include <string.h>

/* Of a stage while the step is played. */
struct player {
	int next;						/* parts done */
	int done[2][JM_CHUNKS_MOST], before[2][JM_CHUNKS_MOST]; /* micro-steps: now, and before the
								 * turn; [1]: of gradients */
	int slots[JM_CHUNKS_MOST];
	int receives; /* in the turn */
};

struct play {
	const struct jm_pipe *pipe;
	struct player *player;	  /* [stages] */
	struct jm_pipe_part *now; /* [stages]: of the turn */
	bool *runs;		  /* [stages] */
	bool backward;		  /* with several chunks: the turn before was of gradients */
	int stage;		  /* whose turns are kept */
	struct jm_pipe_turn *turn;
	int n, cap;
};

double jm_pipe_bubble(const struct jm_pipe *pipe)
{
	double fill = pipe->stages - 1;

	return fill / ((double)pipe->micro_steps * pipe->chunks + fill);
}

static int n_parts(const struct jm_pipe *pipe)
{
	return pipe->micro_steps * pipe->chunks;
}

/* Forward passes of the stage before its first gradients. */
static int warmup(const struct jm_pipe *pipe, int stage)
{
	int after = pipe->stages - 1 - stage, all = n_parts(pipe);
	int n = pipe->chunks > 1 ? 2 * after + (pipe->chunks - 1) * pipe->stages : after;

	return n < all ? n : all;
}

/* Forward pass or gradients number i of a stage: groups of as many micro-steps as there are stages
 * go through one chunk after the other. */
static struct jm_pipe_part part_number(const struct jm_pipe *pipe, int i, bool backward)
{
	int p = pipe->stages, v = pipe->chunks, in_group = i % (p * v), chunk = in_group / p;

	if (v == 1)
		return (struct jm_pipe_part){.micro = i, .backward = backward};
	return (struct jm_pipe_part){.chunk = backward ? v - 1 - chunk : chunk,
		.micro = i / (p * v) * p + in_group % p,
		.backward = backward};
}

/* Part i of a stage: forward passes, then forward and backward in turn, then gradients. */
static struct jm_pipe_part part_at(const struct jm_pipe *pipe, int stage, int i)
{
	int first = warmup(pipe, stage), pairs = n_parts(pipe) - first, at = i - first;

	if (at < 0)
		return part_number(pipe, i, false);
	if (at < 2 * pairs)
		return part_number(pipe, at / 2 + (at % 2 ? 0 : first), at % 2);
	return part_number(pipe, at - pairs, true);
}

/* Where the result of a part goes; stage -1: nowhere. part: what it is an operand of. */
static struct jm_pipe_move target(const struct jm_pipe *pipe, int stage, struct jm_pipe_part part)
{
	int last = pipe->stages - 1, step = part.backward ? -1 : 1;
	struct jm_pipe_move to = {.stage = stage + step, .part = part};

	if (to.stage < 0 || to.stage > last) {
		to.stage = to.stage < 0 ? last : 0;
		to.part.chunk += step;
	}
	if (to.part.chunk < 0 || to.part.chunk >= pipe->chunks)
		to.stage = -1;
	return to;
}

/* Where the operand of a part comes from; stage -1: from nowhere. */
static struct jm_pipe_move origin(const struct jm_pipe *pipe, int stage, struct jm_pipe_part part)
{
	struct jm_pipe_part back = part;
	struct jm_pipe_move from;

	back.backward = !part.backward;
	from = target(pipe, stage, back);
	from.part.backward = part.backward;
	return from;
}

static bool is_done(const struct play *s, const struct jm_pipe_move *m)
{
	return s->player[m->stage].before[m->part.backward][m->part.chunk] > m->part.micro;
}

/* Is the slot free after this turn? A rank's own turn is known for gradients, which come first. */
static bool has_slot(const struct play *s, int stage, const struct jm_pipe_part *part)
{
	const struct player *p = &s->player[stage];

	return part->micro - p->done[1][part->chunk] < p->slots[part->chunk];
}

static bool is_ready(const struct play *s, int stage, const struct jm_pipe_part *part)
{
	struct jm_pipe_move from = origin(s->pipe, stage, *part), to;

	if (part->backward && from.stage < 0) /* the loss */
		from = (struct jm_pipe_move){stage, {part->chunk, part->micro, false}};
	if (from.stage >= 0 && !is_done(s, &from))
		return false;
	if (part->backward)
		return true;
	to = target(s->pipe, stage, *part);
	return (from.stage >= 0 || has_slot(s, stage, part)) &&
	       (to.stage < 0 || has_slot(s, to.stage, &to.part));
}

/* The stages that run gradients, or forward passes, in this turn; returns how many. */
static int find_running(struct play *s, bool backward)
{
	int n = 0, all = 2 * n_parts(s->pipe);

	for (int r = 0; r < s->pipe->stages; r++) {
		struct player *p = &s->player[r];
		struct jm_pipe_part part;

		if (p->next == all || s->runs[r])
			continue;
		part = part_at(s->pipe, r, p->next);
		if (part.backward != backward || !is_ready(s, r, &part))
			continue;
		s->now[r] = part;
		s->runs[r] = true;
		p->done[backward][part.chunk]++;
		n++;
	}
	return n;
}

/* Does a stage receive a forward result and a gradient in this turn? */
static bool two_for_one(const struct play *s)
{
	bool found = false;

	for (int r = 0; r < s->pipe->stages; r++)
		s->player[r].receives = 0;
	for (int r = 0; r < s->pipe->stages; r++) {
		int to = s->runs[r] ? target(s->pipe, r, s->now[r]).stage : -1;

		found = found || (to >= 0 && ++s->player[to].receives > 1);
	}
	return found;
}

static struct jm_pipe_turn own_turn(const struct play *s)
{
	const struct jm_pipe_move none = {.stage = -1};
	struct jm_pipe_turn turn = {.runs = s->runs[s->stage],
		.part = s->now[s->stage],
		.send = {none, none},
		.receive = {none, none}};

	if (turn.runs)
		turn.send[turn.part.backward] = target(s->pipe, s->stage, turn.part);
	for (int r = 0; r < s->pipe->stages; r++) {
		struct jm_pipe_move to = target(s->pipe, r, s->now[r]);

		if (s->runs[r] && to.stage == s->stage)
			turn.receive[to.part.backward] = (struct jm_pipe_move){r, to.part};
	}
	turn.at_once = !two_for_one(s);
	return turn;
}

static bool is_empty(const struct jm_pipe_turn *t)
{
	return !t->runs && t->send[0].stage < 0 && t->send[1].stage < 0 &&
	       t->receive[0].stage < 0 && t->receive[1].stage < 0;
}

static int keep_turn(struct play *s, struct jm_err *err)
{
	struct jm_pipe_turn turn = own_turn(s), *more;
	int cap = s->cap ? 2 * s->cap : 64;

	if (is_empty(&turn))
		return 0;
	if (s->n == s->cap) {
		more = realloc(s->turn, (size_t)cap * sizeof(*more));
		if (!more)
			return jm_err_set(err, JM_ENOMEM, "Out of memory for a pipeline.");
		s->turn = more;
		s->cap = cap;
	}
	s->turn[s->n++] = turn;
	return 0;
}

/*
 * With several chunks each stage sends after each part, so that one with a short part would wait
 * for one with a long part: a turn is either of forward passes or of gradients, in alternation
 * where both can run. This takes no more turns.
 */
static int find_all_running(struct play *s)
{
	int n;

	if (s->pipe->chunks == 1) {
		n = find_running(s, true);
		return n + find_running(s, false);
	}
	s->backward = !s->backward;
	n = find_running(s, s->backward);
	if (n)
		return n;
	s->backward = !s->backward;
	return find_running(s, s->backward);
}

/* 1 = a turn was played, 0 = no stage can run a part. */
static int play_turn(struct play *s, struct jm_err *err)
{
	int n, code;

	memset(s->runs, 0, (size_t)s->pipe->stages * sizeof(bool));
	n = find_all_running(s);
	if (!n)
		return 0;
	code = keep_turn(s, err);
	for (int r = 0; r < s->pipe->stages; r++) {
		struct player *p = &s->player[r];

		p->next += s->runs[r];
		memcpy(p->before, p->done, sizeof(p->before));
	}
	return code ? code : 1;
}

/* The slots that the order of parts of a stage needs by itself, and `more`. */
static void find_slots(const struct jm_pipe *pipe, int stage, int more, struct player *p)
{
	int open[JM_CHUNKS_MOST] = {0}, most = pipe->micro_steps;

	*p = (struct player){0};
	for (int i = 0; i < 2 * n_parts(pipe); i++) {
		struct jm_pipe_part part = part_at(pipe, stage, i);

		open[part.chunk] += part.backward ? -1 : 1;
		if (open[part.chunk] + more > p->slots[part.chunk])
			p->slots[part.chunk] = open[part.chunk] + more;
		if (p->slots[part.chunk] > most)
			p->slots[part.chunk] = most;
	}
}

static bool all_done(const struct play *s)
{
	for (int r = 0; r < s->pipe->stages; r++)
		if (s->player[r].next < 2 * n_parts(s->pipe))
			return false;
	return true;
}

/* Without enough slots for results that come early the stages wait for each other: with several
 * chunks one more is enough, else each has one more until none waits for ever. */
static int play(struct play *s, struct jm_err *err)
{
	int code = 0;

	for (int more = s->pipe->chunks > 1; more <= s->pipe->micro_steps; more++) {
		for (int r = 0; r < s->pipe->stages; r++)
			find_slots(s->pipe, r, more, &s->player[r]);
		s->n = 0;
		s->backward = false;
		do
			code = play_turn(s, err);
		while (code > 0);
		if (code || all_done(s))
			return code;
	}
	return jm_err_set(err, JM_EBUG, "The stages of a pipeline wait for each other.");
}

int jm_pipe_turns(const struct jm_pipe *pipe, int stage, struct jm_pipe_turn **ret, int *ret_n,
	int *slots, struct jm_err *err)
{
	size_t n = (size_t)pipe->stages;
	bool uneven = pipe->chunks > 1 && pipe->micro_steps % pipe->stages;
	struct play s = {.pipe = pipe,
		.stage = stage,
		.player = calloc(n, sizeof(*s.player)),
		.now = calloc(n, sizeof(*s.now)),
		.runs = calloc(n, sizeof(*s.runs))};
	int code = 0;

	if (uneven)
		code = jm_err_set(err, JM_ERANGE,
			"--pp %d with --pp-chunks does not divide the %d micro-steps of "
			"--accumulate; give a multiple.",
			pipe->stages, pipe->micro_steps);
	else if (!s.player || !s.now || !s.runs)
		code = jm_err_set(err, JM_ENOMEM, "Out of memory for a pipeline.");
	else
		code = play(&s, err);

	if (!code)
		memcpy(slots, s.player[stage].slots, (size_t)pipe->chunks * sizeof(*slots));
	free(s.player);
	free(s.now);
	free(s.runs);
	if (code) {
		free(s.turn);
		return code;
	}
	*ret = s.turn;
	*ret_n = s.n;
	return 0;
}
