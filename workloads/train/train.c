/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a model: a language model on a text, other models on random values. */
#include "train_state.h"
#include "base/text/json.h"
#include "engine/graph/tensor.h"
#include "engine/run/find_nonfinite.h"
#include "engine/run/pipeline.h"
#include "engine/run/profile.h"
#include "engine/run/reduce.h"
#include "first_loss.h"
#include "shared_values.h"
#include "train_options.h"
#include "train_pictures.h"
#include "train_ranks.h"
#include "workloads/parts/profile_json.h"
#include "workloads/parts/work_device.h"
#include "train_setup.h"
#include "train_weights.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void train_teardown(void *state)
{
	struct train *s = state;

	if (!s)
		return;
	if (!jm_gang_leave(&s->gang))
		return;
	if (s->program)
		jm_device_sync(&s->device, NULL); /* steps may be under way */
	jm_evaluation_close(&s->eval);
	jm_train_weights_close(&s->weights);
	jm_batch_feed_close(&s->feed);
	jm_train_pictures_close(&s->pictures);
	jm_staging_close(&s->settings);
	jm_results_close(&s->results);
	jm_program_free(s->program);
	jm_graph_free(s->graph);
	jm_gang_close(&s->gang);
	jm_device_close(&s->device);
	jm_values_done(&s->dims);
	free(s);
}

static int train_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	struct train *s = calloc(1, sizeof(*s));

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the train workload.");
	s->work = work;
	s->loss_first = s->eval_best = NAN;
	*ret_state = s;
	return jm_train_prepare(s, err);
}

/* ---- steps ----------------------------------------------------------------------------------- */

#define FEW 5 /* numbers, at most, in an input that the host writes in each step */

/* Writes numbers to a small input, in its type; t NULL: there is no such input. */
static void set_few(struct train *s, const struct jm_tensor *t, const double *value)
{
	for (int i = 0; t && i < FEW && i < jm_tensor_count(t); i++)
		jm_element_set(t->type, jm_staging_room(&s->settings, t), i, value[i]);
}

/* Of the parameters in their mean, at update t: few updates are forgotten sooner than many.
 * Until an update is known not to have been skipped, the mean begins anew. */
static double weight_in_mean(const struct train *s, long t)
{
	return t == 1 || (s->scaler.dynamic && !s->scaler.updates)
		       ? 1
		       : fmax(1 - s->training.adamw.average, 9.0 / (9.0 + (double)t));
}

/* Is a step begun before the outcome of the one before it is known? */
static bool is_late(const struct train *s)
{
	return jm_work_world(s->work) > 1 || jm_device_is_async(&s->device);
}

/* The update t = 1, 2... of the step that begins. A step counts as one until the scale heeds its
 * outcome: whether it was skipped may be known one step later only. */
static long next_update(struct train *s)
{
	jm_scaler_heed(&s->scaler, s->begun - is_late(s));
	return s->scaler.updates + s->scaler.n_late + s->begun - s->steps + 1;
}

/* The learning rate and the bias corrections of Adam, and the loss scale. */
static int feed_settings(struct train *s, struct jm_err *err)
{
	bool sgd = s->training.adamw.kind == JM_UPDATE_SGD;
	long t = next_update(s);
	double lr = jm_lr_at(&s->schedule, t - 1);
	double now[FEW] = {lr};
	double scale[FEW] = {s->scaler.scale, 1 / s->scaler.scale};
	int n = 1, code = jm_staging_begin(&s->settings, err);

	if (code)
		return code;
	if (!sgd) {
		now[n++] = 1 - pow(s->training.adamw.beta1, (double)t);
		now[n++] = 1 - pow(s->training.adamw.beta2, (double)t);
	}
	if (s->training.adamw.average > 0)
		now[n++] = weight_in_mean(s, t);
	now[n] = (double)t;
	set_few(s, s->now, now);
	set_few(s, s->scale, scale);
	return jm_staging_end(&s->settings, err);
}

/* Runs the step again, with a look at every value. */
static int find_nonfinite(struct train *s, long step, char *ret, size_t size, struct jm_err *err)
{
	int n = jm_program_micro_steps(s->program), found;

	if (s->training.pp > 1) {
		snprintf(ret, size, "where it occurred is not known with --pp");
		return 0;
	}
	found = jm_program_begin(s->program, err);
	for (int i = 0; i < n && !found; i++) {
		found = jm_batch_feed_write(&s->feed, (int64_t)step * n + i, err);
		if (!found)
			found = jm_program_find_nonfinite(s->program, ret, size, err);
	}
	if (!found)
		snprintf(ret, size, "it did not occur again when the step was repeated");
	return found < 0 ? found : 0;
}

