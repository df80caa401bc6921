/* SPDX-License-Identifier: Apache-2.0 */
/* Models by name, their dimensions, and the graph that trains one. */
#include "model.h"
#include "fp8.h"
#include "freeze.h"
#include "gradient.h"
#include "group.h"
#include "init_rule.h"
#include "pipeline_parallel.h"
#include "recompute.h"
#include "shard_update.h"
#include "tensor.h"
#include "tensor_parallel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 128
int64_t jm_dim(const struct jm_values *dims, const char *name)
{
	return (int64_t)jm_values_number(dims, name);
}

int jm_dim_default(struct jm_values *dims, const char *name, int64_t value, struct jm_err *err)
{
	char text[24];

	if (jm_values_text(dims, name))
		return 0;
	snprintf(text, sizeof(text), "%lld", (long long)value);
	return jm_values_set(dims, name, text, err);
}

/* ImageNet's mean is (0.485, 0.456, 0.406), its deviation (0.229, 0.224, 0.225); CLIP's are
 * (0.48145466, 0.4578275, 0.40821073) and (0.26862954, 0.26130258, 0.27577711). */
const struct jm_colour_scale *jm_colour_scale(enum jm_colours colours)
{
	static const struct jm_colour_scale scales[] = {
		[JM_COLOURS_IMAGENET] = {{1 / (255 * 0.229f), 1 / (255 * 0.224f),
						 1 / (255 * 0.225f)},
			{-0.485f / 0.229f, -0.456f / 0.224f, -0.406f / 0.225f}},
		[JM_COLOURS_CLIP] = {{1 / (255 * 0.26862954f), 1 / (255 * 0.26130258f),
					     1 / (255 * 0.27577711f)},
			{-0.48145466f / 0.26862954f, -0.4578275f / 0.26130258f,
				-0.40821073f / 0.27577711f}},
		[JM_COLOURS_SIGNED] = {{1 / 127.5f, 1 / 127.5f, 1 / 127.5f}, {-1, -1, -1}},
	};

	return &scales[colours];
}

static const struct jm_preset *preset_of(const struct jm_model *model, const char *name)
{
	for (const struct jm_preset *p = model->presets; p && p->name; p++)
		if (!strcmp(p->name, name))
			return p;
	return NULL;
}

static int unknown(const char *name, struct jm_err *err)
{
	const char *names[NAMES_MAX], *near;
	size_t n = 0;

	for (int i = 0; jm_models[i] && n < NAMES_MAX; i++) {
		names[n++] = jm_models[i]->name;
		for (const struct jm_preset *p = jm_models[i]->presets; p && p->name; p++)
			if (n < NAMES_MAX)
				names[n++] = p->name;
	}
	near = jm_did_you_mean(name, names, n);
	if (near)
		return jm_err_set(
			err, JM_EUSAGE, "There is no model '%s'; did you mean '%s'?", name, near);
	return jm_err_set(
		err, JM_EUSAGE, "There is no model '%s'; 'joulemark list' lists the models.", name);
}

int jm_model_find(const char *name, const struct jm_model **ret,
	const struct jm_preset **ret_preset, struct jm_err *err)
{
	for (int i = 0; jm_models[i]; i++) {
		const struct jm_preset *preset = preset_of(jm_models[i], name);

		if (!preset && strcmp(jm_models[i]->name, name) != 0)
			continue;
		*ret = jm_models[i];
		*ret_preset = preset;
		return 0;
	}
	return unknown(name, err);
}

/* "layers=12 hidden=768" */
static int set_all(struct jm_values *v, const char *text, struct jm_err *err)
{
	char word[64], *equals;
	int code = 0, used;

	for (; !code && sscanf(text, "%63s%n", word, &used) == 1; text += used) {
		equals = strchr(word, '=');
		if (!equals)
			return jm_err_set(
				err, JM_EBUG, "'%s' in a preset is not a dimension.", word);
		*equals = 0;
		code = jm_values_set(v, word, equals + 1, err);
	}
	return code;
}

bool jm_model_has_text(const struct jm_model *model)
{
	const struct jm_input *input = model->inputs;

	while (input->name && input->fill != JM_FILL_TEXT)
		input++;
	return input->name;
}

bool jm_model_option_exists(const char *name)
{
	bool found = false;

	for (int i = 0; jm_models[i] && !found; i++)
		found = jm_option_find(jm_models[i]->options, name);
	return found;
}

const char *jm_model_workload(const struct jm_preset *preset)
{
	return preset && preset->workload ? preset->workload : "train";
}

int jm_model_options(const char *name, const struct jm_option **ret, struct jm_err *err)
{
	const struct jm_preset *preset;
	const struct jm_model *model = NULL;
	int code = jm_model_find(name, &model, &preset, err);

	if (model)
		*ret = model->options;
	return code;
}

