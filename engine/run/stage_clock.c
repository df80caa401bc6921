/* SPDX-License-Identifier: Apache-2.0 */
#include "stage_clock.h"

#include <math.h>
#include <stdlib.h>

static int span_new(struct jm_stage_span *s, const struct jm_device *d, struct jm_err *err)
{
	int code = jm_event_new(d, &s->from, err);

	return code ? code : jm_event_new(d, &s->to, err);
}

int jm_stage_clock_open(
	struct jm_stage_clock *c, const struct jm_device *d, int transfers, struct jm_err *err)
{
	int code = 0;

	c->wait = calloc((size_t)(JM_CLOCK_STEPS * transfers) + 1, sizeof(*c->wait));
	if (!c->wait)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the clock of a pipeline.");
	for (int i = 0; i < JM_CLOCK_STEPS && !code; i++)
		code = span_new(&c->step[i], d, err);
	for (; c->n_waits < JM_CLOCK_STEPS * transfers && !code; c->n_waits++)
		code = span_new(&c->wait[c->n_waits], d, err);
	return code;
}

static void span_drop(struct jm_stage_span *s)
{
	jm_event_drop(&s->from);
	jm_event_drop(&s->to);
}

void jm_stage_clock_close(struct jm_stage_clock *c)
{
	for (int i = 0; i < JM_CLOCK_STEPS; i++)
		span_drop(&c->step[i]);
	for (int i = 0; c->wait && i < c->n_waits; i++)
		span_drop(&c->wait[i]);
	free(c->wait);
	*c = (struct jm_stage_clock){0};
}

/* Seconds of the span, once; 0 if it was read before. */
static double take(struct jm_stage_span *s)
{
	double seconds = 0;

	if (s->open && jm_event_seconds(&s->from, &s->to, &seconds, NULL))
		seconds = NAN;
	s->open = false;
	return seconds;
}

static void take_step(struct jm_stage_clock *c, struct jm_stage_span *s)
{
	c->steps += s->open;
	c->stepped += take(s);
}

int jm_stage_clock_step(struct jm_stage_clock *c, struct jm_err *err)
{
	struct jm_stage_span *before = &c->step[c->step_now], *now;
	int code = jm_event_record(&before->to, JM_QUEUE_COMPUTE, err);

	before->open = !code && c->begun++;
	c->step_now = (c->step_now + 1) % JM_CLOCK_STEPS;
	now = &c->step[c->step_now];
	take_step(c, now);
	return code ? code : jm_event_record(&now->from, JM_QUEUE_COMPUTE, err);
}

int jm_stage_clock_from(struct jm_stage_clock *c, struct jm_err *err)
{
	if (!c)
		return 0;
	c->waited += take(&c->wait[c->now]);
	return jm_event_record(&c->wait[c->now].from, JM_QUEUE_COMPUTE, err);
}

int jm_stage_clock_to(struct jm_stage_clock *c, struct jm_err *err)
{
	int code = c ? jm_event_record(&c->wait[c->now].to, JM_QUEUE_COMPUTE, err) : 0;

	if (!c)
		return 0;
	c->wait[c->now].open = !code;
	c->now = (c->now + 1) % c->n_waits;
	return code;
}

void jm_stage_clock_reset(struct jm_stage_clock *c)
{
	for (int i = 0; i < JM_CLOCK_STEPS; i++)
		c->step[i].open = false;
	for (int i = 0; i < c->n_waits; i++)
		c->wait[i].open = false;
	c->waited = c->stepped = 0;
	c->steps = 0;
	c->begun = 0;
}

void jm_stage_clock_read(struct jm_stage_clock *c, double *ret_step, double *ret_waited)
{
	for (int i = 0; i < JM_CLOCK_STEPS; i++)
		take_step(c, &c->step[i]);
	for (int i = 0; i < c->n_waits; i++)
		c->waited += take(&c->wait[i]);
	*ret_step = c->steps ? c->stepped / (double)c->steps : NAN;
	*ret_waited = c->begun ? c->waited / (double)c->begun : NAN;
}
