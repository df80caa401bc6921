/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains a model and prints each step's loss with all its digits; for comparison with other
 * programs.
 *
 *	losses MODEL DEVICE PRECISION STEPS BATCH SEQ DATA WEIGHTS SEED DIM=VALUE...
 *
 * Writes the start values to WEIGHTS, for each tensor a line "name dims" and raw f64 values, and
 * the gradients of the first step to WEIGHTS.grad in the same form. DATA: of a language model a
 * text of bytes; step s takes sequence b from byte (s * BATCH + b) * SEQ. Of models with other
 * inputs, for each step all of them in the order of their table: random values as f32, others as
 * i32. AdamW with lr 1e-3, betas 0.9 and 0.999, eps 1e-8, decay 0.1 of all but vectors, clip 1. In
 * fp16 the loss is scaled by JM_TEST_SCALE, 1024 if unset, and so are the reported gradients and
 * their norm.
 * JM_TEST_GRADIENTS=bf16 or f32: the type in which gradients of matrices wait for the update, as
 * --gradients;
 * JM_TEST_RESIDUAL=bf16 or f32: that of the residual stream in bf16 and fp8, as --residual. Unset:
 * as auto. JM_TEST_FROM, JM_TEST_SAVE, JM_TEST_FREEZE: as --from, --save and --freeze.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/model.h"
#include "engine/run/program.h"
#include "engine/graph/tensor.h"
#include "engine/run/start_values.h"
#include "workloads/parts/weights_config.h"
#include "workloads/parts/weights_save.h"

#define LR 1e-3

static struct jm_err err;

static void check(int code)
{
	if (!code)
		return;
	fprintf(stderr, "%s\n", err.text);
	exit(1);
}

static void write_tensor(struct jm_program *p, const char *name, const struct jm_tensor *t, FILE *f)
{
	char *data = malloc(t->bytes);

	check(jm_program_read(p, t, data, &err));
	fprintf(f, "%s", name);
	for (int i = 0; i < t->rank; i++)
		fprintf(f, " %lld", (long long)t->dim[i]);
	fputc('\n', f);
	for (int64_t k = 0; k < jm_tensor_count(t); k++) {
		double value = jm_element_get(t->type, data, k);

		fwrite(&value, sizeof(value), 1, f);
	}
	free(data);
}

static void dump(struct jm_program *p, const char *path, bool gradients)
{
	char file[4096];
	FILE *f;

	snprintf(file, sizeof(file), "%s%s", path, gradients ? ".grad" : "");
	f = fopen(file, "wb");
	for (int i = 0; f && i < p->graph->n_cells; i++) {
		struct jm_cell *c = p->graph->cell[i];

		if (c->t.class == JM_CLASS_PARAM && c->needs_grad)
			write_tensor(p, c->t.name, gradients ? c->grad : &c->t, f);
	}
	if (!f || fclose(f)) {
		fprintf(stderr, "%s cannot be written\n", file);
		exit(1);
	}
}

static void feed_text(struct jm_program *p, struct jm_tensor *t, const unsigned char *text)
{
	int32_t *ids = malloc(t->bytes);

	for (int64_t i = 0; i < jm_tensor_count(t); i++)
		ids[i] = text[i];
	check(jm_program_write(p, t, ids, &err));
	free(ids);
}

/* f32 in the file, rounded to the type of the input; returns what follows. */
static const void *feed_values(struct jm_program *p, struct jm_tensor *t, const float *from)
{
	void *values = malloc(t->bytes);
	int64_t n = jm_tensor_count(t);

	for (int64_t i = 0; i < n; i++)
		jm_element_set(t->type, values, i, (double)from[i]);
	check(jm_program_write(p, t, values, &err));
	free(values);
	return from + n;
}

static void feed_rows(struct jm_program *p, struct jm_tensor *t)
{
	int32_t *row = malloc(t->bytes);

	for (int64_t i = 0; i < jm_tensor_count(t); i++)
		row[i] = (int32_t)i;
	check(jm_program_write(p, t, row, &err));
	free(row);
}

