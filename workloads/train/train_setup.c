/* SPDX-License-Identifier: Apache-2.0 */
/* Setup of `train`: a device, a plan that fits, what is fed, and the program. */
#include "train_setup.h"
#include "base/clock.h"
#include "base/text/json.h"
#include "engine/graph/optimizer.h"
#include "engine/graph/rng.h"
#include "engine/graph/tensor.h"
#include "engine/plan/bucket.h"
#include "engine/run/pipeline.h"
#include "engine/run/profile.h"
#include "engine/run/profile_start.h"
#include "engine/run/reduce.h"
#include "fit_batch.h"
#include "train_options.h"
#include "train_pictures.h"
#include "train_text.h"
#include "train_weights.h"
#include "workloads/parts/memory.h"
#include "workloads/parts/work_device.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define HELD_OUT 0x68656c64 /* a separate stream of random numbers */

static double seconds_since(int64_t start)
{
	return 1e-9 * (double)(jm_clock_now(jm_clock_real()) - start);
}

/* A device's context is created here; of a GPU that takes longer than all else that does not depend
 * on the model. */
static int open_device(struct train *s, struct jm_err *err)
{
	int64_t start = jm_clock_now(jm_clock_real());
	int code = jm_work_device_open(s->work, jm_train_threads(s), &s->device, err);

	s->open_s = seconds_since(start);
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
	return 0;
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* What is free is shared by the ranks of a host; all go by what rank 0 found before any of them
 * took some. */
static int find_memory(struct train *s, struct jm_err *err)
{
	double gb = s->given.memory;
	int code;

	s->memory = gb > 0 ? (size_t)(gb * 1e9) : jm_fit_memory(s->work->ctx, &s->device);
	if (s->device.props.host_memory && gb <= 0 && s->work->world > 1)
		s->memory /= (size_t)s->work->world;
	if (!(gb > 0)) /* else the limit is the user's */
		s->room = jm_device_room(&s->device);
	code = jm_comm_from_first(&s->gang.control, &s->memory, sizeof(s->memory), err);
	return code ? code : jm_comm_from_first(&s->gang.control, &s->room, sizeof(s->room), err);
}

/* The training, and the evaluation beside it. */
static int plan_program(struct train *s, struct jm_err *err)
{
	int code = jm_model_train(&s->training, &s->graph, err);

	if (!code)
		code = jm_program_plan(s->graph, &s->device, &s->program, err);
	if (!code && s->eval.every)
		code = jm_evaluation_plan(&s->eval, &s->training, s->program, err);
	return code;
}

static void drop_plan(struct train *s)
{
	jm_evaluation_drop(&s->eval);
	jm_program_free(s->program);
	jm_graph_free(s->graph);
	s->program = NULL;
	s->graph = NULL;
}

/* Shares of a step's time by the roofline that go into values made again, where the plan of the
 * usual one does not fit: twice that, up to 1 %, then a quarter more each, up to 10 %. */
#define REMADE_TWICE 2
#define REMADE_UP_TO 0.01
#define REMADE_NEXT  1.25
#define REMADE_MOST  0.1
#define REMADE_LEAST (REMADE_UP_TO / 16) /* the first share with the largest batch */

/* Sets how much is recomputed to `share`; false: the device's peaks are not known. */
static bool limit_remade(struct train *s, double share)
{
	struct jm_training *t = &s->training;

	t->keep_all = share <= 0;
	return jm_device_remake(&s->device, t->precision, t->math, share, &t->remake);
}

/* --remake needs the peaks of the device. */
static int choose_remade(struct train *s, struct jm_err *err)
{
	if (!isnan(s->remake) && !limit_remade(s, s->remake) && s->remake > 0)
		return jm_err_set(err, JM_EUSAGE,
			"The peaks of device %s are not known, so neither is what recomputing "
			"costs; omit --remake.",
			s->device.backend->name);
	return 0;
}

static size_t peak_with_inputs(const struct train *s)
{
	return jm_evaluation_peak(&s->eval, s->program, &s->feed);
}

/*
 * If a device has separate memory, no other program needs the rest of it: what fits is kept, except
 * values that cost next to nothing to compute again; with the largest batch these, too.
 */
static int plan_kept(struct train *s, struct jm_err *err)
{
	struct jm_training *t = &s->training;
	int code;

	if (!isnan(s->remake) || !s->may_keep || s->device.props.host_memory || !s->memory)
		return plan_program(s, err);
	t->keep_all = false;
	for (double share = s->largest ? REMADE_LEAST : (double)NAN;
		!(share >= REMADE_MOST) && !t->keep_all;
		share *= share < REMADE_UP_TO ? REMADE_TWICE : REMADE_NEXT) {
		t->keep_all = !limit_remade(s, share);
		code = plan_program(s, err);
		if (code || peak_with_inputs(s) <= s->memory)
			return code;
		if (isnan(share))
			share = jm_remake_usual(s->graph);
		drop_plan(s);
	}
	t->keep_all = false;
	t->remake.share = 0;
	return plan_program(s, err);
}

/* The largest batch of a GPU that others use, too, is not that of the GPU. */
static void note_held(const struct train *s)
{
	double held = jm_room_held(s->room);

	if (held > 0)
		snprintf(s->work->note, sizeof(s->work->note),
			"Another process holds memory of %s (%.1f GB at least): without it, the "
			"largest batch would be larger.",
			s->device.props.name, held / 1e9);
}

/* The largest batch that fits. */
static int choose_batch(struct train *s, struct jm_err *err)
{
	int code =
		jm_fit_batch(&s->training, &s->feed, &s->eval, &s->device, s->memory, s->room, err);

	if (!code)
		note_held(s);
	return code;
}

static void choose_types(struct train *s)
{
	struct jm_training *t = &s->training;

	t->own_memory = !s->device.props.host_memory;
	t->gradients = jm_narrow_of(s->given.gradients);
	t->residual = jm_narrow_of(s->given.residual);
}

static int check_stream(const struct train *s, struct jm_err *err)
{
	if (s->training.residual == JM_NARROW_AUTO || jm_graph_residual(s->graph))
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"Model %s is no transformer, so it has no residual stream whose type could be set; "
		"omit --residual.",
		s->training.model->name);
}

