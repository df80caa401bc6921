/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark describe: what training a model takes, without allocating or running anything. */
#include "base/files/output.h"
#include "cli/frame/cli.h"
#include "cli/frame/help.h"
#include "cli/frame/json_option.h"
#include "cli/frame/work_options.h"
#include "describe_graph.h"
#include "describe_parts.h"
#include "describe_plan.h"
#include "describe_power.h"
#include "describe_ranks.h"
#include "describe_serve.h"
#include "describe_several.h"
#include "describe_svg.h"
#include "engine/device/backend_find.h"
#include "engine/graph/freeze.h"
#include "engine/graph/init_rule.h"
#include "engine/graph/model.h"
#include "engine/graph/optimizer.h"
#include "engine/graph/tensor.h"
#include "engine/run/program.h"
#include "report/format/text.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct jm_option options[] = {
	{.name = "batch",
		JM_BIND(JM_INT, struct describe_plan, training.batch),
		.min = 1,
		.max = 1e9,
		.help = "sequences or images per step; without it 1, for inception3 2"},
	{.name = "seq",
		JM_BIND(JM_INT, struct describe_plan, training.seq),
		.min = 1,
		.max = 1e9,
		.help = "tokens per sequence; without it the context of the model"},
	{.name = "precision",
		JM_BIND(JM_CHOICE, struct describe_plan, precision),
		.choices = jm_precision_names,
		.fallback = "f32",
		.help = "precision of products and activations; parameters are f32, except with "
			"bf16-true and fp8-true"},
	{.name = "optimizer",
		JM_BIND(JM_CHOICE, struct describe_plan, training.adamw.kind),
		.choices = jm_update_names,
		.fallback = "adamw",
		.help = "optimizer whose state is planned"},
	{.name = "ema",
		JM_BIND(JM_REAL, struct describe_plan, training.adamw.average),
		.unit = "",
		.min = 0,
		.max = 0.9999999,
		.fallback = "0",
		.help = "plan the mean of the parameters that a training with --ema keeps, in f32"},
	{.name = "init",
		JM_BIND(JM_CHOICE, struct describe_plan, init),
		.choices = jm_init_names,
		.fallback = "model",
		.help = "start values of the layers' weights"},
	{.name = "zero-gamma",
		JM_BIND(JM_FLAG, struct describe_plan, training.zero_gamma),
		.help = "the last batch norm of each residual block starts at zero"},
	{.name = "freeze",
		JM_BIND(JM_TEXT, struct describe_plan, training.freeze),
		.argument = "PATTERNS",
		.help = "parameters that are not trained: patterns of names, separated by commas"},
	{.name = "dropout",
		JM_BIND(JM_REAL, struct describe_plan, training.dropout),
		.min = 0,
		.max = 0.999,
		.fallback = "0",
		.help = "share of values dropped after embeddings and the parts of each block"},
	{.name = "accumulate",
		JM_BIND(JM_INT, struct describe_plan, training.micro_steps),
		.min = 1,
		.max = 1e6,
		.fallback = "1",
		.help = "micro-steps of --batch samples before an update"},
	{.name = "device",
		JM_BIND(JM_TEXT, struct describe_plan, device_name),
		.argument = "NAME",
		.help = "backend whose memory is planned; without it cpu where it is built, else "
			"ref; ref for tf32, fp16 and f64, which backend cpu does not have"},
	{.name = "keep-all",
		JM_BIND(JM_FLAG, struct describe_plan, training.keep_all),
		.help = "keep norms, activations and compute copies for the gradients instead of "
			"recomputing them"},
	{.name = "keep-most",
		JM_BIND(JM_FLAG, struct describe_plan, keep_most),
		.help = "what 'joulemark run' keeps on a GPU if the plan fits into its memory: as "
			"--remake 0.0625 for transformers, 1.6 for ResNets and U-Nets, else 1"},
	{.name = "remake",
		JM_BIND(JM_REAL, struct describe_plan, remake),
		.argument = "PERCENT",
		.min = 0,
		.max = 100,
		.help = "limit recomputation to this share of a step's time, estimated from the "
			"device's peaks; above that of --keep-most of attention and products, too"},
	{.name = "recompute",
		JM_BIND(JM_FLAG, struct describe_plan, training.recompute),
		.help = "recompute the activations of each block for its gradients"},
	DESCRIBE_RANKS,
	{.name = "serve",
		JM_BIND(JM_FLAG, struct describe_plan, serve.on),
		.help = "plan 'joulemark run serve' instead of a training: weights, and the pages, "
			"tokens and requests of the cache that the rest of the memory holds"},
	{.name = "memory",
		JM_BIND(JM_REAL, struct describe_plan, serve.memory),
		.needs = "serve",
		.argument = "GB",
		.min = 1e-6,
		.max = 1e6,
		.help = "with --serve: memory that may be used, in GB; without it that of the "
			"device"},
	{.name = "kv",
		JM_BIND(JM_CHOICE, struct describe_plan, serve.kv),
		.needs = "serve",
		.choices = jm_cache_types,
		.fallback = "auto",
		.help = "with --serve: type of the keys and values in the cache, as for --kv of "
			"'run serve'"},
	{.name = "running",
		JM_BIND(JM_INT, struct describe_plan, serve.running),
		.needs = "serve",
		.min = 1,
		.max = 4096,
		.fallback = "16",
		.help = "with --serve: requests that a step serves at most"},
	{.name = "step-tokens",
		JM_BIND(JM_INT, struct describe_plan, serve.step_tokens),
		.needs = "serve",
		.min = 1,
		.max = 8192,
		.fallback = "256",
		.help = "with --serve: rows of a step at most"},
	{.name = "request-tokens",
		JM_BIND(JM_INT, struct describe_plan, serve.request_tokens),
		.needs = "serve",
		.min = 1,
		.max = 1e8,
		.help = "with --serve: tokens of a prompt and its answer, for the number of "
			"requests; without it the context of the model"},
	{.name = "power",
		JM_BIND(JM_TEXT, struct describe_plan, power.store),
		.argument = "STORE",
		.help = "estimate the mean power of the training, with its 95 % interval, from the "
			"runs of STORE on the same device in the same precision"},
	{JM_JSON_ROW("write the figures as JSON; without a file to standard output"),
		JM_BIND(JM_TEXT, struct describe_plan, json), .takes_next = jm_json_next},
	{.name = "graph",
		JM_BIND(JM_FLAG, struct describe_plan, lists_graph),
		.help = "also list the program group by group: layouts, offsets, FLOPs, bytes"},
	{.name = "svg",
		JM_BIND(JM_TEXT, struct describe_plan, svg),
		.argument = "FILE",
		.help = "draw the program and its memory over a step as SVG; - is standard output"},
	{0},
};