/* The user's values override those of the preset. */
static int set_given(struct jm_values *v, const struct jm_values *given, struct jm_err *err)
{
	int code = 0;

	for (int i = 0; i < v->n && !code; i++) {
		const char *name = v->value[i].option->name;
		const char *text = given ? jm_values_text(given, name) : NULL;

		if (text)
			code = jm_values_set(v, name, text, err);
	}
	return code;
}

static int complete(const struct jm_model *model, struct jm_values *v,
	const struct jm_values *given, struct jm_err *err)
{
	double seq = given ? jm_values_number(given, "seq") : 0;
	int code = 0;

	if (model->complete)
		code = model->complete(v, seq > 0 ? (int64_t)seq : 0, err);
	for (int i = 0; i < v->n && !code; i++)
		if (!v->value[i].text)
			code = jm_err_set(err, JM_EUSAGE,
				"Model %s needs --%s, because no preset sets it; give it, or use a "
				"preset.",
				model->name, v->value[i].option->name);
	return code;
}

int jm_model_dims(const struct jm_model *model, const struct jm_preset *preset,
	const struct jm_values *given, struct jm_values *ret, struct jm_err *err)
{
	struct jm_values v;
	int code = jm_values_init(&v, model->options, err);

	if (code)
		return code;
	if (preset)
		code = set_all(&v, preset->dims, err);
	if (!code)
		code = set_given(&v, given, err);
	if (!code)
		code = complete(model, &v, given, err);
	if (code)
		jm_values_done(&v);
	else
		*ret = v;
	return code;
}

const char *const jm_precision_names[] = {
	"f32", "tf32", "bf16", "bf16-true", "fp16", "fp8", "fp8-true", "f64", NULL};

static const struct precision {
	enum jm_dtype type;
	enum jm_math math;
	bool pure, fp8;
} precisions[] = {{JM_F32, JM_MATH_F32, false, false}, {JM_F32, JM_MATH_TF32, false, false},
	{JM_BF16, JM_MATH_F32, false, false}, {JM_BF16, JM_MATH_F32, true, false},
	{JM_F16, JM_MATH_F32, false, false}, {JM_BF16, JM_MATH_F32, false, true},
	{JM_BF16, JM_MATH_F32, true, true}, {JM_F64, JM_MATH_F32, false, false}};

int jm_precision_set(struct jm_training *t, const char *name, struct jm_err *err)
{
	const char *near;
	size_t n = 0;

	for (; jm_precision_names[n]; n++) {
		if (strcmp(jm_precision_names[n], name) != 0)
			continue;
		t->precision = precisions[n].type;
		t->math = precisions[n].math;
		t->pure = precisions[n].pure;
		t->fp8 = precisions[n].fp8;
		return 0;
	}
	near = jm_did_you_mean(name, jm_precision_names, n);
	if (near)
		return jm_err_set(err, JM_EUSAGE, "There is no precision '%s'; did you mean '%s'?",
			name, near);
	return jm_err_set(err, JM_EUSAGE,
		"There is no precision '%s'; use f32, tf32, bf16, bf16-true, fp16, fp8, fp8-true "
		"or, on device ref, f64.",
		name);
}

/*
 * The factor of the gradients of the loss: 1 / (micro-steps of all ranks), because their gradients
 * are summed, times the loss scale if there is one.
 */
static void scale_loss(const struct jm_training *t, struct jm_graph *g, struct jm_tensor *loss)
{
	struct jm_tensor *scale = NULL;
	const int64_t two = 2;

	g->micro_steps = t->micro_steps;
	g->ranks = t->ranks;
	g->rank = t->rank;
	g->bucket_bytes = t->bucket_bytes;
	g->rounds_sums = t->rounds_sums;
	if (t->scaled)
		scale = jm_graph_tensor(g, JM_CLASS_INPUT, g->vector, 1, &two, "loss.scale");
	for (int i = 0; i < g->n_nodes; i++) {
		struct jm_node *n = g->node[i];

		if (n->out[0] != loss)
			continue;
		n->in[2] = scale;
		n->attr.xent.scale = 1.0 / (double)(jm_graph_micro_steps(g) * jm_graph_ranks(g));
	}
}

static int start_values(const struct jm_training *t, struct jm_graph *g, struct jm_err *err)
{
	if (t->init != JM_INIT_OWN)
		jm_init_replace(g, t->init);
	return t->zero_gamma ? jm_init_zero_gamma(g, err) : 0;
}

/* The network and its loss, without gradients. */
static int declare(
	struct jm_training *t, struct jm_graph *g, struct jm_tensor **ret_loss, struct jm_err *err)
{
	int64_t seq = 1;
	int code = t->model->default_seq ? t->model->default_seq(t->dims, &seq, err) : 0;

