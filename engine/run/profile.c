/* SPDX-License-Identifier: Apache-2.0 */
/* The time of each unit of a program. */
#include "profile.h"
#include "base/stat/stat.h"
#include "engine/graph/tensor.h"
#include "engine/plan/bucket.h"
#include "reduce.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void jm_profile_reset(struct jm_program *p)
{
	if (!p->profile)
		return;
	for (int i = 0; i < p->n_units; i++) {
		p->profile->seconds[i] = 0;
		p->profile->runs[i] = 0;
	}
	p->profile->whole = true; /* the next step is timed by units */
	p->profile->whole_seconds = 0;
	p->profile->whole_steps = 0;
}

void jm_profile_begin(struct jm_program *p)
{
	if (!p->profile)
		return;
	p->profile->whole = !p->profile->whole;
	p->profile->whole_steps += p->profile->whole;
}

void jm_profile_free(struct jm_profile *profile)
{
	if (!profile)
		return;
	for (int i = 0; profile->event && i < profile->n_events; i++)
		jm_event_drop(&profile->event[i]);
	free(profile->event);
	free(profile->seconds);
	free(profile->runs);
	free(profile);
}

/* Each unit is between two events; event[from] is before the first. */
static int run_units(struct jm_program *p, int from, int to, struct jm_err *err)
{
	struct jm_event *event = p->profile->event;
	int code = jm_event_record(&event[from], JM_QUEUE_COMPUTE, err);

	for (int i = from; i < to && !code; i++) {
		code = jm_program_run_unit(p, i, err);
		if (!code)
			code = jm_event_record(&event[i + 1], JM_QUEUE_COMPUTE, err);
	}
	return code ? code : jm_device_sync(p->device, err);
}

int jm_profile_span_begin(struct jm_program *p, int from, struct jm_err *err)
{
	return jm_event_record(&p->profile->event[from], JM_QUEUE_COMPUTE, err);
}

/* Copies that are made only after parameters were written are no part of a step. */
int jm_profile_span_end(struct jm_program *p, int from, int to, struct jm_err *err)
{
	struct jm_profile *profile = p->profile;
	struct jm_event *event = profile->event;
	double seconds = 0;
	int code = jm_event_record(&event[to], JM_QUEUE_COMPUTE, err);

	if (!code)
		code = jm_device_sync(p->device, err);
	if (!code)
		code = jm_event_seconds(&event[from], &event[to], &seconds, err);
	if (from >= p->n_kept)
		profile->whole_seconds += seconds;
	return code;
}

int jm_profile_run(struct jm_program *p, int from, int to, struct jm_err *err)
{
	struct jm_profile *profile = p->profile;
	int code = run_units(p, from, to, err);

	for (int i = from; i < to && !code; i++) {
		double seconds = 0;

		code = jm_event_seconds(&profile->event[i], &profile->event[i + 1], &seconds, err);
		profile->seconds[i] += seconds;
		profile->runs[i]++;
	}
	return code;
}

double jm_profile_whole(const struct jm_program *p)
{
	const struct jm_profile *profile = p->profile;

	return profile && profile->whole_steps
		       ? profile->whole_seconds / (double)profile->whole_steps
		       : NAN;
}

/* The type of the node's factors if they have 8 bits, else that of all the graph's products. */
static enum jm_dtype type_of(const struct jm_program *p, const struct jm_node *n)
{
	enum jm_dtype first = n->in[0] ? n->in[0]->type : p->graph->compute;

	return first == JM_F8E4M3 || first == JM_F8E5M2 ? first : p->graph->compute;
}

static double roofline(
	const struct jm_program *p, const struct jm_node *product, double flops, double bytes)
{
	double by_flops = flops / jm_device_peak(p->device, type_of(p, product), p->graph->math);
	double by_bytes =
		bytes / (p->profile ? p->profile->peak_bytes : p->device->props.peak_bytes);

	if (isnan(by_bytes) || (flops > 0 && isnan(by_flops)))
		return NAN;
	return flops > 0 && by_flops > by_bytes ? by_flops : by_bytes;
}

static const char *name_of(const struct jm_node *n)
{
	return (n->out[0] ? n->out[0] : n->in[0])->name;
}

#define NAMED 4 /* nodes of a group; of more, the first two are named */

static void name_group(const struct jm_group *group, char *ret, size_t size)
{
	int named = group->n_nodes > NAMED ? 2 : group->n_nodes;
	size_t used = 0;

	for (int k = 0; k < named && used < size; k++)
		used += (size_t)snprintf(ret + used, size - used, "%s%s%s", k ? " + " : "",
			jm_op_name(group->node[k]->op), group->node[k]->again ? " (again)" : "");
	if (named < group->n_nodes && used < size)
		snprintf(ret + used, size - used, " + %d more", group->n_nodes - named);
}

void jm_profile_unit(const struct jm_program *p, int unit, struct jm_profile_line *ret)
{
	const struct jm_group *group = &p->unit[unit]->group;
	double chosen = p->unit[unit]->choice.flops_executed, n = jm_program_times(p, unit);
	struct jm_profile_line line = {.calls = n, .seconds = NAN};

	for (int k = 0; k < group->n_nodes; k++)
		line.flops += n * group->node[k]->flops_executed;
	name_group(group, line.name, sizeof(line.name));
	snprintf(line.what, sizeof(line.what), "%s", name_of(group->node[group->n_nodes - 1]));
	line.bytes = n * jm_group_bytes(group);
	if (chosen > 0)
		line.flops = n * chosen;
	if (p->profile && p->profile->runs[unit])
		line.seconds = n * p->profile->seconds[unit] / (double)p->profile->runs[unit];
	line.roofline_s = roofline(p, group->node[0], line.flops, line.bytes);
	/* an exchange goes on while other nodes run; what is read of a cache depends on the
	 * requests */
	if (jm_reduce_is_node(p->unit[unit]) || group->node[0]->op == JM_OP_ATTENTION_PAGES)
		line.bytes = line.roofline_s = NAN;
	*ret = line;
}

static void join(struct jm_profile_line *to, const struct jm_profile_line *one)
{
	to->calls += one->calls;
	to->seconds += one->seconds;
	to->flops += one->flops;
	to->bytes += one->bytes;
	to->roofline_s += one->roofline_s;
}

static int slowest_first(const void *a, const void *b)
{
	const struct jm_profile_line *x = a, *y = b;
	int order = jm_stat_by_value(&(double){-x->seconds}, &(double){-y->seconds});

	return order ? order : strcmp(x->name, y->name);
}

int jm_profile_kinds(const struct jm_program *p, struct jm_profile_line *ret, int most)
{
	int n = 0;

	for (int i = p->n_kept; i < p->n_units; i++) { /* kept copies are no part of a step */
		struct jm_profile_line one;
		int k = 0;

		jm_profile_unit(p, i, &one);
		while (k < n && strcmp(ret[k].name, one.name) != 0)
			k++;
		if (k < n) {
			join(&ret[k], &one);
		} else if (n < most) {
			*one.what = 0;
			ret[n++] = one;
		}
	}
	qsort(ret, (size_t)n, sizeof(*ret), slowest_first);
	return n;
}