static int plan_both(void *state, struct jm_err *err)
{
	struct train *s = state;
	struct jm_training *t = &s->training;
	int code;

	choose_types(s);
	jm_device_remake(&s->device, t->precision, t->math, 0, &t->remake);
	code = choose_remade(s, err);
	s->largest = !s->training.batch;
	if (!code && s->largest)
		code = choose_batch(s, err);
	if (!code)
		code = plan_kept(s, err);
	return code ? code : check_stream(s, err);
}

/* The program on paper: nothing is allocated for it yet. */
static int plan(struct train *s, struct jm_err *err)
{
	int64_t start = jm_clock_now(jm_clock_real());
	int code = find_memory(s, err);

	if (!code)
		code = jm_gang_in_turn(&s->gang, plan_both, s, err);
	if (!code)
		code = jm_gang_same(&s->gang, jm_reduce_digest(s->program),
			"Offsets or layouts of the gradients", err);
	s->plan_s = seconds_since(start);
	return code;
}

static json_t *plan_json(const struct train *s)
{
	const struct jm_program *p = s->program;
	const struct jm_tensor *residual = jm_graph_residual(s->graph);
	json_t *plan = json_object();

	jm_json_set_int(&plan, "batch", s->training.batch);
	jm_json_set_int(&plan, "parameters", jm_graph_parameters(s->graph));
	jm_json_set_int(&plan, "peak_bytes", peak_with_inputs(s));
	jm_json_set_int(&plan, "persistent_bytes", p->persistent_bytes);
	jm_json_set_int(&plan, "memory_bytes", s->memory);
	jm_json_set_bool(&plan, "keep_all", s->training.keep_all && !s->training.recompute);
	jm_json_set_text(&plan, "gradients", jm_dtype_name(s->graph->gradient));
	if (residual)
		jm_json_set_text(&plan, "residual", jm_dtype_name(residual->type));
	jm_json_set_number(&plan, "open_s", s->open_s);
	jm_json_set_number(&plan, "plan_s", s->plan_s);
	return plan;
}

