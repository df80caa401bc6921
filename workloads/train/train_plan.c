/* SPDX-License-Identifier: Apache-2.0 */
#include "train_plan.h"
#include "base/text/json.h"
#include "base/text/number.h"
#include "engine/graph/freeze.h"
#include "engine/graph/tensor.h"
#include "engine/plan/bucket.h"
#include "fit_batch.h"
#include "workloads/parts/memory.h"

#include <math.h>
#include <stdio.h>

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
		jm_work_note(s->work,
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

int jm_train_plan(struct train *s, struct jm_err *err)
{
	int64_t start = jm_clock_now(jm_clock_real());
	int code = find_memory(s, err);

	if (!code)
		code = jm_gang_in_turn(&s->gang, plan_both, s, err);
	if (!code)
		code = jm_gang_same(&s->gang, jm_reduce_digest(s->program),
			"Offsets or layouts of the gradients", err);
	s->plan_s = jm_train_seconds_since(start);
	return code;
}

static json_t *plan_json(const struct train *s)
{
	const struct jm_program *p = s->program;
	const struct jm_tensor *residual = jm_graph_residual(s->graph);
	json_t *plan = json_object();
	size_t frozen_bytes;
	int64_t frozen = jm_freeze_parameters(s->graph, &frozen_bytes);

	jm_json_set_int(&plan, "batch", s->training.batch);
	jm_json_set_int(&plan, "parameters", jm_graph_parameters(s->graph));
	jm_json_set_int(&plan, "parameters_frozen", frozen);
	jm_json_set_int(&plan, "frozen_bytes", (int64_t)frozen_bytes);
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

/* Who updates, if there are several ranks. */
static void tell_update(const struct train *s, char *ret, size_t size)
{
	if (s->graph->shard)
		snprintf(ret, size, "; each rank updates its share of the parameters");
	if (s->graph->whole_update)
		snprintf(ret, size, "; each rank updates all parameters, because %s",
			s->graph->whole_update);
}

void jm_train_plan_tell(const struct train *s)
{
	const struct jm_program *p = s->program;
	char last[64] = "", update[192] = "";

	if (jm_graph_pp(s->graph) > 1)
		snprintf(last, sizeof(last), "; the last part has %d of %d blocks",
			s->graph->last_blocks, s->graph->n_blocks);
	tell_update(s, update, sizeof(update));
	jm_log(s->work->ctx, JM_INFO,
		"Batch %lld needs %.*f GB at most (%.*f GB stay, %.*f GB of activations and "
		"scratch; %s%s%s), planned in %.0f ms; %.*f GB may be used.",
		(long long)s->training.batch, JM_GB(peak_with_inputs(s)),
		JM_GB(p->persistent_bytes), JM_GB(p->arena_bytes),
		s->training.recompute		   ? "blocks are recomputed"
		: s->training.keep_all		   ? "all results are kept for gradients"
		: !(s->training.remake.share <= 0) ? "most results are kept for gradients"
						   : "norms and activations are recomputed",
		update, last, s->plan_s * 1e3, JM_GB(s->memory));
	if (s->work->more)
		json_object_set_new(s->work->more, "plan", plan_json(s));
}

/* What stays in memory for the parameters, whatever the batch. */
static size_t bytes_of_parameters(const struct train *s)
{
	return s->program->persistent_bytes - s->program->class_bytes[JM_CLASS_INPUT];
}

/* No batch is small enough: what stays in memory for each parameter says how many fit. */
static int refuse_model(const struct train *s, struct jm_err *err)
{
	double stays = (double)bytes_of_parameters(s), memory = (double)s->memory;

	return jm_room_refuse(s->room, (double)peak_with_inputs(s), err,
		"Out of memory before the first step: batch %lld needs %.*f GB, of which "
		"parameters, gradients and optimizer alone take %.*f GB, and %.*f GB may be taken. "
		"About %.2g %% of the parameters fit%s; take fewer --layers or another model.",
		(long long)s->training.batch, JM_GB(peak_with_inputs(s)), JM_GB(stays),
		JM_GB(memory), 100 * memory / stays,
		s->training.pure ? ""
				 : ", and about twice as many with --precision bf16-true, which "
				   "keeps no f32 masters");
}

int jm_train_plan_fits(const struct train *s, struct jm_err *err)
{
	const struct jm_program *p = s->program;

	if (!s->memory || peak_with_inputs(s) <= s->memory)
		return 0;
	if (bytes_of_parameters(s) > s->memory)
		return refuse_model(s, err);
	return jm_room_refuse(s->room, (double)peak_with_inputs(s), err,
		"Out of memory before the first step: batch %lld needs %.*f GB (%.*f GB stay, %.*f "
		"GB of activations and scratch), and %.*f GB may be taken; take a smaller batch "
		"(--batch max finds the largest), sequence or model, or --recompute.",
		(long long)s->training.batch, JM_GB(peak_with_inputs(s)),
		JM_GB(p->persistent_bytes), JM_GB(p->arena_bytes), JM_GB(s->memory));
}