/* Does it read nothing but text? */
static bool is_of_text(const struct jm_model *model)
{
	const struct jm_input *row = model->inputs;

	while (row->name && row->fill == JM_FILL_TEXT)
		row++;
	return !row->name;
}

/* Bytes of a step in the file, of a model that reads more than text. */
static size_t step_bytes(struct jm_program *p, const struct jm_training *t)
{
	size_t bytes = 0;

	for (const struct jm_input *row = t->model->inputs; row->name; row++)
		if (row->fill != JM_FILL_ROW)
			bytes += 4 * (size_t)jm_tensor_count(jm_graph_find(p->graph, row->name));
	return bytes;
}

static void feed_step(struct jm_program *p, const struct jm_training *t, const void *data, int step)
{
	const unsigned char *text = (const unsigned char *)data + step * t->batch * t->seq;
	const void *at = (const char *)data + (size_t)step * step_bytes(p, t);

	for (const struct jm_input *row = t->model->inputs; row->name; row++) {
		struct jm_tensor *input = jm_graph_find(p->graph, row->name);

		if (is_of_text(t->model)) {
			feed_text(p, input, text + row->shift);
		} else if (row->fill == JM_FILL_NORMAL || row->fill == JM_FILL_HEAT) {
			at = feed_values(p, input, at);
		} else if (row->fill == JM_FILL_ROW) {
			feed_rows(p, input);
		} else {
			check(jm_program_write(p, input, at, &err));
			at = (const char *)at + input->bytes;
		}
	}
}

static void feed_now(struct jm_program *p, int t)
{
	struct jm_tensor *now = jm_graph_find(p->graph, "adamw.now");
	double data[3], value[3] = {LR, 1 - pow(0.9, t), 1 - pow(0.999, t)};

	for (int i = 0; i < 3; i++)
		jm_element_set(now->type, data, i, value[i]);
	check(jm_program_write(p, now, data, &err));
}

static void feed_scale(struct jm_program *p)
{
	struct jm_tensor *scale = jm_graph_find(p->graph, "loss.scale");
	const char *given = getenv("JM_TEST_SCALE");
	double data[2], factor = given ? atof(given) : 1024;

	if (!scale)
		return;
	jm_element_set(scale->type, data, 0, factor);
	jm_element_set(scale->type, data, 1, 1 / factor);
	check(jm_program_write(p, scale, data, &err));
}

static double scalar(struct jm_program *p, const char *name)
{
	struct jm_tensor *t = jm_graph_find(p->graph, name);
	double data;

	check(jm_program_read(p, t, &data, &err));
	return jm_element_get(t->type, &data, 0);
}

static void *load(const char *path)
{
	FILE *f = fopen(path, "rb");
	void *data;
	long n;

	if (!f || fseek(f, 0, SEEK_END) || (n = ftell(f)) < 0) {
		fprintf(stderr, "%s cannot be read\n", path);
		exit(1);
	}
	rewind(f);
	data = malloc((size_t)n);
	if (fread(data, 1, (size_t)n, f) != (size_t)n)
		exit(1);
	fclose(f);
	return data;
}

static void read_dims(struct jm_values *dims, const struct jm_training *t, char **words)
{
	struct jm_values given;

	check(jm_values_init(&given, t->model->options, &err));
	for (; *words; words++) {
		*strchr(*words, '=') = 0;
		check(jm_values_set(&given, *words, *words + strlen(*words) + 1, &err));
	}
	check(jm_weights_dims(t->model, NULL, getenv("JM_TEST_FROM"), &given, dims, &err));
	jm_values_done(&given);
}

static void run(struct jm_program *p, const struct jm_training *t, int steps, const void *data,
	const char *weights)
{
	for (int s = 0; s < steps; s++) {
		feed_step(p, t, data, s);
		feed_now(p, s + 1);
		feed_scale(p);
		check(jm_program_run(p, &err));
		printf("%.17g %.17g\n", scalar(p, "loss"), scalar(p, "grad.norm"));
		if (!s)
			dump(p, weights, true);
	}
}

