/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one training step of a model on request, so that bench/step.py can alternate with another
 * program.
 *
 *	step MODEL DEVICE PRECISION BATCH SEQ THREADS [keep-all] [recompute] [DIM=VALUE...]
 *
 * Prints "ready" and the planned bytes. Reads lines: "step" answers the seconds and the loss of one
 * step, and the peak bytes of this process; "kernels" the median seconds of each group of nodes
 * that is run alone, in lines "name seconds flops" and an empty line; the end of input ends the
 * program.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "data/sets/talk_rows.h"
#include "engine/graph/model.h"
#include "base/stat/stat.h"
#include "engine/run/program.h"
#include "engine/graph/tensor.h"
#include "engine/run/start_values.h"

#define REPEATS 3

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

/* "keep-all", "recompute" or "layers=12". */
static void take_word(struct jm_training *t, struct jm_values *given, char *word)
{
	char *value = strchr(word, '=');

	if (!strcmp(word, "keep-all")) {
		t->keep_all = true;
	} else if (!strcmp(word, "recompute")) {
		t->recompute = true;
	} else if (value) {
		*value = 0;
		check(jm_values_set(given, word, value + 1, &err));
	} else {
		fprintf(stderr, "step: '%s' is neither keep-all, recompute nor DIM=VALUE.\n", word);
		exit(2);
	}
}

static struct jm_graph *graph_of(
	struct jm_training *t, const char *name, char **dim, struct jm_values *ret_dims)
{
	const struct jm_preset *preset;
	struct jm_values given;
	struct jm_graph *graph;

	check(jm_model_find(name, &t->model, &preset, &err));
	check(jm_values_init(&given, t->model->options, &err));
	for (; *dim; dim++)
		take_word(t, &given, *dim);
	check(jm_model_dims(t->model, preset, &given, ret_dims, &err));
	t->dims = ret_dims;
	check(jm_model_train(t, &graph, &err));
	jm_values_done(&given);
	return graph;
}

/* Whole numbers below `below`; the first `ignored` ones of each row are no targets. */
static void feed_ids(struct jm_program *p, const char *name, int64_t below, int64_t ignored)
{
	struct jm_tensor *t = jm_graph_find(p->graph, name);
	int64_t width = t->dim[t->rank - 1];
	int32_t *ids = malloc(t->bytes);

	for (int64_t i = 0; i < jm_tensor_count(t); i++)
		ids[i] = i % width < ignored ? JM_TALK_IGNORED : (int32_t)(rand() % below);
	check(jm_program_write(p, t, ids, &err));
	free(ids);
}

/* About normal, of variance 1: the four quarters of a hash (splitmix64, Steele et al. 2014) as a
 * sum. */
static double about_normal(uint64_t i)
{
	uint64_t x = i * 0x9e3779b97f4a7c15u;
	double sum = -2;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	x ^= x >> 31;
	for (int k = 0; k < 4; k++)
		sum += (double)(x >> 16 * k & 0xffff) / 0x10000;
	return sum * sqrt(3);
}

static void feed_normal(struct jm_program *p, const char *name)
{
	struct jm_tensor *t = jm_graph_find(p->graph, name);
	void *values = malloc(t->bytes);

	for (int64_t i = 0; i < jm_tensor_count(t); i++)
		jm_element_set(t->type, values, i, about_normal((uint64_t)i + 1));
	check(jm_program_write(p, t, values, &err));
	free(values);
}

/* Targets for which a picture at the start of a text leaves no place. */
static int64_t ignored_places(const struct jm_program *p, const struct jm_training *t)
{
	int64_t side;

	if (!jm_graph_find(p->graph, "picture"))
		return 0;
	side = jm_dim(t->dims, "image") / jm_dim(t->dims, "patch");
	return side * side - 1;
}

static void feed(struct jm_program *p, const struct jm_training *t)
{
	for (const struct jm_input *row = t->model->inputs; row->name; row++)
		if (row->fill == JM_FILL_NORMAL || row->fill == JM_FILL_HEAT)
			feed_normal(p, row->name);
		else
			feed_ids(p, row->name,
				row->below		    ? jm_dim(t->dims, row->below)
				: row->fill == JM_FILL_ZERO ? 1
							    : t->batch,
				row->shift ? ignored_places(p, t) : 0);
}

static void feed_now(struct jm_program *p, int step)
{
	struct jm_tensor *t = jm_graph_find(p->graph, "adamw.now");
	float value[3] = {1e-4f, (float)(1 - pow(0.9, step)), (float)(1 - pow(0.999, step))};

	check(jm_program_write(p, t, value, &err));
}

/* Peak resident memory of this process in bytes; Linux reports KiB. */
static size_t most_memory(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (size_t)usage.ru_maxrss * 1024;
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
	printf("%.6f %.6f %zu\n", start, (double)loss, most_memory());
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
	qsort(seconds + 1, REPEATS, sizeof(*seconds), jm_stat_by_value);
	return seconds[1 + REPEATS / 2];
}

/* Nodes that add to their results leave meaningless sums when they run alone and repeatedly, but
 * the update needs finite gradients. */
static void forget_gradients(struct jm_program *p)
{
	for (int i = 0; i < 2; i++) {
		struct jm_tensor *t = p->gradients[i];
		void *zero = t ? calloc(1, t->bytes) : NULL;

		if (zero)
			check(jm_program_write(p, t, zero, &err));
		free(zero);
	}
}

static void kernels(struct jm_program *p)
{
	for (int i = 0; i < p->n_units; i++) {
		const struct jm_unit *u = p->unit[i];
		const struct jm_node *last = u->group.node[u->group.n_nodes - 1];
		double flops = 0;

		if (u->group.node[0]->op == JM_OP_NORM)
			forget_gradients(p);
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
	struct jm_values dims;
	struct jm_device device;
	struct jm_graph *graph;
	char line[64];

	if (argc < 7) {
		fprintf(stderr, "usage: step MODEL DEVICE PRECISION BATCH SEQ THREADS [keep-all] "
				"[recompute] "
				"[DIM=VALUE...]\n");
		return 2;
	}
	t.batch = atoi(argv[4]);
	t.seq = atoi(argv[5]);
	check(jm_dtype_find(argv[3], &t.precision, &err));
	check(jm_device_open(argv[2], atoi(argv[6]), &device, &err));
	graph = graph_of(&t, argv[1], argv + 7, &dims);
	check(jm_program_plan(graph, &device, &program, &err));
	check(jm_program_build(program, &err));
	check(jm_program_init(program, 1, &err));
	feed(program, &t);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("ready %zu\n", program->peak_bytes);
	for (int n = 1; fgets(line, sizeof line, stdin); n++) {
		if (!strcmp(line, "kernels\n"))
			kernels(program);
		else
			step(program, n);
	}
	jm_program_free(program);
	jm_graph_free(graph);
	jm_device_close(&device);
	jm_values_done(&dims);
	return 0;
}
