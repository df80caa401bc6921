/* SPDX-License-Identifier: Apache-2.0 */
#include "idle_options.h"

#include "engine/graph/optimizer.h"

/* needs: what would use the option. */
static void note(struct train *s, const char *option, bool used, const char *needs)
{
	if (used || jm_values_is_default(s->work->options, option))
		return;
	jm_work_note(s->work, "--%s has no effect: it needs %s.", option, needs);
}

static void note_update(struct train *s)
{
	bool sgd = s->training.adamw.kind == JM_UPDATE_SGD;
	enum jm_lr_schedule_kind kind = s->schedule.kind;
	bool falls_to = kind == JM_LR_COSINE || kind == JM_LR_LINEAR;

	note(s, "momentum", sgd, "--optimizer sgd");
	note(s, "nesterov", sgd, "--optimizer sgd");
	note(s, "beta1", !sgd, "--optimizer adamw or adam");
	note(s, "beta2", !sgd, "--optimizer adamw or adam");
	note(s, "eps", !sgd, "--optimizer adamw or adam");
	note(s, "lr-steps", kind != JM_LR_CONSTANT, "--schedule cosine, linear or step");
	note(s, "lr-min", falls_to, "--schedule cosine or linear");
	note(s, "lr-factor", kind == JM_LR_STEP, "--schedule step");
}

static bool has_texts(const struct jm_data_set *set)
{
	for (const struct jm_data_field *f = set->format ? set->format->fields : NULL; f && f->name;
		f++)
		if (f->type >= JM_DATA_TEXT)
			return true;
	return false;
}

void jm_train_note_idle(struct train *s)
{
	bool data = s->pictures.data;

	note(s, "sequence-parallel", s->training.tp > 1, "--tp of at least 2");
	note_update(s);
	note(s, "images", !data && !jm_model_has_text(s->training.model),
		"random samples, which are those of a model without text and without --data");
	note(s, "eval-batches", s->eval.every && !data,
		data ? "evaluations without --data (with it, all samples of --eval-data count)"
		     : "--eval-every");
	note(s, "tokenizer", has_texts(&s->pictures.set), "--data with texts");
}
