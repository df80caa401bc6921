/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a model: a language model on a text, a vision model on images of random normal values. */
#include "train.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/profile.h"
#include "engine/tensor.h"
#include "workloads/train_profile.h"

static void train_teardown(void *state)
{
	struct train *s = state;

	if (!s)
		return;
	jm_batch_feed_close(&s->feed);
	jm_program_free(s->program);
	jm_graph_free(s->graph);
	jm_device_close(&s->device);
	jm_values_done(&s->dims);
	free(s);
}

static int train_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	struct train *s = calloc(1, sizeof(*s));
	int code;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the train workload.");
	s->work = work;
	s->loss_first = s->loss_last = NAN;
	code = jm_train_prepare(s, err);
	if (code)
		train_teardown(s);
	else
		*ret_state = s;
	return code;
}

/* ---- steps ---------------------------------------------------------------------------------------------- */

#define FEW 4 /* numbers, at most, in an input that the host writes in each step */

/* Numbers into a small input, in its type. */
static int write_few(struct train *s, struct jm_tensor *t, const double *value, struct jm_err *err)
{
	double data[FEW] = {0};

	for (int i = 0; i < FEW && i < jm_tensor_count(t); i++)
		jm_element_set(t->type, data, i, value[i]);
	return jm_program_write(s->program, t, data, err);
}

/* lr and the bias corrections of Adam at update t = 1, 2... */
static int feed_now(struct train *s, long t, struct jm_err *err)
{
	bool sgd = s->training.adamw.kind == JM_UPDATE_SGD;
	double lr = jm_lr_at(&s->schedule, t - 1);
	double now[FEW] = {lr, sgd ? (double)t : 1 - pow(s->training.adamw.beta1, (double)t),
		1 - pow(s->training.adamw.beta2, (double)t), (double)t};

	return write_few(s, s->now, now, err);
}

static int feed_scale(struct train *s, struct jm_err *err)
{
	double scale[FEW] = {s->scaler.scale, 1 / s->scaler.scale};

	return s->scale ? write_few(s, s->scale, scale, err) : 0;
}

static int read_scalar(struct train *s, const struct jm_tensor *t, double *ret, struct jm_err *err)
{
	double data;
	int code = jm_program_read(s->program, t, &data, err);

	if (!code)
		*ret = jm_element_get(t->type, &data, 0);
	return code;
}

/* Runs the step again, with a look at every value. */
static int find_nonfinite(struct train *s, long step, char *ret, size_t size, struct jm_err *err)
{
	int n = jm_program_micro_steps(s->program), found = jm_program_begin(s->program, err);

	for (int i = 0; i < n && !found; i++) {
		found = jm_batch_feed_write(&s->feed, (int64_t)step * n + i, err);
		if (!found)
			found = jm_program_find_nonfinite(s->program, ret, size, err);
	}
	if (!found)
		snprintf(ret, size, "it did not come back when the step was run again");
	return found < 0 ? found : 0;
}

static int not_finite(struct train *s, const char *what, long step, struct jm_err *err)
{
	char where[192], scaled[96] = "";
	int code = find_nonfinite(s, step, where, sizeof(where), err);

	if (code)
		return code;
	if (s->scaler.in_a_row)
		snprintf(scaled, sizeof(scaled),
			", and so were those of the %ld steps before it, down to a loss scale of "
			"%g",
			s->scaler.in_a_row, s->scaler.scale);
	return jm_err_set(err, JM_ERANGE,
		"The %s of step %ld%s is not a number or infinite%s: %s; give a smaller --lr or a "
		"--clip.",
		what, step + 1, step < s->steps ? ", run again to verify," : "", scaled, where);
}