	if (!code && !jm_model_has_text(t->model) && t->seq > 1)
		code = jm_err_set(err, JM_EUSAGE,
			"Model %s takes no sequences, but %ss; omit --seq.", t->model->name,
			t->model->item);
	if (!code && !t->seq)
		t->seq = seq;
	if (!code && jm_graph_tp(g) * jm_graph_pp(g) > 1 && !t->model->cuts)
		code = jm_err_set(err, JM_ENOSUP,
			"Model %s cannot be divided by --%s: use llama or gpt, or omit it.",
			t->model->name, jm_graph_tp(g) > 1 ? "tp" : "pp");
	if (!code)
		code = t->model->build(g, t->dims, t->batch, t->seq, ret_loss, err);
	if (!code && g->err.code)
		code = jm_err_set(err, g->err.code, "%s", g->err.text);
	if (!code && t->dropout > 0 && !jm_graph_find(g, "random.now"))
		code = jm_err_set(err, JM_EUSAGE,
			"Model %s has no dropout, as in its paper; omit --dropout.",
			t->model->name);
	return code;
}

/* Only AdamW and Adam of one rank keep copies (keep_copies.c). */
static int remake(const struct jm_training *t, struct jm_graph *g, struct jm_err *err)
{
	struct jm_remake how = t->remake;

	how.copies = how.copies && t->adamw.kind != JM_UPDATE_SGD && t->ranks <= 1;
	return jm_graph_rematerialize(g, &how, err);
}

static bool has_filters(const struct jm_graph *g)
{
	for (int i = 0; i < g->n_cells; i++)
		if (g->cell[i]->t.class == JM_CLASS_PARAM && g->cell[i]->t.rank > 2)
			return true;
	return false;
}

enum jm_narrow jm_narrow_of(const char *word)
{
	return !strcmp(word, "auto")   ? JM_NARROW_AUTO
	       : !strcmp(word, "bf16") ? JM_NARROW_YES
				       : JM_NARROW_NO;
}

static bool narrows(const struct jm_training *t, enum jm_narrow choice)
{
	return choice == JM_NARROW_YES ||
	       (choice == JM_NARROW_AUTO && t->own_memory && t->precision == JM_BF16 && !t->pure);
}

/* The gradients of several ranks are summed in one slab. */
static bool narrows_gradients(const struct jm_training *t, const struct jm_graph *g)
{
	if (t->ranks > 1 || !narrows(t, t->gradients))
		return false;
	return t->gradients == JM_NARROW_YES || (t->micro_steps <= 1 && !has_filters(g));
}

/* Each of the ranks that share a model has to count a part of the norm. */
static bool counts_on_all(const struct jm_graph *g)
{
	bool found = jm_graph_tp(g) == 1;

	for (int i = 0; i < g->n_cells && !found; i++)
		found = jm_update_trains(g->cell[i]) && g->cell[i]->cut.n;
	return found;
}

/* Why every rank updates all parameters; NULL = each of several ranks has a share. */
static const char *why_whole(const struct jm_training *t, const struct jm_graph *g)
{
	if (!t->shards_update)
		return "--shard-update is off";
	if (t->pure && t->fp8)
		return "matrices in 8 bits have no copies that could be gathered";
	if (t->pure && t->by_host)
		return "without f32 masters transport host has no copies to gather behind the "
		       "tables";
	return counts_on_all(g) ? NULL : "some ranks of a model have no trained part of their own";
}

static int append_update(const struct jm_training *t, struct jm_graph *g, struct jm_err *err)
{
	if (t->ranks > 1)
		g->whole_update = why_whole(t, g);
	if (t->ranks > 1 && !g->whole_update)
		return jm_graph_shard_update(g, &t->adamw, err);
	return jm_graph_adamw(g, &t->adamw, err);
}

static int fill_in(struct jm_training *t, struct jm_graph *g, struct jm_err *err)
{
	struct jm_tensor *loss;
	int code = declare(t, g, &loss, err);

	if (!code)
		code = jm_freeze_check(g, t->model->name, err);
	if (code)
		return code;
	if (narrows_gradients(t, g))
		g->gradient = g->compute;
	scale_loss(t, g, loss);
	code = start_values(t, g, err);
	if (!code)
		code = jm_graph_keep_stage(g, loss, err);
	if (!code)
		code = jm_graph_gradients(g, loss, err);
	jm_graph_add_biases_once(g);
	if (!code && t->own_memory)
		jm_group_join_pooled(g);
	if (!code && t->fp8)
		code = jm_graph_fp8(g, err);
	if (!code && t->recompute)
		code = jm_graph_recompute(g, err);
	else if (!code && !t->keep_all)
		code = remake(t, g, err);
	if (!code)
		code = append_update(t, g, err);
	return code || !t->fp8 ? code : jm_graph_rescale(g, err);
}