static void plan_done(struct describe_plan *plan)
{
	jm_program_free(plan->program);
	jm_graph_free(plan->graph);
	jm_device_close(&plan->device);
	jm_values_done(&plan->dims);
	jm_values_done(&plan->values);
}

static const char *choose_device(const struct describe_plan *plan)
{
	const struct jm_training *t = &plan->training;
	bool common = t->math == JM_MATH_F32 && t->precision != JM_F16 && t->precision != JM_F64;

	if (plan->device_name)
		return plan->device_name;
	/* backend cpu does not have the other precisions */
	return !common || jm_backend_check("cpu", NULL) ? "ref" : "cpu";
}

/* True if one of the models reads text; models of images in the same call then ignore --seq. */
static bool names_text(const struct jm_cli *cli)
{
	const struct jm_preset *preset;
	const struct jm_model *model;

	for (int i = 0; i < cli->n_args; i++)
		if (!jm_model_find(cli->args[i], &model, &preset, NULL) && jm_model_has_text(model))
			return true;
	return false;
}

static int choose(struct describe_plan *plan, bool beside_text, struct jm_err *err)
{
	struct jm_training *t = &plan->training;
	struct jm_adamw *u = &t->adamw; /* its kind and mean are given */

	u->beta1 = u->momentum = 0.9;
	u->beta2 = 0.999;
	u->eps = 1e-8;
	t->dims = &plan->dims;
	t->shards_update = true;
	t->init = jm_init_find(plan->init);
	if (beside_text && !jm_model_has_text(t->model))
		t->seq = 0;
	return jm_precision_set(t, plan->precision, err);
}