/* What may help where a value first became non-finite. */
static const char *remedy(const char *where)
{
	if (!strncmp(where, "input", 5))
		return "correct the data, whose values that are not finite 'joulemark data' counts";
	if (strstr(where, jm_op_name(JM_OP_RELATIVE_L2)))
		return "remove samples of which a field of 'outputs' is 0 everywhere, whose error "
		       "relative to it is infinite, or give a smaller --lr";
	return "give a smaller --lr or a --clip";
}

static int not_finite(struct train *s, const char *what, long step, struct jm_err *err)
{
	const struct jm_scaler known = jm_scaler_known(s->scaler);
	char where[192], scaled[96] = "";
	int code = find_nonfinite(s, step, where, sizeof(where), err);

	if (code)
		return code;
	if (known.in_a_row)
		snprintf(scaled, sizeof(scaled),
			", and so were those of the %ld steps before it, down to a loss scale of "
			"%g",
			known.in_a_row, known.scale);
	return jm_err_set(err, JM_ERANGE,
		"The %s of step %ld%s is not a number or infinite%s: %s; %s.", what, step + 1,
		step < s->steps ? ", run again to verify," : "", scaled, where, remedy(where));
}

static int feed_part(void *arg, int micro, struct jm_err *err)
{
	struct train *s = arg;
	int n = jm_program_micro_steps(s->program);

	return jm_batch_feed_write(&s->feed, (int64_t)s->now_step * n + micro, err);
}

static int take_loss(void *arg, int micro, struct jm_err *err)
{
	struct train *s = arg;

	return jm_results_loss(&s->results, micro, err);
}

/* A stage is fed before its gradients, too, because micro-steps come in between. */
static int run_stage(struct train *s, long step, struct jm_err *err)
{
	s->now_step = step;
	return jm_pipeline_run(s->program,
		&(struct jm_pipeline_hooks){.before = feed_part, .loss = take_loss, .arg = s}, err);
}

/* Queues the first `micro` micro-steps of a step; with stages, all. */
static int run(struct train *s, long step, int micro, struct jm_err *err)
{
	int n = jm_program_micro_steps(s->program), code = feed_settings(s, err);

	if (!code)
		code = jm_program_begin(s->program, err);
	if (s->training.pp > 1)
		return code ? code : run_stage(s, step, err);
	for (int i = 0; i < micro && !code; i++) {
		code = jm_batch_feed_write(&s->feed, (int64_t)step * n + i, err);
		if (!code)
			code = jm_program_micro(s->program, err);
		if (!code)
			code = jm_results_loss(&s->results, i, err);
	}
	return code;
}

/* A step whose outcome has come: its loss and gradient must be finite, or the scale's fault. */
static int judge(struct train *s, const struct jm_result *r, struct jm_err *err)
{
	if (!isfinite(r->loss))
		return not_finite(s, "loss", r->step, err);
	if (!isfinite(r->norm) && !jm_scaler_forgives(&s->scaler))
		return not_finite(s, "gradient", r->step, err);
	jm_scaler_add(&s->scaler, (struct jm_outcome){r->step, r->scale, isfinite(r->norm)});
	return 0;
}

/* The loss of a step is the mean over the ranks. They have to ask for it at the same places, so
 * none looks whether its own device is done already. */
static int take_result(struct train *s, bool wait, struct jm_result *ret, struct jm_err *err)
{
	int world = jm_work_world(s->work), code;
	double loss[2];

	if (world > 1 && !wait)
		return 0;
	code = jm_results_take(&s->results, wait, ret, err);
	if (code <= 0 || world < 2)
		return code;
	loss[0] = ret->loss;
	loss[1] = ret->loss_begin;
	code = jm_comm_sum(&s->gang.control, loss, 2, err);
	ret->loss = loss[0] * s->training.pp / world; /* only last stages have one */
	ret->loss_begin = loss[1] * s->training.pp / world;
	return code ? code : 1;
}

