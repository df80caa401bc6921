/* SPDX-License-Identifier: Apache-2.0 */
#include "train_ranks.h"
#include "base/text/json.h"
#include "engine/run/pipeline.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static double known(double seconds)
{
	return isnan(seconds) ? 0 : seconds;
}

static double waits_of(const struct jm_rank_time *t)
{
	return known(t->exposed) + known(t->exposed_tp);
}

/* NAN = unknown. The mean wait includes the last step's; the mean step does not include the last
 * step, because its time is known only when another one follows. Where a rank waits long in the
 * last step, the difference would be negative. */
static double computed(const struct jm_rank_time *t)
{
	double rest = t->step - waits_of(t) - known(t->stage);

	return rest >= 0 ? rest : NAN;
}

/* The shortest waits of `n` ranks from `first` on. */
static double least_of(const struct jm_rank_time *time, int first, int n)
{
	double least = INFINITY;

	for (int r = first; r < first + n; r++)
		least = fmin(least, waits_of(&time[r]));
	return least;
}

/* Transfers went on while the rank computed. */
static double overlapped(const struct jm_account_time *t)
{
	return fmax(0, t->busy - t->exposed);
}

static double overlapped_sum(const struct jm_rank_time *t)
{
	double sum = 0;

	for (int k = 0; k < JM_ACCOUNT_KINDS_N; k++)
		sum += known(overlapped(&t->kind[k]));
	return sum;
}

static void add_kind(json_t *list, const char *name, const struct jm_account_time *t)
{
	json_t *one = json_object();

	jm_json_set_text(&one, "kind", name);
	jm_json_set_number(&one, "busy_s", t->busy);
	jm_json_set_number(&one, "exposed_s", t->exposed);
	jm_json_set_number(&one, "overlapped_s", overlapped(t));
	json_array_append_new(list, one);
}

/* Of what the rank exchanges; with other stages nothing is computed beside it. */
static json_t *kinds_json(const struct jm_rank_time *t)
{
	json_t *list = json_array();

	for (int k = 0; k < JM_ACCOUNT_KINDS_N; k++)
		if (!isnan(t->kind[k].busy))
			add_kind(list, jm_account_name((enum jm_account_kind)k), &t->kind[k]);
	if (!isnan(t->stage))
		add_kind(list, "stage", &(struct jm_account_time){t->stage, t->stage});
	return list;
}

json_t *jm_rank_times_json(const struct jm_rank_time *time, int world, int each)
{
	json_t *list = json_array();

	for (int r = 0; r < world; r++) {
		const struct jm_rank_time *t = &time[r];
		json_t *one = json_object();

		jm_json_set_number(&one, "step_s", t->step);
		jm_json_set_number(&one, "compute_s", computed(t));
		jm_json_set_number(&one, "exposed_s", t->exposed);
		jm_json_set_number(&one, "tp_exposed_s", t->exposed_tp);
		if (!isnan(t->stage))
			jm_json_set_number(&one, "stage_s", t->stage);
		jm_json_set_number(&one, "late_ranks_s",
			isnan(t->step) ? NAN : waits_of(t) - least_of(time, r - r % each, each));
		jm_json_set_number(&one, "overlapped_s", isnan(t->step) ? NAN : overlapped_sum(t));
		jm_json_set(&one, "kinds", kinds_json(t));
		json_array_append_new(list, one);
	}
	return list;
}

/* The share of a step in which ranks wait for other stages; their mean. */
static double bubble(const struct jm_rank_time *time, int world)
{
	double sum = 0;

	for (int r = 0; r < world; r++)
		sum += time[r].stage / time[r].step;
	return sum / world;
}

/* The share of a step in which ranks compute and transfer at once; their mean. */
static double concurrent_share(const struct jm_rank_time *time, int world)
{
	double sum = 0;

	for (int r = 0; r < world; r++)
		sum += overlapped_sum(&time[r]) / time[r].step;
	return sum / world;
}

/* sent: bytes that all ranks send to other stages */
static json_t *communication_json(const struct train *s, const struct jm_reduce_cost *cost,
	double sent, const struct jm_rank_time *times)
{
	const struct jm_pipe *pipe = &s->program->stage.pipe;
	json_t *json = json_object();

	jm_json_set_text(&json, "transport", jm_gang_comm(&s->gang)->transport->name);
	jm_json_set_bool(&json, "rounded", s->graph->rounds_sums);
	jm_json_set_bool(&json, "shard_update", s->graph->shard);
	jm_json_set_int(&json, "buckets", cost->buckets);
	jm_json_set_number(&json, "bytes_per_step", cost->bytes);
	jm_json_set_number(&json, "gathered_bytes_per_step", cost->gathered);
	jm_json_set_int(&json, "tp", jm_graph_tp(s->graph));
	jm_json_set_number(&json, "tp_bytes_per_step", cost->shared);
	if (pipe->stages) {
		jm_json_set_int(&json, "pp", pipe->stages);
		jm_json_set_int(&json, "pp_chunks", pipe->chunks);
		jm_json_set_int(&json, "micro_steps", pipe->micro_steps);
		jm_json_set_number(&json, "pp_bytes_per_step", sent);
		jm_json_set_number(&json, "bubble", jm_pipe_bubble(pipe));
		jm_json_set_number(&json, "bubble_measured", bubble(times, s->work->world));
	}
	jm_json_set_number(&json, "exposed_s_per_step", cost->exposed);
	jm_json_set_number(&json, "tp_exposed_s_per_step", cost->exposed_tp);
	jm_json_set_number(&json, "concurrent_share", concurrent_share(times, s->work->world));
	jm_json_set(&json, "ranks",
		jm_rank_times_json(times, s->work->world, s->work->world / jm_graph_pp(s->graph)));
	return json;
}

int jm_train_keep_ranks(struct train *s, struct jm_err *err)
{
	struct jm_rank_time times[JM_RANKS_MOST], own;
	const struct jm_transfer t = {.kind = JM_ALL_GATHER,
		.type = JM_COMM_BYTE,
		.from = &own,
		.to = times,
		.count = sizeof(own)};
	double sent = jm_pipeline_sent(s->program), step, stage;
	struct jm_reduce_cost cost;
	int code;

	if (s->work->world < 2)
		return 0;
	cost = jm_reduce_cost(s->program);
	code = jm_comm_sum(&s->gang.control, &sent, 1, err);
	if (code)
		return code;
	jm_pipeline_times(s->program, &step, &stage);
	own = (struct jm_rank_time){.step = isnan(stage) ? cost.step : step,
		.exposed = cost.exposed,
		.exposed_tp = cost.exposed_tp,
		.stage = stage};
	memcpy(own.kind, cost.kind, sizeof(own.kind));
	code = jm_comm_run(&s->gang.control, &t, err);
	if (code || !s->work->more)
		return code;
	json_object_set_new(
		s->work->more, "communication", communication_json(s, &cost, sent, times));
	return 0;
}