/* Options of models that were given must be options of all models that are named. */
static int check_extra(struct jm_cli *cli)
{
	struct jm_work_options o = {.who = cli->n_args ? "the model" : "any model"};
	const struct jm_preset *preset;
	const struct jm_model *model;
	int code = 0;

	for (int i = 0; i < cli->n_args && !code; i++) {
		code = jm_model_find(cli->args[i], &model, &preset, &cli->err);
		if (!code)
			code = jm_work_options_choose(&o, cli->args[i], model->options, &cli->err);
	}
	return code ? code : jm_work_options_check(cli, &o);
}

/* The command's values, and those of the model. */
static int take_options(struct jm_cli *cli, struct describe_plan *plan)
{
	const struct jm_model *model = plan->training.model;
	int code = jm_values_copy(&cli->values, &plan->values, &cli->err);

	if (!code)
		code = jm_values_add(&plan->values, model->options, &cli->err);
	for (int i = 0; i < cli->n_extra && !code; i++)
		code = jm_values_set(
			&plan->values, cli->extra[i].name, cli->extra[i].text, &cli->err);
	JM_FILL(&plan->values, plan);
	return code;
}

static int choose_kept(struct describe_plan *plan, struct jm_err *err)
{
	struct jm_training *t = &plan->training;
	double percent = plan->remake;
	bool most = plan->keep_most, given = !isnan(percent);

	t->keep_all |= percent <= 0;
	t->own_memory = !plan->device.props.host_memory;
	if (jm_device_remake(&plan->device, t->precision, t->math,
		    given || most ? percent / 100 : 0, &t->remake) ||
		!(given || most) || t->keep_all)
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"The peaks of device %s are not known, so neither is what recomputing costs; omit "
		"--keep-most and --remake.",
		plan->device.backend->name);
}

static int make_plan(struct jm_cli *cli, const char *name, struct describe_plan *plan)
{
	struct jm_training *t = &plan->training;
	const struct jm_preset *preset;
	struct jm_err *err = &cli->err;
	int code = jm_model_find(name, &t->model, &preset, err);

	plan->name = name;
	if (!code)
		code = take_options(cli, plan);
	if (!code)
		code = jm_model_dims(t->model, preset, &plan->values, &plan->dims, err);
	if (!code)
		code = choose(plan, names_text(cli) && cli->n_args > 1, err);
	t->batch = t->batch ? t->batch : describe_least_batch(cli->args, cli->n_args);
	if (!code)
		code = jm_device_open(
			choose_device(plan), describe_ranks_threads(plan), &plan->device, err);
	if (code || plan->serve.on)
		return code ? code : describe_serve_plan(plan, err);
	code = choose_kept(plan, err);
	if (!code)
		code = describe_ranks_plan(plan, err);
	return code || !plan->power.store ? code : describe_power_estimate(plan, err);
}

static int make_plans(struct jm_cli *cli, struct describe_plan *plan)
{
	int code = check_extra(cli);

	if (!code && cli->n_args < 1)
		code = jm_err_set(&cli->err, JM_EUSAGE,
			"No model is named. Usage: 'joulemark describe %s'; 'joulemark list' lists "
			"the models.",
			cli->cmd->usage);
	for (int i = 0; i < cli->n_args && !code; i++)
		code = make_plan(cli, cli->args[i], &plan[i]);
	return code;
}

/* ---- start values ---------------------------------------------------------------------------- */

/* Of all parameters that start by this rule; false: none does. */
static bool count_starts(const struct describe_plan *plan, enum jm_init rule, int64_t *ret_tensors,
	int64_t *ret_elements)
{
	*ret_tensors = *ret_elements = 0;
	for (int i = 0; i < plan->graph->n_cells; i++) {
		const struct jm_cell *c = plan->graph->cell[i];

		if (c->t.class != JM_CLASS_PARAM || !c->needs_grad || c->init != rule)
			continue;
		*ret_elements += jm_cell_parameters(plan->graph, c);
		++*ret_tensors;
	}
	return *ret_tensors > 0;
}