/* All micro-steps of a step; the mean of their losses. */
static int run(struct train *s, long step, double *ret_loss, struct jm_err *err)
{
	int n = jm_program_micro_steps(s->program);
	double sum = 0, loss = 0;
	int code = feed_scale(s, err);

	if (!code)
		code = jm_program_begin(s->program, err);
	for (int i = 0; i < n && !code; i++) {
		code = jm_batch_feed_write(&s->feed, (int64_t)step * n + i, err);
		if (!code)
			code = jm_program_micro(s->program, err);
		if (!code)
			code = read_scalar(s, s->loss, &loss, err);
		if (!code && !isfinite(loss))
			code = not_finite(s, "loss", step, err);
		sum += loss;
	}
	if (!code)
		*ret_loss = sum / n;
	return code;
}

/* Moves the parameters, or leaves them as they are where a gradient overflowed by its scale. */
static int update(struct train *s, struct jm_err *err)
{
	double norm;
	int code = feed_now(s, s->updates + 1, err);

	if (!code)
		code = jm_program_update(s->program, err);
	if (!code)
		code = read_scalar(s, s->norm, &norm, err);
	if (!code && !isfinite(norm) && !jm_scaler_forgives(&s->scaler))
		code = not_finite(s, "gradient", s->steps, err);
	if (code)
		return code;
	jm_scaler_step(&s->scaler, isfinite(norm));
	s->updates += isfinite(norm);
	return 0;
}

static int train_step(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct train *s = state;
	double loss, items = (double)(s->training.batch * s->training.seq);
	int code = run(s, s->steps, &loss, err);

	if (!code)
		code = update(s, err);
	if (code)
		return code;
	if (!s->steps++) {
		s->loss_first = loss;
		jm_profile_reset(s->program); /* the first step warms caches */
	}
	s->loss_last = loss;
	*ret = (struct jm_step){.items = items * jm_program_micro_steps(s->program),
		.flops_model = s->program->flops_model,
		.flops_executed = s->program->flops_executed,
		.bytes = s->program->bytes,
		.loss = loss};
	return 0;
}

static void keep_profile(struct train *s)
{
	if (s->program->profile && s->work->more && s->steps > 1)
		json_object_set_new(s->work->more, "profile", jm_train_profile(s->program));
}

static void keep_scale(struct train *s)
{
	const struct jm_scaler *c = &s->scaler;
	size_t n = strlen(s->work->detail);

	if (!s->scale)
		return;
	if (c->dynamic)
		snprintf(s->work->detail + n, sizeof(s->work->detail) - n,
			"; %ld steps skipped, loss scale %g", c->skipped, c->scale);
	if (s->work->more)
		json_object_set_new(s->work->more, "loss_scale",
			json_pack("{s:b, s:f, s:f, s:I}", "dynamic", c->dynamic, "first", c->start,
				"last", c->scale, "steps_skipped", (json_int_t)c->skipped));
}

#define CANNOT_TELL 1
#define FEW_STEPS   20 /* steps: deep networks may rise before they fall */

/* The first batch again: its loss must have fallen. Of images that are new each time nothing can be learned. */
static int train_verify(void *state, struct jm_err *err)
{
	struct train *s = state;
	double again;
	int code;

	if (!s->steps)
		return jm_err_set(err, JM_EUSAGE, "Not one step was run, so nothing was learned.");
	keep_profile(s);
	keep_scale(s);
	code = run(s, 0, &again, err);
	if (code)
		return code;
	if (s->feed.image && s->feed.fresh) {
		jm_err_set(
			err, JM_ERANGE, "Of images that are new in each step nothing is learned.");
		return CANNOT_TELL;
	}
	if (again < s->loss_first)
		return 0;
	code = jm_err_set(err, JM_ERANGE,
		"The loss of the first batch has not fallen in %ld steps: %g then, %g now; give "
		"more steps or a smaller --lr.",
		s->steps, s->loss_first, again);
	return s->steps < FEW_STEPS && isfinite(again) ? CANNOT_TELL : code;
}

const struct jm_workload jm_workload_train = {
	.name = "train",
	.summary = "trains a language model on a text, or a vision model on random images",
	.unit = "token",
	.options = jm_train_options,
	.check = jm_train_check,
	.setup = train_setup,
	.step = train_step,
	.verify = train_verify,
	.teardown = train_teardown,
};
