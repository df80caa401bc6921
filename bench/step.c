/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One training step of GPT-117M, on request, so that bench/step.py can take turns with a peer.
 *
 *	step DEVICE PRECISION BATCH SEQ THREADS [DIM=VALUE...]
 *
 * Reads lines: "step" answers seconds and loss of one step; "kernels" the median seconds of each group
 * of nodes run alone, a line "name seconds flops" each and an empty one; the end of input ends it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/model.h"
#include "engine/program.h"
#include "engine/tensor.h"

#define REPEATS 5

static struct jm_err err;

static void check(int code)
{
	if (!code)
		return;
	fprintf(stderr, "%s\n", err.text);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct jm_graph *graph_of(struct jm_training *t, char **dim)
{
	const struct jm_preset *preset;
	struct jm_values given, dims;
	struct jm_graph *graph;

	check(jm_model_find("gpt-117m", &t->model, &preset, &err));
	check(jm_values_init(&given, t->model->options, &err));
	for (; *dim; dim++) {
		char *value = strchr(*dim, '=');
		if (!value)
			exit(2);
		*value = 0;
		check(jm_values_set(&given, *dim, value + 1, &err));
	}
	check(jm_model_dims(t->model, preset, &given, &dims, &err));
	t->dims = &dims;
	check(jm_model_train(t, &graph, &err));
	jm_values_done(&given);
	jm_values_done(&dims);
	return graph;
}

static void feed_ids(struct jm_program *p, const char *name)
{
	struct jm_tensor *t = jm_graph_find(p->graph, name);
	int64_t vocab = jm_graph_find(p->graph, "tokens.weight")->dim[0];
	int32_t *ids = malloc(t->bytes);

	for (int64_t i = 0; i < jm_tensor_count(t); i++)
		ids[i] = (int32_t)(rand() % vocab);
	check(jm_program_write(p, t, ids, &err));
	free(ids);
}

static void feed_now(struct jm_program *p, int step)
{
	struct jm_tensor *t = jm_graph_find(p->graph, "adamw.now");
	float value[3] = {1e-4f, (float)(1 - pow(0.9, step)), (float)(1 - pow(0.999, step))};

	check(jm_program_write(p, t, value, &err));
}

static void step(struct jm_program *p, int number)
{
	double start;
	float loss;

	feed_now(p, number);
	start = now();
	check(jm_program_run(p, &err));
	start = now() - start;
	check(jm_program_read(p, jm_graph_find(p->graph, "loss"), &loss, &err));
	printf("%.6f %.6f\n", start, (double)loss);
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double alone(struct jm_program *p, const struct jm_unit *u)
{
	const struct jm_device *d = p->device;
	double seconds[REPEATS + 1];

	for (int i = 0; i <= REPEATS; i++) { /* the first one warms the caches */
		seconds[i] = now();
		check(d->backend->run(d->dev, u->exec, &err));
		check(d->backend->sync(d->dev, &err));
		seconds[i] = now() - seconds[i];
	}
	qsort(seconds + 1, REPEATS, sizeof(*seconds), compare);
	return seconds[1 + REPEATS / 2];
}

static void kernels(struct jm_program *p)
{
	for (int i = 0; i < p->n_units; i++) {
		const struct jm_unit *u = p->unit[i];
		const struct jm_node *last = u->group.node[u->group.n_nodes - 1];
		double flops = 0;

		for (int k = 0; k < u->group.n_nodes; k++)
			flops += u->group.node[k]->flops_executed;
		for (int k = 0; k < u->group.n_nodes; k++)
			printf("%s%s", k ? "+" : "", jm_op_name(u->group.node[k]->op));
		printf(":%s %.6f %.0f\n", last->out[0]->name, alone(p, u), flops);
	}
	printf("\n");
}

int main(int argc, char **argv)
{
	struct jm_training t = {
		.adamw = {
			.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .clip = 1}};
	struct jm_program *program;
	struct jm_device device;
	struct jm_graph *graph;
	double start = now();
	char line[64];

	if (argc < 6) {
		fprintf(stderr, "usage: step DEVICE PRECISION BATCH SEQ THREADS [DIM=VALUE...]\n");
		return 2;
	}
	t.batch = atoi(argv[3]);
	t.seq = atoi(argv[4]);
	check(jm_dtype_find(argv[2], &t.precision, &err));
	check(jm_device_open(argv[1], atoi(argv[5]), &device, &err));
	graph = graph_of(&t, argv + 6);
	check(jm_program_plan(graph, &device, &program, &err));
	check(jm_program_build(program, &err));
	check(jm_program_init(program, 1, &err));
	feed_ids(program, "ids");
	feed_ids(program, "target");
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("%.3f %zu\n", now() - start, program->peak_bytes);
	for (int n = 1; fgets(line, sizeof line, stdin); n++) {
		if (!strcmp(line, "kernels\n"))
			kernels(program);
		else
			step(program, n);
	}
	jm_program_free(program);
	jm_graph_free(graph);
	jm_device_close(&device);
	return 0;
}