static void print_starts(const struct describe_plan *plan, int width, FILE *out)
{
	int64_t tensors, elements;
	char line[240], number[40];

	fprintf(out, "start values:\n");
	for (int rule = JM_INIT_ZERO; rule < JM_INIT_COUNT; rule++) {
		const char *source = jm_init_source(rule);

		if (!count_starts(plan, rule, &tensors, &elements))
			continue;
		snprintf(number, sizeof(number), "%lld", (long long)elements);
		jm_text_apart(number, sizeof(number));
		snprintf(line, sizeof(line), "%-28s %8lld tensor%s, %s parameters%s%s",
			jm_init_name(rule), (long long)tensors, tensors == 1 ? "" : "s", number,
			*source ? "; " : "", source);
		jm_text_wrap(out, line, 2, 40, width);
	}
}

static json_t *starts_json(const struct describe_plan *plan)
{
	json_t *list = json_array();
	int64_t tensors, elements;

	for (int rule = JM_INIT_ZERO; rule < JM_INIT_COUNT; rule++)
		if (count_starts(plan, rule, &tensors, &elements))
			json_array_append_new(list,
				json_pack("{s:s, s:s, s:I, s:I}", "rule", jm_init_name(rule),
					"source", jm_init_source(rule), "tensors",
					(json_int_t)tensors, "parameters", (json_int_t)elements));
	return list;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_class(
	FILE *out, const struct jm_program *p, enum jm_class class, const char *what)
{
	describe_print(out, what, (double)p->class_bytes[class], "B");
}

static void print_frozen(const struct describe_plan *plan, FILE *out)
{
	size_t bytes;
	int64_t frozen = jm_freeze_parameters(plan->graph, &bytes);
	int64_t trained = jm_graph_parameters(plan->graph) - frozen;

	if (!frozen)
		return;
	describe_print(out, "  trained", (double)trained, "");
	describe_print(out, "  frozen", (double)frozen, "");
	describe_print(out, "  bytes of frozen ones", (double)bytes, "B");
}

static void print_plan(const struct describe_plan *plan, int width, FILE *out)
{
	const struct jm_program *p = plan->program;
	const char *update = jm_update_names[plan->training.adamw.kind];
	const char *mean = plan->training.adamw.average > 0 ? ", mean" : "";
	char state[32];
	double n = describe_items(plan);

	fprintf(out, "%s, training in %s, batch %lld", plan->name, plan->precision,
		(long long)plan->training.batch);
	if (jm_model_has_text(plan->training.model))
		fprintf(out, ", sequence %lld", (long long)plan->training.seq);
	fprintf(out, ", on %s\n\n", plan->device.backend->name);
	describe_print(out, "parameters", (double)jm_graph_parameters(plan->graph), "");
	print_frozen(plan, out);
	describe_parts_print(plan, out);
	fprintf(out, "per %s:\n", plan->training.model->item);
	describe_print(out, "model FLOPs", plan->flops_model / n, "FLOP");
	describe_print(out, "executed FLOPs", plan->flops_executed / n, "FLOP");
	describe_print(out, "memory traffic", plan->bytes / n, "B");
	fprintf(out, "memory:\n");
	describe_print(out, "peak", (double)p->peak_bytes, "B");
	describe_print(out, "kept between steps", (double)p->persistent_bytes, "B");
	print_class(out, p, JM_CLASS_PARAM, "  parameters");
	if (!p->gradients_move)
		print_class(out, p, JM_CLASS_GRAD, "  gradients");
	snprintf(state, sizeof(state), "  optimizer (%s)%s", update, mean);
	print_class(out, p, JM_CLASS_OPT, state);
	describe_print(out, "planned over a step", (double)p->arena_bytes, "B");
	if (p->gradients_move)
		print_class(out, p, JM_CLASS_GRAD, "  gradients");
	if (plan->power.store)
		describe_power_print(plan, out);
	describe_ranks_print(plan, out);
	print_starts(plan, width, out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *whole(double value)
{
	return json_integer((json_int_t)value);
}

static void add_frozen(json_t *o, const struct jm_graph *g)
{
	size_t bytes;
	int64_t frozen = jm_freeze_parameters(g, &bytes), all = jm_graph_parameters(g);

	json_object_set_new(o, "parameters", json_integer(all));
	json_object_set_new(o, "parameters_trained", json_integer(all - frozen));
	json_object_set_new(o, "parameters_frozen", json_integer(frozen));
	json_object_set_new(o, "frozen_bytes", whole((double)bytes));
}

static json_t *plan_json(const struct describe_plan *plan)
{
	const struct jm_program *p = plan->program;
	double n = describe_items(plan);
	json_t *o = json_object();

	json_object_set_new(o, "schema", json_string("joulemark.describe/1"));
	json_object_set_new(o, "model", json_string(plan->name));
	json_object_set_new(o, "item", json_string(plan->training.model->item));
	json_object_set_new(o, "precision", json_string(plan->precision));
	json_object_set_new(o, "device", json_string(plan->device.backend->name));
	json_object_set_new(o, "batch", json_integer(plan->training.batch));
	json_object_set_new(o, "seq", json_integer(plan->training.seq));
	add_frozen(o, plan->graph);
	json_object_set_new(o, "parts", describe_parts_json(plan));
	json_object_set_new(o, "flops_model_per_item", json_real(plan->flops_model / n));
	json_object_set_new(o, "flops_executed_per_item", json_real(plan->flops_executed / n));
	json_object_set_new(o, "bytes_per_item", json_real(plan->bytes / n));
	json_object_set_new(o, "parameter_bytes", whole((double)p->class_bytes[JM_CLASS_PARAM]));
	json_object_set_new(o, "gradient_bytes", whole((double)p->class_bytes[JM_CLASS_GRAD]));
	json_object_set_new(o, "optimizer_bytes", whole((double)p->class_bytes[JM_CLASS_OPT]));
	json_object_set_new(
		o, "optimizer", json_string(jm_update_names[plan->training.adamw.kind]));
	json_object_set_new(o, "accumulate", json_integer(jm_program_micro_steps(p)));
	json_object_set_new(o, "start_values", starts_json(plan));
	json_object_set_new(o, "peak_bytes", whole((double)p->peak_bytes));
	json_object_set_new(o, "persistent_bytes", whole((double)p->persistent_bytes));
	json_object_set_new(o, "arena_bytes", whole((double)p->arena_bytes));
	json_object_set_new(o, "groups", json_integer(p->n_units));
	if (plan->power.store)
		json_object_set_new(o, "power", describe_power_json(plan));
	describe_ranks_json(plan, o);
	if (plan->lists_graph)
		json_object_set_new(o, "graph", describe_graph_json(p));
	return o;
}

struct plans {
	const struct describe_plan *plan;
	int n;
};

/* Of one model an object, of several a list of these. */
static bool dump_json(const void *what, FILE *f)
{
	const struct plans *plans = what;
	json_t *all = json_array();
	bool good;

	for (int i = 0; i < plans->n; i++)
		json_array_append_new(all, plans->plan[i].serve.on
						   ? describe_serve_json(&plans->plan[i])
						   : plan_json(&plans->plan[i]));
	good = !json_dumpf(plans->n == 1 ? json_array_get(all, 0) : all, f, JSON_INDENT(2)) &&
	       fputc('\n', f) != EOF;
	json_decref(all);
	return good;
}

static bool draw(const void *what, FILE *f)
{
	const struct describe_plan *plan = what;
	char title[160];

	snprintf(title, sizeof(title), "%s, training in %s, batch %lld, on %s", plan->name,
		plan->precision, (long long)plan->training.batch, plan->device.backend->name);
	return describe_svg_write(plan->program, title, f);
}

static bool is_stdout(const char *path)
{
	return path && !strcmp(path, "-");
}

static int check_places(struct jm_cli *cli, const struct describe_plan *plan)
{
	const char *json = plan->json, *svg = plan->svg, *only;

	if (json && svg && !strcmp(json, svg))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--json and --svg cannot both be written to %s; give one of them another "
			"file.",
			is_stdout(svg) ? "standard output" : svg);
	only = svg ? "svg" : plan->lists_graph ? "graph" : plan->power.store ? "power" : NULL;
	if (plan->serve.on && only)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--%s shows a training, not --serve; omit one of them.", only);
	if (cli->n_args > 1 && only)
		return jm_err_set(&cli->err, JM_EUSAGE, "--%s shows one model; name one, not %d.",
			only, cli->n_args);
	return 0;
}

static int write_out(struct jm_cli *cli, const struct describe_plan *plan)
{
	const char *json = plan->json, *svg = plan->svg;
	const struct plans plans = {plan, cli->n_args};
	bool text = !is_stdout(json) && !is_stdout(svg);
	int code = 0;

	for (int i = 0; text && plan->serve.on && i < cli->n_args; i++)
		describe_serve_print(&plan[i], cli->out);
	text = text && !plan->serve.on;
	if (text && cli->n_args > 1)
		code = describe_several(plan, cli->n_args, cli->width, cli->out, &cli->err);
	else if (text)
		print_plan(plan, cli->width, cli->out);
	if (text && plan->lists_graph)
		describe_graph_print(plan->program, cli->out);
	if (!code && json)
		code = jm_cli_put_by(cli, json, dump_json, &plans);
	if (!code && svg)
		code = jm_cli_put_by(cli, svg, draw, plan);
	return code;
}

static int describe(struct jm_cli *cli)
{
	struct describe_plan *plan = calloc((size_t)cli->n_args + 1, sizeof(*plan));
	int code = 0;

	if (plan)
		JM_FILL(&cli->values, plan);
	else
		code = jm_err_set(
			&cli->err, JM_ENOMEM, "Out of memory for %d models.", cli->n_args);
	if (!code)
		code = check_places(cli, plan);
	if (!code)
		code = describe_ranks_check(plan, &cli->err);
	if (!code)
		code = make_plans(cli, plan);
	if (!code)
		code = write_out(cli, plan);
	for (int i = 0; plan && i < cli->n_args; i++)
		plan_done(&plan[i]);
	free(plan);
	return code ? jm_cli_fail(cli) : 0;
}

const struct jm_command jm_command_describe = {
	.name = "describe",
	.heading = "Models and data",
	.summary = "compute what training a model takes: FLOPs, traffic, memory",
	.usage = "[options] MODEL... [model's options]",
	.description =
		"Plans a training step of MODEL, a model or a preset, and prints its parameters, "
		"its FLOPs and memory traffic per item, its peak memory to the byte and its start "
		"values. Nothing is allocated and nothing runs, so that any size can be planned on "
		"any machine. Several models are shown side by side, with the options that all of "
		"them have, and --seq for those of text. With --serve it plans steps that "
		"answer requests instead. With --power it also estimates the mean power, from at "
		"least eight different works that were measured on such a device.\n\nFLOPs are "
		"those of matrix products (a "
		"multiply-add is 2; causal attention counts half); model FLOPs are what the "
		"mathematics needs, executed FLOPs include what is recomputed.\n\nEach model has "
		"its own options, such as the number of layers: 'joulemark describe MODEL --help' "
		"lists them.",
	.example = "joulemark describe gpt-800m --batch 4 --precision bf16\n"
		   "joulemark describe llama3-8b --serve --memory 80 --precision bf16\n"
		   "joulemark describe resnet50 vit-l16 gpt-117m --batch 8\n"
		   "joulemark describe resnet50 --batch 32 --svg resnet50.svg\n"
		   "joulemark describe resnet50 --device cuda:0 --keep-most --power runs.db\n"
		   "joulemark describe gpt --layers 2 --hidden 64 --heads 4 --ffn 256 \\\n"
		   "    --vocab 256 --context 128 --positions learned --graph",
	.options = options,
	.max_args = JM_CHOSEN_MOST,
	.takes_extra = true,
	.help_of = jm_help_model,
	.run = describe,
};
