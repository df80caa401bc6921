/* SPDX-License-Identifier: Apache-2.0 */
#include "train_ranks.h"
#include "base/text/json.h"
#include "engine/run/pipeline.h"
#include "workloads/parts/rank_times.h"

#include <jansson.h>
#include <string.h>

/* The share of a step in which ranks wait for other stages; their mean. */
static double bubble(const struct jm_rank_time *time, int world)
{
	double sum = 0;

	for (int r = 0; r < world; r++)
		sum += time[r].stage / time[r].step;
	return sum / world;
}

static const char *why_whole(const struct jm_graph *g)
{
	return g->whole_update ? g->whole_update : "all ranks share one model";
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
	if (!s->graph->shard)
		jm_json_set_text(&json, "whole_update_reason", why_whole(s->graph));
	jm_json_set_int(&json, "buckets", cost->sent.buckets);
	jm_json_set_number(&json, "bytes_per_step", cost->sent.summed);
	jm_json_set_number(&json, "gathered_bytes_per_step", cost->sent.gathered);
	jm_json_set_int(&json, "tp", jm_graph_tp(s->graph));
	jm_json_set_number(&json, "tp_bytes_per_step", cost->sent.shared);
	if (pipe->stages) {
		jm_json_set_int(&json, "pp", pipe->stages);
		jm_json_set_int(&json, "pp_chunks", pipe->chunks);
		jm_json_set_int(&json, "pp_last", s->graph->last_blocks);
		jm_json_set_int(&json, "micro_steps", pipe->micro_steps);
		jm_json_set_number(&json, "pp_bytes_per_step", sent);
		jm_json_set_number(&json, "bubble", jm_pipe_bubble(pipe));
		jm_json_set_number(&json, "bubble_measured", bubble(times, s->work->world));
	}
	jm_json_set_number(&json, "exposed_s_per_step", cost->exposed);
	jm_json_set_number(&json, "tp_exposed_s_per_step", cost->exposed_tp);
	jm_json_set_number(
		&json, "concurrent_share", jm_rank_times_concurrent(times, s->work->world));
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
	double sent = jm_pipeline_sent(s->program);
	struct jm_reduce_cost cost;
	int code;

	if (s->work->world < 2)
		return 0;
	cost = jm_reduce_cost(s->program);
	code = jm_comm_sum(&s->gang.control, &sent, 1, err);
	if (code)
		return code;
	own = (struct jm_rank_time){.step = cost.step,
		.exposed = cost.exposed,
		.exposed_tp = cost.exposed_tp,
		.stage = jm_pipeline_waited(s->program)};
	memcpy(own.kind, cost.kind, sizeof(own.kind));
	code = jm_comm_run(&s->gang.control, &t, err);
	if (code || !s->work->more)
		return code;
	json_object_set_new(
		s->work->more, "communication", communication_json(s, &cost, sent, times));
	return 0;
}
