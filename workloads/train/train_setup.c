/* SPDX-License-Identifier: Apache-2.0 */
/* Setup of `train`: device, gang, what is fed, and the program, which train_plan.c plans. */
#include "train_setup.h"
#include "base/clock.h"
#include "engine/graph/optimizer.h"
#include "engine/graph/rng.h"
#include "engine/graph/tensor.h"
#include "engine/plan/bucket.h"
#include "engine/run/pipeline.h"
#include "engine/run/profile_start.h"
#include "engine/run/reduce.h"
#include "train_options.h"
#include "train_parts.h"
#include "train_pictures.h"
#include "train_plan.h"
#include "train_text.h"
#include "train_weights.h"
#include "workloads/parts/work_device.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define HELD_OUT 0x68656c64 /* a separate stream of random numbers */

/* A device's context is created here; of a GPU that takes longer than all else that does not depend
 * on the model. */
static int open_device(struct train *s, struct jm_err *err)
{
	int64_t start = jm_clock_now(jm_clock_real());
	int code = jm_work_device_open(s->work, jm_train_threads(s), &s->device, err);

	s->open_s = jm_train_seconds_since(start);
	return code;
}

/* True if parameters are in f32, and products in bf16 or fp8. */
static bool is_narrow(const struct jm_training *t)
{
	return t->precision == JM_BF16 && !t->pure;
}

/* On the way through the memory of the host gradients are rounded, unless --gradients f32 forbids
 * it. */
static bool rounds_by_host(const struct train *s)
{
	return is_narrow(&s->training) && strcmp(s->given.gradients, "f32") != 0;
}

/* True for two ranks with tokens in bf16 or fp8 whose exchanges through the memory of the host hide
 * behind products: links between GPUs then sleep. */
static bool prefers_host(const struct train *s)
{
	struct jm_training t = s->training;
	struct jm_err ignored = JM_ERR_INIT; /* the plan has it, too */
	struct jm_graph *graph;
	bool fits;

	if (t.ranks != 2 || t.tp * t.pp > 1 || !is_narrow(&t) || !t.shards_update || !t.batch ||
		!jm_model_has_text(t.model))
		return false;
	t.by_host = t.keep_all = true;
	t.rounds_sums = rounds_by_host(s);
	if (jm_model_train(&t, &graph, &ignored))
		return false;
	fits = jm_reduce_fits_host(graph, &s->device);
	jm_graph_free(graph);
	return fits;
}

/* Through the memory of the host if --transport says so or, where it is auto, all ranks prefer
 * it. */
static int open_gang(struct train *s, struct jm_err *err)
{
	struct jm_gang_way way = {.transport = s->given.transport};
	int code;

	way.prefers_host = !strcmp(way.transport, "auto") && prefers_host(s);
	code = jm_gang_open(&s->gang, s->work, &s->device, &way, err);
	return code || s->work->world < 2
		       ? code
		       : jm_gang_share(&s->gang, s->training.tp, s->training.pp, err);
}

static int choose_rounding(struct train *s, struct jm_err *err)
{
	struct jm_training *t = &s->training;
	const char *gradients = s->given.gradients;

	t->by_host = jm_gang_by_host(&s->gang);
	t->rounds_sums = t->by_host && rounds_by_host(s);
	if (t->ranks > 1 && !t->by_host && !strcmp(gradients, "bf16"))
		return jm_err_set(err, JM_EUSAGE,
			"--gradients bf16 with --ranks needs %s, because other transports sum in "
			"f32; omit it.",
			s->device.backend->stream ? "--transport host"
						  : "GPUs and --transport host");
	if (t->tp > 1 && t->by_host && t->precision == JM_F16)
		return jm_err_set(err, JM_ENOSUP,
			"With --tp ranks sum in the precision of products, and transport host "
			"cannot sum fp16; give --transport nccl or --precision bf16.");
	return 0;
}

/* Planning has to know which inputs are sent more than once. */
static void choose_inputs(struct train *s)
{
	const struct jm_model *model = s->training.model;

	s->feed.fresh = s->given.images[0] == 'f' || s->pictures.data;
	jm_batch_feed_choose(&s->feed, model, &s->dims);
	s->eval.feed.fresh = true;
	jm_batch_feed_choose(&s->eval.feed, model, &s->dims);
}

static int choose_feed(struct train *s, struct jm_err *err)
{
	const struct jm_model *model = s->training.model;

	s->feed.seed = s->work->seed;
	s->feed.rank = s->training.rank;
	s->feed.world = s->training.ranks;
	s->eval.feed.seed = jm_rng(s->work->seed, HELD_OUT);
	if (s->pictures.data)
		return jm_train_pictures_start(s, err);
	if (!jm_model_has_text(model)) {
		snprintf(s->work->detail, sizeof(s->work->detail), "random normal %ss, %s",
			model->item, s->feed.fresh ? "fresh in each step" : "made once");
		return 0;
	}
	return jm_train_text_open(s, err);
}

/* ---- the program ----------------------------------------------------------------------------- */

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
	code = jm_gang_same_data(&s->gang, s->data_digest, err);
	if (code)
		return code;
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

	/* for other ranks and for checkpoints: it looks at many files */
	if (!code && s->pictures.set.n && (s->work->world > 1 || jm_train_has_checkpoint(s)))
		s->data_digest ^= jm_data_set_digest(&s->pictures.set);
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

/* Builds what was planned, and logs before and after it: the first time on a machine it takes
 * seconds to time kernels. */
static int build(struct train *s, struct jm_err *err)
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

static void describe(const struct train *s)
{
	enum jm_dtype type = s->training.fp8 ? JM_F8E4M3 : s->training.precision;
	struct jm_work *work = s->work;
	size_t n = strlen(work->detail);
	char ranks[48] = "";

	if (s->training.tp * s->training.pp > 1)
		snprintf(ranks, sizeof(ranks), " on each %d of %d ranks",
			s->training.tp * s->training.pp, work->world);
	else if (work->world > 1)
		snprintf(ranks, sizeof(ranks), " on each of %d ranks", work->world);
	work->n_devices = jm_gang_devices(work);
	snprintf(work->detail + n, sizeof(work->detail) - n,
		"; %.2f M parameters, batch %lld%s, peak %.3g GB, on %.70s",
		(double)jm_graph_parameters(s->graph) / 1e6, (long long)s->training.batch, ranks,
		(double)s->program->peak_bytes / 1e9, s->device.props.name);
	jm_work_device_note(work, &s->device, type);
}

int jm_train_prepare(struct train *s, struct jm_err *err)
{
	int code = jm_train_choose(s, err);

	if (code)
		return code;
	s->work->unit = s->training.model->item; /* also of a run that fails from here on */
	choose_inputs(s);
	code = jm_train_weights_open(s, err);
	if (!code)
		code = open_device(s, err);
	if (!code)
		code = open_gang(s, err);
	if (!code)
		code = choose_rounding(s, err);
	if (!code)
		code = jm_work_device_planned(s->work, jm_train_plan(s, err));
	if (!code)
		code = choose_feed(s, err);
	if (code)
		return code;
	jm_train_plan_tell(s);
	code = jm_work_device_planned(s->work, jm_train_plan_fits(s, err));
	if (!code)
		code = jm_work_device_test(s->work, &s->device, s->graph, err);
	if (!code)
		code = jm_work_device_planned(s->work, build(s, err));
	if (!code)
		describe(s);
	return code;
}
