/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_phase.h"

static int check_prefill(struct serve *s, struct jm_err *err)
{
	struct jm_arrivals *a = &s->load.arrivals;

	if (!jm_values_is_default(s->work->options, "output-tokens"))
		return jm_err_set(err, JM_EUSAGE,
			"With --phase prefill an answer has one token; omit --output-tokens.");
	a->output = (struct range){1, 1};
	for (int i = 0; i < a->n; i++)
		a->row[i].output = 1;
	return 0;
}

int jm_serve_phase_check(struct serve *s, struct jm_err *err)
{
	if (s->phase == JM_SERVE_PREFILL)
		return check_prefill(s, err);
	if (s->phase == JM_SERVE_DECODE && s->load.arrivals.kind != ARRIVE_CLOSED)
		return jm_err_set(err, JM_EUSAGE,
			"With --phase decode a request follows another one; give --arrival "
			"closed.");
	return 0;
}

int jm_serve_phase_fits(const struct serve *s, struct jm_err *err)
{
	int64_t needed = (int64_t)s->limits.pages_each * s->running;

	if (s->phase != JM_SERVE_DECODE || s->pages >= needed)
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"With --phase decode the cache must hold all requests that run, which need %lld "
		"pages; it has %d. Give fewer --running, shorter requests or more --cache-pages.",
		(long long)needed, s->pages);
}

bool jm_serve_phase_is_filled(const struct serve *s)
{
	int n = jm_scheduler_requests(s->scheduler);

	for (int i = 0; i < n; i++) {
		const struct jm_request *r = jm_scheduler_request(s->scheduler, i);

		if (r->state == JM_REQUEST_WAITING ||
			(r->state == JM_REQUEST_RUNNING && r->computed < r->input - 1))
			return false;
	}
	return n > 0;
}

int jm_serve_phase_follow(struct serve *s, int number, int64_t now_ns, struct jm_err *err)
{
	const struct jm_answer *before = &s->load.answers.answer[number];
	int first = before->number - before->back, input = before->input, code;
	struct jm_answer next;

	if (s->queue.shared)
		jm_queue_take_next(&s->queue, now_ns, &next);
	else
		jm_load_next(&s->load, now_ns, s->running - 1, &next);
	next.input = input;
	next.back = next.number - first;
	code = jm_scheduler_add_after(s->scheduler, number, next.output, &number, err);
	return code ? code : jm_answers_add(&s->load.answers, &next, true, err);
}