/* Reported before the first byte is allocated, and stored even when it does not fit. */
static void tell_plan(const struct train *s)
{
	const struct jm_program *p = s->program;

	jm_log(s->work->ctx, JM_INFO,
		"Batch %lld needs %.3f GB at most (%.3f GB stay, %.3f GB of activations and "
		"scratch; %s%s), planned in %.0f ms; %.3f GB may be used.",
		(long long)s->training.batch, (double)peak_with_inputs(s) / 1e9,
		(double)p->persistent_bytes / 1e9, (double)p->arena_bytes / 1e9,
		s->training.recompute		   ? "blocks are recomputed"
		: s->training.keep_all		   ? "all results are kept for gradients"
		: !(s->training.remake.share <= 0) ? "most results are kept for gradients"
						   : "norms and activations are recomputed",
		s->graph->shard ? "; each rank updates its share of the parameters" : "",
		s->plan_s * 1e3, (double)s->memory / 1e9);
	if (s->work->more)
		json_object_set_new(s->work->more, "plan", plan_json(s));
}

/* No batch is small enough: what stays in memory for each parameter says how many fit. */
static int refuse_model(const struct train *s, struct jm_err *err)
{
	double stays = (double)s->program->persistent_bytes, memory = (double)s->memory;

	return jm_room_refuse(s->room, (double)peak_with_inputs(s), err,
		"Out of memory before the first step: batch %lld needs %.2f GB, of which "
		"parameters, gradients and optimizer alone take %.2f GB, and %.2f GB may be taken. "
		"About %.2g %% of the parameters fit%s; take fewer --layers or another model.",
		(long long)s->training.batch, (double)peak_with_inputs(s) / 1e9, stays / 1e9,
		memory / 1e9, 100 * memory / stays,
		s->training.pure ? ""
				 : ", and about twice as many with --precision bf16-true, which "
				   "keeps no f32 masters");
}

static int check_memory(const struct train *s, struct jm_err *err)
{
	const struct jm_program *p = s->program;

	if (!s->memory || peak_with_inputs(s) <= s->memory)
		return 0;
	if (p->persistent_bytes > s->memory)
		return refuse_model(s, err);
	return jm_room_refuse(s->room, (double)peak_with_inputs(s), err,
		"Out of memory before the first step: batch %lld needs %.2f GB (%.2f GB stay, %.2f "
		"GB of activations and scratch), and %.2f GB may be taken; take a smaller batch "
		"(--batch max finds the largest), sequence or model, or --recompute.",
		(long long)s->training.batch, (double)peak_with_inputs(s) / 1e9,
		(double)p->persistent_bytes / 1e9, (double)p->arena_bytes / 1e9,
		(double)s->memory / 1e9);
}

static int build_program(void *state, struct jm_err *err)
{
	struct train *s = state;
	return jm_program_build(s->program, err);
}

static int build_evaluation(void *state, struct jm_err *err)
{
	struct train *s = state;
	return jm_evaluation_build(&s->eval, err);
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

/* Calls make_program and logs before and after it: the first time on a machine it takes seconds to
 * time kernels. */
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
	jm_log(s->work->ctx, JM_INFO, "Chosen and built in %.2f s.", seconds_since(start));
	if (s->work->more)
		json_object_set_new(json_object_get(s->work->more, "plan"), "build_s",
			json_real(seconds_since(start)));
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
	work->unit = s->training.model->item;
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
	choose_inputs(s);
	code = jm_train_weights_open(s, err);
	if (!code)
		code = open_device(s, err);
	if (!code)
		code = open_gang(s, err);
	if (!code)
		code = choose_rounding(s, err);
	if (!code)
		code = jm_work_device_planned(s->work, plan(s, err));
	if (!code)
		code = choose_feed(s, err);
	if (code)
		return code;
	tell_plan(s);
	code = jm_work_device_planned(s->work, check_memory(s, err));
	if (!code)
		code = jm_work_device_test(s->work, &s->device, s->graph, err);
	if (!code)
		code = jm_work_device_planned(s->work, build(s, err));
	if (!code)
		describe(s);
	return code;
}