/* 0 = a step is done, 1 = none is. */
static int take(struct train *s, bool wait, struct jm_step *ret, struct jm_err *err)
{
	double items = s->training.ranks * (double)(s->training.batch * s->training.seq);
	struct jm_result r;
	int code = take_result(s, wait, &r, err);

	if (code <= 0)
		return code ? code : 1;
	code = judge(s, &r, err);
	if (code)
		return code;
	if (s->steps++ == s->first) {
		s->loss_first = r.loss;
		s->loss_begin = r.loss_begin;
	}
	*ret = (struct jm_step){.items = items * jm_program_micro_steps(s->program),
		.flops_model = s->flops_model,
		.flops_executed = s->flops_executed,
		.bytes = s->bytes,
		.loss = r.loss,
		.device_ns = r.device_ns,
		.host_ns = r.host_ns};
	return 0;
}

/* Writes an evaluation to the record, the log and the live line. */
static void tell_evaluation(struct train *s, const struct jm_evaluated *e)
{
	double samples =
		e->total ? (double)e->total : (double)s->eval.batches * (double)s->training.batch;
	json_t *all = json_object_get(s->work->more, "evaluations"), *one;
	char top1[80] = "";

	if (!isnan(e->top1))
		snprintf(top1, sizeof(top1), ", %.2f %% right", 100 * e->top1);
	if (e->total)
		snprintf(top1, sizeof(top1), ", %lld of %lld right (%.2f %%)", (long long)e->right,
			(long long)e->total, 100 * e->top1);
	snprintf(s->work->live, sizeof(s->work->live), "held-out loss %.4g", e->loss);
	jm_log(s->work->ctx, JM_INFO,
		"After step %ld: held-out loss %.6g%s (%.0f samples, %.3g s).", s->begun, e->loss,
		top1, samples, e->seconds);
	if (!s->work->more)
		return;
	if (!all)
		json_object_set_new(s->work->more, "evaluations", all = json_array());
	one = json_pack("{s:I, s:f, s:o, s:f}", "step", (json_int_t)s->begun, "samples", samples,
		"loss", jm_json_number(e->loss), "seconds", e->seconds);
	if (!isnan(e->top1))
		json_object_set_new(one, "accuracy", json_real(e->top1));
	if (e->total)
		json_object_set_new(one, "right", json_integer(e->right));
	json_array_append_new(all, one);
}

/* The aim of --until: the first evaluation that finds it ends the run. Each rank has to know when,
 * for its meters. */
static void judge_until(struct train *s, const struct jm_evaluated *e)
{
	struct jm_work *work = s->work;
	char what[48];

	if (!s->until.figure || work->ended)
		return;
	work->ended = jm_until_judge(&s->until, e, s->begun - s->first);
	if (work->ended) {
		work->window[0] = (struct jm_work_window){.name = "until",
			.t0_ns = s->until.begun_ns,
			.t1_ns = jm_ctx_now(work->ctx),
			.items = (double)(s->begun - s->first) * s->training.ranks *
				 (double)(s->training.batch * s->training.seq) *
				 jm_program_micro_steps(s->program)};
		jm_log(work->ctx, JM_INFO, "A %s was reached after step %ld.",
			jm_until_text(&s->until, what, sizeof(what)), s->begun);
	}
}

/* Of a model that ranks share: the last stage alone has the loss, and is the last to end. */
static int share_loss(struct train *s, struct jm_evaluated *e, struct jm_err *err)
{
	bool has = s->eval.loss && s->eval.loss->data;
	double sum[3] = {has ? e->loss : 0, has ? e->seconds : 0, has};
	int code = jm_comm_sum(&s->gang.control, sum, 3, err);

	e->loss = sum[0] / sum[2];
	e->seconds = sum[1] / sum[2];
	return code;
}

static int check_held_out(const struct train *s, const struct jm_evaluated *e, struct jm_err *err)
{
	return isfinite(e->loss)
		       ? 0
		       : jm_err_set(err, JM_ERANGE,
				 "The held-out loss after step %ld is not a number or infinite; "
				 "give a smaller --lr or a --clip, or correct the held-out data.",
				 s->begun);
}

