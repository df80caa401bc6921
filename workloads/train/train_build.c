/* SPDX-License-Identifier: Apache-2.0 */
#include "train_build.h"
#include "engine/graph/optimizer.h"
#include "engine/run/pipeline.h"
#include "engine/run/profile_start.h"
#include "engine/run/reduce.h"
#include "train_weights.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static int build_program(void *state, struct jm_err *err)
{
	struct train *s = state;
	return jm_program_build(s->program, err);
}

static int build_evaluation(void *state, struct jm_err *err)
{
	struct train *s = state;
	struct jm_ranks ranks;
	int code = jm_evaluation_build(&s->eval, err);

	if (code || s->training.tp * s->training.pp < 2)
		return code;
	ranks = jm_gang_ranks(&s->gang);
	return jm_reduce_open(s->eval.program, &ranks, err);
}

/* Gives the program its communicators. */
static int connect(struct train *s, struct jm_err *err)
{
	struct jm_ranks ranks;
	int code;

	if (s->work->world < 2)
		return 0;
	ranks = jm_gang_ranks(&s->gang);
	ranks.account = !strcmp(s->given.account, "on");
	code = jm_reduce_open(s->program, &ranks, err);
	if (code || s->training.pp < 2)
		return code;
	return jm_pipeline_open(s->program, ranks.all, ranks.apart, err);
}

/* What all ranks do in a step: stages of a model are not alike. */
static int add_costs(struct train *s, struct jm_err *err)
{
	double sum[] = {s->program->flops_model, s->program->flops_executed, s->program->bytes};
	int code = jm_comm_sum(&s->gang.control, sum, 3, err);

	s->flops_model = sum[0];
	s->flops_executed = sum[1];
	s->bytes = sum[2];
	return code;
}

static int make_program(struct train *s, struct jm_err *err)
{
	const char *update = jm_update_names[s->training.adamw.kind];
	char now[32];
	int code = jm_gang_in_turn(&s->gang, build_program, s, err);

	if (!code)
		code = connect(s, err);
	if (!code)
		code = add_costs(s, err);
	if (!code)
		code = jm_train_weights_start(s, err);
	if (!code && s->given.profile)
		code = jm_profile_start(s->program, err);
	snprintf(now, sizeof(now), "%s.now", update);
	s->now = jm_graph_find(s->graph, now);
	s->scale = jm_graph_find(s->graph, "loss.scale");
	if (!code)
		code = jm_staging_open(&s->settings, s->program,
			(struct jm_tensor *const[]){s->now, s->scale}, 2, err);
	if (!code)
		code = jm_results_open(&s->results, s->program, err);
	if (!code)
		code = jm_batch_feed_open(&s->feed, s->program, err);
	return code || !s->eval.every ? code : jm_gang_in_turn(&s->gang, build_evaluation, s, err);
}

int jm_train_build(struct train *s, struct jm_err *err)
{
	int64_t start = jm_clock_now(jm_clock_real());
	int code;

	jm_log(s->work->ctx, JM_INFO,
		"The device was opened in %.2f s; now its kernels are chosen and built.",
		s->open_s);
	code = make_program(s, err);
	if (code)
		return code;
	jm_log(s->work->ctx, JM_INFO, "Chosen and built in %.2f s.", jm_train_seconds_since(start));
	if (s->work->more)
		json_object_set_new(json_object_get(s->work->more, "plan"), "build_s",
			json_real(jm_train_seconds_since(start)));
	return 0;
}
