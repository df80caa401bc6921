/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_split.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "engine/graph/graph.h"
#include "engine/graph/rng.h"
#include "engine/graph/tensor.h"

#define LEAST 8 /* steps of answers alone, of which their time is taken */

int jm_serve_split_open(struct serve *s, struct jm_err *err)
{
	if (s->phase != JM_SERVE_BOTH || s->work->world > 1)
		return 0;
	s->timed = calloc(JM_SERVE_TIMED_MOST, sizeof(*s->timed));
	return s->timed ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for the times of steps.");
}

void jm_serve_split_close(struct serve *s)
{
	free(s->timed);
}

struct jm_serve_row_flops jm_serve_row_flops(const struct jm_graph *graph)
{
	struct jm_serve_row_flops ret = {0};
	bool last = false; /* behind op rows, which takes those that make a token */

	for (int i = 0; i < graph->n_nodes; i++) {
		const struct jm_node *n = graph->node[i];
		double flops = n->flops_executed / (double)jm_tensor_rows(n->out[0]);

		last = last || n->op == JM_OP_ROWS;
		*(last ? &ret.made : &ret.row) += flops;
		if (n->op == JM_OP_ATTENTION_PAGES) /* two products of a query's width */
			*(last ? &ret.made_key : &ret.key) +=
				4 * (double)jm_tensor_width(n->out[0]);
	}
	return ret;
}

void jm_serve_split_piece(
	const struct serve *s, const struct jm_piece *piece, struct jm_serve_flight *f)
{
	const struct jm_request *r = jm_scheduler_request(s->scheduler, piece->request);
	const struct jm_serve_row_flops *of = &s->row_flops[f->size];
	double n = piece->n, keys = n * piece->from + n * (n + 1) / 2; /* a row sees itself, too */
	double made = of->made + (piece->from + n) * of->made_key;
	double flops = n * of->row + keys * of->key + (piece->makes ? made : 0);

	*(piece->from < r->input ? &f->flops_prompts : &f->flops_answers) += flops;
	f->answers += piece->from < r->input ? 0 : piece->n;
}

/* Random, as kinds of steps may alternate. */
static bool is_kept(const struct serve *s, int64_t end_ns)
{
	return !(jm_rng(s->work->seed, (uint64_t)end_ns) & s->timed_mask);
}

static void drop_half(struct serve *s)
{
	int n = 0;

	s->timed_mask = 2 * s->timed_mask + 1;
	for (int i = 0; i < s->n_timed; i++)
		if (is_kept(s, s->timed[i].end_ns))
			s->timed[n++] = s->timed[i];
	s->n_timed = n;
}

void jm_serve_split_step(
	struct serve *s, const struct jm_serve_flight *f, int64_t end_ns, double seconds)
{
	if (!s->timed || !is_kept(s, end_ns))
		return;
	while (s->n_timed == JM_SERVE_TIMED_MOST)
		drop_half(s);
	s->timed[s->n_timed++] = (struct jm_serve_timed){.end_ns = end_ns,
		.seconds = seconds,
		.prompts = f->flops_prompts / (f->flops_prompts + f->flops_answers),
		.answers = f->answers};
}

/* Seconds of the step within the window. */
static double within(const struct jm_serve_timed *t, const struct jm_work_window *w)
{
	double end = (double)(t->end_ns - w->t0_ns) / 1e9, begin = end - t->seconds;
	double length = (double)(w->t1_ns - w->t0_ns) / 1e9;

	begin = begin > 0 ? begin : 0;
	end = end < length ? end : length;
	return end > begin ? end - begin : 0;
}

/* Seconds of steps of answers alone, as a line over their rows. */
struct line {
	double n, slope, x, y; /* steps; y at x, the means */
};

static struct line answers_alone(const struct serve *s)
{
	struct line l = {0};
	double xx = 0, xy = 0;

	for (int i = 0; i < s->n_timed; i++)
		if (s->timed[i].prompts <= 0) {
			l.n++;
			l.x += s->timed[i].answers;
			l.y += s->timed[i].seconds;
		}
	l.x /= l.n;
	l.y /= l.n;
	for (int i = 0; i < s->n_timed; i++)
		if (s->timed[i].prompts <= 0) {
			double dx = s->timed[i].answers - l.x;

			xx += dx * dx;
			xy += dx * (s->timed[i].seconds - l.y);
		}
	l.slope = xx > 0 && xy > 0 ? xy / xx : 0;
	return l;
}

/* The share of prompts in the time of a step if answers take what they take alone. */
static double beyond_answers(const struct jm_serve_timed *t, const struct line *alone)
{
	double answers = alone->y + alone->slope * (t->answers - alone->x);

	return t->seconds > answers && t->seconds > 0 ? 1 - answers / t->seconds : 0;
}

json_t *jm_serve_split_json(const struct serve *s)
{
	struct line alone = answers_alone(s);
	double all = 0, mixed = 0, low = 0, high = 0;

	for (int i = 0; i < s->n_timed; i++) {
		const struct jm_serve_timed *t = &s->timed[i];
		double seconds = within(t, &s->all->window), least = t->prompts;

		if (t->prompts > 0 && t->prompts < 1) {
			mixed += seconds;
			least = beyond_answers(t, &alone);
		}
		all += seconds;
		low += seconds * fmin(least, t->prompts);
		high += seconds * fmax(least, t->prompts);
	}
	if (alone.n < LEAST || !(high > 0 && high < all))
		return json_null();
	return json_pack("{s:s, s:f, s:f, s:f, s:f}", "origin", "estimated", "prefill",
		(low + high) / 2 / all, "prefill_low", low / all, "prefill_high", high / all,
		"mixed", mixed / all);
}