/* One rank for all, because their parameters are the same; or all, if each has a part of them. */
static int run_evaluation(struct train *s, struct jm_evaluated *e, struct jm_err *err)
{
	bool shared = s->training.tp * s->training.pp > 1, has = shared || !s->work->rank;
	int code = has ? jm_evaluation_run(&s->eval, e, err) : 0;

	if (!code && shared)
		code = share_loss(s, e, err);
	if (!code && !s->work->rank)
		tell_evaluation(s, e);
	return code || !has ? code : check_held_out(s, e, err);
}

static int evaluate(struct train *s, struct jm_err *err)
{
	struct jm_evaluated e = {.loss = NAN, .top1 = NAN};
	int code;

	if (!s->eval.every || s->begun % s->eval.every)
		return 0;
	code = s->graph->shard ? jm_reduce_gather(s->program, err) : 0;
	if (!code)
		code = run_evaluation(s, &e, err);
	if (!code && s->until.figure && s->work->world > 1)
		code = jm_comm_from_first(&s->gang.control, &e, sizeof(e), err);
	s->eval_best = fmin(s->eval_best, e.loss);
	if (!code)
		judge_until(s, &e);
	return code;
}

/* Steps that were begun and are not returned yet. */
static int under_way(const struct train *s)
{
	return s->results.n + s->n_taken;
}

/* As take, but first those that a checkpoint has waited for. */
static int give(struct train *s, bool wait, struct jm_step *ret, struct jm_err *err)
{
	if (!s->n_taken)
		return take(s, wait, ret, err);
	*ret = s->taken[0];
	s->n_taken--;
	memmove(s->taken, s->taken + 1, sizeof(s->taken) - sizeof(s->taken[0]));
	return 0;
}

/* The loss scale and the number of updates follow from the results of all steps. */
static int write_checkpoint(struct train *s, struct jm_err *err)
{
	int code = 0;

	while (s->results.n && !code) {
		code = take(s, true, &s->taken[s->n_taken], err);
		s->n_taken += !code;
	}
	return code ? code : jm_train_weights_checkpoint(s, err);
}

static int train_step(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct train *s = state;
	int code;

	if (!s->until.begun_ns)
		s->until.begun_ns = jm_ctx_now(s->work->ctx);
	code = run(s, s->begun, jm_program_micro_steps(s->program), err);
	if (!code)
		code = jm_program_update(s->program, err);
	if (!code)
		code = jm_results_end(&s->results, s->begun, s->scaler.scale, err);
	if (code)
		return code;
	if (s->begun++ == s->first) { /* the first step warms caches */
		jm_profile_reset(s->program);
		jm_reduce_reset(s->program);
		jm_pipeline_reset(s->program);
	}
	code = evaluate(s, err);
	if (!code && jm_train_weights_due(s))
		code = write_checkpoint(s, err);
	return code ? code : give(s, under_way(s) == JM_STEPS_UNDER_WAY, ret, err);
}

static int train_finish(void *state, struct jm_step *ret, struct jm_err *err)
{
	return give(state, true, ret, err);
}

static void keep_profile(struct train *s)
{
	if (s->program->profile && s->work->more && s->steps > s->first + 1)
		json_object_set_new(s->work->more, "profile", jm_profile_json(s->program));
}

static void keep_scale(struct train *s)
{
	const struct jm_scaler c = jm_scaler_known(s->scaler);
	size_t n = strlen(s->work->detail);

	if (!s->scale)
		return;
	if (c.dynamic)
		snprintf(s->work->detail + n, sizeof(s->work->detail) - n,
			"; %ld steps skipped, loss scale %g", c.skipped, c.scale);
	if (s->work->more)
		json_object_set_new(s->work->more, "loss_scale",
			json_pack("{s:b, s:f, s:f, s:I}", "dynamic", c.dynamic, "first", c.start,
				"last", c.scale, "steps_skipped", (json_int_t)c.skipped));
}

/* Evaluations that were asked for and did not come are said. */
static void note_evaluations(const struct train *s)
{
	long every = s->eval.every;

	if (every && s->steps / every == s->first / every)
		jm_work_note(s->work,
			"Nothing was evaluated: evaluations come after every %ld steps, and the "
			"run had %ld; give a smaller --eval-every, or more steps.",
			every, s->steps - s->first);
}

#define CANNOT_TELL 1
#define FEW_STEPS   20 /* steps: deep networks may rise before they fall */

