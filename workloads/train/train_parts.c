/* SPDX-License-Identifier: Apache-2.0 */
#include "train_parts.h"

#include <string.h>

bool jm_train_has_checkpoint(const struct train *s)
{
	return s->weights.checkpoint || s->weights.go_on;
}

/* What needs all of a model on one rank. */
static const char *needs_whole(const struct train *s)
{
	bool divides_rows = s->training.sp && s->training.tp > 1;
	/* ranges of values in 8 bits are those of the rank's parts */
	bool keeps_ranges = s->training.fp8 && jm_train_has_checkpoint(s);

	return s->training.adamw.average > 0		 ? "--ema"
	       : divides_rows && s->training.dropout > 0 ? "--sequence-parallel and --dropout"
	       : keeps_ranges				 ? "--precision fp8 with a checkpoint"
							 : NULL;
}

/* The same, of one in stages. */
static const char *needs_one_stage(const struct train *s)
{
	return s->training.freeze   ? "--freeze"
	       : !s->training.batch ? "--batch max"
	       : s->given.profile   ? "--profile"
				    : NULL;
}

static int refuse_parts(const char *option, int n, const char *other, struct jm_err *err)
{
	return jm_err_set(err, JM_EUSAGE,
		"--%s %d does not go with %s yet, because each rank has a part of the model only; "
		"omit one of them.",
		option, n, other);
}

static int check_chunks(const struct jm_training *t, struct jm_err *err)
{
	bool last = t->last_blocks;

	if ((t->chunks < 2 && !last) || t->pp > 1)
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"--pp-%s %d needs --pp of at least 2; give it, or omit --pp-%s.",
		last ? "last" : "chunks", last ? t->last_blocks : t->chunks,
		last ? "last" : "chunks");
}

int jm_train_check_parts(const struct train *s, struct jm_err *err)
{
	int tp = s->training.tp, pp = s->training.pp, world = jm_work_world(s->work);
	const char *whole = needs_whole(s), *one = needs_one_stage(s);

	if (tp > 1 && world % tp)
		return jm_err_set(err, JM_EUSAGE,
			"--tp %d does not divide %d ranks into models; give a divisor of --ranks.",
			tp, world);
	if (world % (tp * pp))
		return jm_err_set(err, JM_EUSAGE,
			"--pp %d%s does not divide %d ranks into models; --ranks has to be a "
			"multiple of %d.",
			pp, tp > 1 ? " with --tp" : "", world, tp * pp);
	if (whole && tp * pp > 1)
		return refuse_parts(tp > 1 ? "tp" : "pp", tp > 1 ? tp : pp, whole, err);
	if (one && pp > 1)
		return refuse_parts("pp", pp, one, err);
	return check_chunks(&s->training, err);
}

void jm_train_choose_seat(struct train *s)
{
	struct jm_training *t = &s->training;
	int shared = t->tp * t->pp, models = jm_work_world(s->work) / shared;
	struct jm_gang_seat seat;

	t->ranks = models;
	if (!models) /* refused below */
		return;
	seat = jm_gang_seat(s->work, t->tp, t->pp);
	t->rank = seat.model;
	t->tp_rank = seat.tp_rank;
	t->stage = seat.stage;
}