/* Loss and right answers (0 where nobody counts them) of the first batch, on the weights as they
 * are now. */
static void evaluate(
	struct jm_program *p, const struct jm_training *t, const void *data, const char *weights)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s.eval", weights);
	f = fopen(path, "w");
	if (!f)
		exit(1);
	feed_step(p, t, data, 0);
	check(jm_program_run(p, &err));
	fprintf(f, "%.17g %.17g\n", scalar(p, "loss"),
		jm_graph_find(p->graph, "top1") ? scalar(p, "top1") : 0);
	fclose(f);
}

/* The choice of the environment; auto where it has none. */
static enum jm_narrow narrow(const char *variable)
{
	const char *word = getenv(variable);

	return jm_narrow_of(word ? word : "auto");
}

static void start(struct jm_program *p, const struct jm_training *t, uint64_t seed)
{
	const char *from = getenv("JM_TEST_FROM");
	struct jm_weights_loaded found;
	struct jm_safetensors s = {0};

	if (!from) {
		check(jm_program_init(p, seed, &err));
		return;
	}
	check(jm_safetensors_open(from, &s, &err));
	check(jm_weights_load(p, (struct jm_network){t->model, t->dims}, &s, seed, &found, &err));
	jm_safetensors_close(&s);
}

static void save(struct jm_program *p, const struct jm_training *t, int steps)
{
	const struct jm_weights_source source = {.batches = steps, .shard_bytes = 60000};
	const char *to = getenv("JM_TEST_SAVE");

	if (to)
		check(jm_weights_save(
			p, (struct jm_network){t->model, t->dims}, &source, to, &err));
}

/* What the command line and the environment say of the training; its model and dims. */
static void read_training(struct jm_training *t, struct jm_values *dims, char **argv)
{
	const struct jm_preset *preset;

	t->batch = atoi(argv[5]);
	t->seq = atoi(argv[6]);
	t->dims = dims;
	check(jm_precision_set(t, argv[3], &err));
	t->scaled = t->precision == JM_F16;
	check(jm_model_find(argv[1], &t->model, &preset, &err));
	read_dims(dims, t, argv + 10);
	t->gradients = narrow("JM_TEST_GRADIENTS");
	t->residual = t->precision == JM_BF16 ? narrow("JM_TEST_RESIDUAL") : JM_NARROW_NO;
	t->freeze = getenv("JM_TEST_FREEZE");
}

int main(int argc, char **argv)
{
	struct jm_training t = {.adamw = {.beta1 = 0.9,
					.beta2 = 0.999,
					.eps = 1e-8,
					.weight_decay = 0.1,
					.clip = 1.0}};
	struct jm_device device;
	struct jm_program *program, *beside;
	struct jm_graph *graph, *network;
	struct jm_values dims;
	void *data;

	if (argc < 10)
		return 2;
	data = load(argv[7]);
	read_training(&t, &dims, argv);
	check(jm_device_open(argv[2], 1, &device, &err));
	t.own_memory = !device.props.host_memory;
	check(jm_model_train(&t, &graph, &err));
	check(jm_program_plan(graph, &device, &program, &err));
	check(jm_model_evaluate(&t, &network, &err));
	check(jm_program_plan_beside(network, program, &beside, &err));
	check(jm_program_build(program, &err));
	check(jm_program_build(beside, &err));
	start(program, &t, (uint64_t)atoi(argv[9]));
	dump(program, argv[8], false);
	run(program, &t, atoi(argv[4]), data, argv[8]);
	save(program, &t, atoi(argv[4]));
	evaluate(beside, &t, data, argv[8]);
	jm_program_free(beside);
	jm_graph_free(network);
	jm_program_free(program);
	jm_graph_free(graph);
	jm_device_close(&device);
	jm_values_done(&dims);
	free(data);
	return 0;
}