/* The input that has the pictures of a data set. */
static void choose_pixels(const struct jm_model *model, struct jm_byte_input *ret)
{
	const struct jm_input *row = model->inputs;

	while (row->name && (!row->field || strcmp(row->field, "image") != 0))
		row++;
	if (!row->name)
		return;
	ret->name = row->name;
	ret->scale = *jm_colour_scale(row->colours);
}

static struct jm_graph *new_graph(const struct jm_training *t)
{
	struct jm_graph *g = jm_graph_new(t->precision);

	if (!g)
		return NULL;
	g->math = t->math;
	g->tp = t->tp;
	g->tp_rank = t->tp_rank;
	g->sp = t->sp && t->tp > 1;
	g->pp = t->pp;
	g->stage = t->stage;
	g->chunks = t->chunks;
	g->last_blocks = t->last_blocks;
	g->by_host = t->by_host;
	g->row_multiple = t->row_multiple ? t->row_multiple : t->pure ? JM_ROW_MULTIPLE : 1;
	if (t->pure)
		g->matrix = g->stream = g->compute;
	if (t->pure && (t->ranks <= 1 || (t->tp * t->pp <= 1 && !t->by_host)))
		g->gradient = g->compute;
	if (narrows(t, t->residual))
		g->stream = g->compute;
	g->freeze = (struct jm_freeze){t->freeze, t->model->frozen, t->model->weights};
	if (t->byte_pictures)
		choose_pixels(t->model, &g->pixels);
	return g;
}

static int declare_step(const struct jm_training *t, const struct jm_step_shape *shape,
	struct jm_graph *g, struct jm_err *err)
{
	struct jm_tensor *logits, *kept;
	int64_t seq, classes;
	int code = t->model->default_seq ? t->model->default_seq(t->dims, &seq, err) : 0;

	if (!code)
		code = t->model->step(g, t->dims, shape, &logits, err);
	if (code || g->err.code)
		return code ? code : jm_err_set(err, g->err.code, "%s", g->err.text);
	/* padding rows of the vocabulary are no tokens */
	classes = jm_graph_cell(g, jm_graph_cell(g, logits)->producer->in[1])->used;
	if (shape->tokens < shape->requests)
		logits = jm_graph_rows(g, logits, jm_graph_find(g, "last"));
	if (logits)
		jm_graph_sample(g, logits, classes, shape->samples);
	if (logits && shape->keeps_logits) {
		kept = jm_graph_tensor(g, JM_CLASS_SCALAR, logits->type, 2, logits->dim, "logits");
		jm_graph_node(g, JM_OP_CAST, &logits, &kept);
	}
	return g->err.code ? jm_err_set(err, g->err.code, "%s", g->err.text) : 0;
}

int jm_model_step(const struct jm_training *t, const struct jm_step_shape *shape,
	struct jm_graph **ret, struct jm_err *err)
{
	struct jm_graph *g;
	int code;

	if (!t->model->step)
		return jm_err_set(err, JM_ENOSUP,
			"Model %s cannot be served: it declares no step with a cache of keys and "
			"values; "
			"use llama.",
			t->model->name);
	g = new_graph(t);
	if (!g)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a graph.");
	g->evaluate = true;
	code = declare_step(t, shape, g, err);
	g->n_forward = g->n_nodes;
	if (!code && t->fp8)
		code = jm_graph_fp8_rows(g, err);
	if (code)
		jm_graph_free(g);
	else
		*ret = g;
	return code;
}

int jm_model_evaluate(const struct jm_training *t, struct jm_graph **ret, struct jm_err *err)
{
	struct jm_graph *g = new_graph(t);
	struct jm_training alone = *t;
	struct jm_tensor *loss;
	int code;

	if (!g)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a graph.");
	alone.dropout = 0;
	g->evaluate = true;
	g->wants_top1 = t->model->wants_top1;
	code = declare(&alone, g, &loss, err);
	if (!code)
		code = jm_graph_keep_stage(g, loss, err);
	jm_graph_add_biases_once(g);
	g->n_forward = g->n_nodes;
	if (!code && t->fp8)
		code = jm_graph_fp8(g, err);
	if (code)
		jm_graph_free(g);
	else
		*ret = g;
	return code;
}

int jm_model_train(struct jm_training *t, struct jm_graph **ret, struct jm_err *err)
{
	struct jm_graph *g = new_graph(t);
	int code;

	if (!g)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a graph.");
	g->dropout = t->dropout;
	code = fill_in(t, g, err);
	if (code)
		jm_graph_free(g);
	else
		*ret = g;
	return code;
}