/* The first micro-steps again, without an update. */
static int run_again(struct train *s, double *ret_loss, struct jm_err *err)
{
	struct jm_result r = {.loss_begin = NAN};
	int code = run(s, s->first, jm_results_again(&s->results), err);

	if (!code)
		code = jm_results_end(&s->results, s->first, s->scaler.scale, err);
	if (!code)
		code = take_result(s, true, &r, err);
	if (code < 0)
		return code;
	*ret_loss = r.loss_begin;
	code = jm_gang_meet(&s->gang, &s->device, err);
	if (code)
		return code;
	return isfinite(r.loss_begin) ? 0 : not_finite(s, "loss", s->first, err);
}

/* The first loss was that of a network which knows nothing. */
static int check_first(const struct train *s, struct jm_err *err)
{
	int64_t targets = jm_model_has_text(s->training.model) ? 1 : s->training.batch;
	struct jm_first_loss first;

	if (!jm_first_loss(s->graph, targets, &first) ||
		(s->loss_first >= first.least && s->loss_first <= first.most))
		return 0;
	return jm_err_set(err, JM_ERANGE,
		"The loss of the first step was %.6g: with the start values it has to be near that "
		"of guessing one of %lld classes, %.4g, between %.4g and %.4g; run 'joulemark "
		"selftest --device ...' to find the operation that is wrong.",
		s->loss_first, (long long)first.classes, first.guess, first.least, first.most);
}

/* The loss of the first batch, run again, is not lower than it was: an error, or nothing is
 * known. */
static int not_fallen(const struct train *s, double again, struct jm_err *err)
{
	long steps = s->steps - s->first;

	if (s->weights.go_on) {
		jm_err_set(err, JM_ERANGE,
			"The loss of the first batch was %g and is %g; a training that is "
			"continued "
			"may have learned this batch before.",
			s->loss_begin, again);
		return CANNOT_TELL;
	}
	if (s->eval_best < s->loss_begin) {
		jm_err_set(err, JM_ERANGE,
			"The loss of the first batch was %g and is %g, although that of held-out "
			"samples had fallen to %g: the training has diverged; give a smaller --lr "
			"or a larger --batch.",
			s->loss_begin, again, s->eval_best);
		return CANNOT_TELL;
	}
	jm_err_set(err, JM_ERANGE,
		"The loss of the first batch has not fallen in %ld steps: it was %g and is %g; "
		"give more steps or a smaller --lr.",
		steps, s->loss_begin, again);
	return steps < FEW_STEPS && isfinite(again) ? CANNOT_TELL : JM_ERANGE;
}

/* The first batch again: its loss must have fallen. Of random samples that are new each time
 * nothing can be learned. */
static int train_verify(void *state, struct jm_err *err)
{
	struct train *s = state;
	double again;
	int code;

	if (s->steps == s->first)
		return jm_err_set(
			err, JM_EUSAGE, "No step was run, so the training could not be verified.");
	keep_profile(s);
	keep_scale(s);
	jm_train_pictures_keep(s);
	jm_until_keep(&s->until, s->work, s->steps - s->first);
	note_evaluations(s);
	code = jm_train_keep_ranks(s, err);
	if (!code)
		code = jm_train_weights_finish(s, err);
	if (!code)
		code = jm_shared_values_check(s, err);
	if (!code)
		code = run_again(s, &again, err);
	if (!code && !jm_train_weights_given(&s->weights))
		code = check_first(s, err);
	if (code)
		return code;
	if (!jm_model_has_text(s->training.model) && s->feed.fresh && !s->feed.pictures) {
		jm_err_set(err, JM_ERANGE,
			"The %ss are random and new in each step, so the loss does not fall.",
			s->training.model->item);
		return CANNOT_TELL;
	}
	return again < s->loss_begin ? 0 : not_fallen(s, again, err);
}

static int train_agree(void *state, void *value, size_t bytes, struct jm_err *err)
{
	struct train *s = state;

	return jm_comm_from_first(&s->gang.control, value, bytes, err);
}

const struct jm_workload jm_workload_train = {
	.name = "train",
	.summary = "trains a language model on a text, another on pictures or random samples",
	.unit = "item",
	.options = jm_train_options,
	.chooser = "model",
	.chosen_options = jm_model_options,
	.check = jm_work_device_check,
	.setup = train_setup,
	.step = train_step,
	.finish = train_finish,
	.agree = train_agree,
	.verify = train_verify,
	.teardown = train_teardown,
};
