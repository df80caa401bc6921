/* SPDX-License-Identifier: Apache-2.0 */
#include "units.h"
#include "engine/plan/bucket.h"
#include "profile.h"
#include "reduce.h"

#include <stdlib.h>

/* Returns the span's first unit; ret_to: the unit after its last one. */
int jm_units_span(const struct jm_program *p, enum jm_span span, int *ret_to)
{
	const int end[] = {0, p->n_kept, p->n_once, p->n_micro, p->n_units};

	*ret_to = end[span + 1];
	return end[span];
}

static int capture(struct jm_program *p, struct jm_stretch *s, struct jm_err *err)
{
	const struct jm_device *d = p->device;
	void **exec;
	int code;

	if (!d->backend->capture || jm_reduce_is_node(p->unit[s->from]))
		return 0;
	exec = calloc((size_t)(s->to - s->from) + 1, sizeof(*exec));
	if (!exec)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a program.");
	for (int i = s->from; i < s->to; i++)
		exec[i - s->from] = p->unit[i]->exec;
	code = d->backend->capture(d->dev, exec, s->to - s->from, &s->captured, err);
	free(exec);
	return code;
}

/* A sum over ranks is a separate stretch, because the engine runs it, not the backend. */
static void find_stretches(struct jm_program *p, enum jm_span span)
{
	int to, at = jm_units_span(p, span, &to);

	while (at < to) {
		struct jm_stretch *s = &p->stretch[p->n_stretches++];

		s->from = at++;
		while (at < to && !jm_reduce_is_node(p->unit[s->from]) &&
			!jm_reduce_is_node(p->unit[at]))
			at++;
		s->to = at;
	}
}

int jm_units_stretches(struct jm_program *p, struct jm_err *err)
{
	p->stretch = calloc((size_t)p->n_units + 1, sizeof(*p->stretch));
	if (!p->stretch)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a program.");
	for (enum jm_span span = 0; span < JM_SPAN_COUNT; span++)
		find_stretches(p, span);
	return 0;
}

static int build_unit(
	struct jm_program *p, int unit, const struct jm_group *group, struct jm_err *err)
{
	struct jm_unit *u = p->unit[unit];

	if (jm_reduce_is_node(u))
		return 0;
	return p->device->backend->build(p->device->dev, group, &u->choice, &u->exec, err);
}

int jm_units_build(
	struct jm_program *p, const struct jm_group *copies, int from, int to, struct jm_err *err)
{
	int code = 0;

	for (int i = from; i < to && !code; i++)
		code = build_unit(p, i, copies ? &copies[i] : &p->unit[i]->group, err);
	for (int i = 0; i < p->n_stretches && !code; i++)
		if (p->stretch[i].from >= from && p->stretch[i].from < to)
			code = capture(p, &p->stretch[i], err);
	return code;
}

static int run_stretch(struct jm_program *p, const struct jm_stretch *s, struct jm_err *err)
{
	int code = 0;

	if (s->captured)
		return jm_device_run(p->device, s->captured, err);
	for (int i = s->from; i < s->to && !code; i++)
		code = jm_program_run_unit(p, i, err);
	return code;
}

static int run_stretches(struct jm_program *p, int from, int to, struct jm_err *err)
{
	int code = 0;

	for (int i = 0; i < p->n_stretches && !code; i++)
		if (p->stretch[i].from >= from && p->stretch[i].from < to)
			code = run_stretch(p, &p->stretch[i], err);
	return code;
}

static int run_profiled(struct jm_program *p, int from, int to, struct jm_err *err)
{
	int code;

	if (from == to || !p->profile->whole)
		return jm_profile_run(p, from, to, err);
	code = jm_profile_span_begin(p, from, err);
	if (!code)
		code = run_stretches(p, from, to, err);
	return code ? code : jm_profile_span_end(p, from, to, err);
}

int jm_units_run(struct jm_program *p, int from, int to, struct jm_err *err)
{
	return p->profile ? run_profiled(p, from, to, err) : run_stretches(p, from, to, err);
}
