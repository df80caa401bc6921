/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains a GPT and prints each step's loss with all its digits; for comparison with other programs.
 *
 *	losses DEVICE PRECISION STEPS BATCH SEQ TEXT WEIGHTS SEED DIM=VALUE...
 *
 * WEIGHTS is written: the start values, a line "name dims" and raw f32 for each. Step s takes sequence
 * b from byte (s * BATCH + b) * SEQ of TEXT. AdamW with lr 1e-3, betas 0.9 and 0.999, eps 1e-8, decay
 * 0.1 of matrices, clip 1.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model.h"
#include "engine/program.h"
#include "engine/tensor.h"

#define LR 1e-3

static struct jm_err err;

static void check(int code)
{
	if (!code)
		return;
	fprintf(stderr, "%s\n", err.text);
	exit(1);
}

static void dump(struct jm_program *p, const char *path)
{
	FILE *f = fopen(path, "wb");

	for (int i = 0; f && i < p->graph->n_cells; i++) {
		struct jm_cell *c = p->graph->cell[i];
		int64_t n = jm_tensor_count(&c->t);
		char *data;

		if (c->t.class != JM_CLASS_PARAM || !c->needs_grad)
			continue;
		data = malloc(c->t.bytes);
		check(jm_program_read(p, &c->t, data, &err));
		fprintf(f, "%s %lld %lld\n", c->t.name, (long long)c->t.dim[0],
			c->t.rank > 1 ? (long long)c->t.dim[1] : 0);
		for (int64_t k = 0; k < n; k++) {
			float value = (float)jm_element_get(c->t.type, data, k);

			fwrite(&value, sizeof(value), 1, f);
		}
		free(data);
	}
	if (!f || fclose(f)) {
		fprintf(stderr, "%s cannot be written\n", path);
		exit(1);
	}
}

static void feed(struct jm_program *p, const char *name, const unsigned char *text, int64_t batch,
	int64_t seq, int step, int shift)
{
	struct jm_tensor *t = jm_graph_find(p->graph, name);
	int32_t *ids = malloc(t->bytes);

	for (int64_t i = 0; i < batch * seq; i++)
		ids[i] = text[step * batch * seq + i + shift];
	check(jm_program_write(p, t, ids, &err));
	free(ids);
}

static void feed_now(struct jm_program *p, int t)
{
	struct jm_tensor *now = jm_graph_find(p->graph, "adamw.now");
	double data[3], value[3] = {LR, 1 - pow(0.9, t), 1 - pow(0.999, t)};

	for (int i = 0; i < 3; i++)
		jm_element_set(now->type, data, i, value[i]);
	check(jm_program_write(p, now, data, &err));
}

static double scalar(struct jm_program *p, const char *name)
{
	struct jm_tensor *t = jm_graph_find(p->graph, name);
	double data;

	check(jm_program_read(p, t, &data, &err));
	return jm_element_get(t->type, &data, 0);
}

static unsigned char *load(const char *path, size_t n)
{
	unsigned char *text = malloc(n);
	FILE *f = fopen(path, "rb");

	if (!f || fread(text, 1, n, f) != n) {
		fprintf(stderr, "%s is too short\n", path);
		exit(1);
	}
	fclose(f);
	return text;
}

int main(int argc, char **argv)
{
	struct jm_training t = {.adamw = {0.9, 0.999, 1e-8, 0.1, 1.0}};
	const struct jm_preset *preset;
	struct jm_device device;
	struct jm_program *program;
	struct jm_graph *graph;
	struct jm_values dims;
	unsigned char *text;
	int steps;

	if (argc < 9)
		return 2;
	steps = atoi(argv[3]);
	t.batch = atoi(argv[4]);
	t.seq = atoi(argv[5]);
	text = load(argv[6], (size_t)(steps * t.batch * t.seq) + 1);
	check(jm_dtype_find(argv[2], &t.precision, &err));
	check(jm_model_find("gpt", &t.model, &preset, &err));
	check(jm_values_init(&dims, t.model->options, &err));
	for (int i = 9; i < argc; i++) {
		*strchr(argv[i], '=') = 0;
		check(jm_values_set(&dims, argv[i], argv[i] + strlen(argv[i]) + 1, &err));
	}
	t.dims = &dims;
	check(jm_device_open(argv[1], 1, &device, &err));
	check(jm_model_train(&t, &graph, &err));
	check(jm_program_plan(graph, &device, &program, &err));
	check(jm_program_build(program, &err));
	check(jm_program_init(program, (uint64_t)atoi(argv[8]), &err));
	dump(program, argv[7]);
	for (int s = 0; s < steps; s++) {
		feed(program, "ids", text, t.batch, t.seq, s, 0);
		feed(program, "target", text, t.batch, t.seq, s, 1);
		feed_now(program, s + 1);
		check(jm_program_run(program, &err));
		printf("%.17g %.17g\n", scalar(program, "loss"), scalar(program, "grad.norm"));
	}
	jm_program_free(program);
	jm_graph_free(graph);
	jm_device_close(&device);
	jm_values_done(&dims);
	free(text);
	return 0;
}
